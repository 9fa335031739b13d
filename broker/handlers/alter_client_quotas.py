"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and IP addresses (KIP-546).

Every broker carries it out. Each broker puts a change into effect when ZooKeeper notifies it.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.quotas.entities import entity_of
from holdfast_log.broker.quotas.store import QuotaStore
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.repeats import repeated
from holdfast_log.protocol.acls import AclOperation
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    AlteredQuota,
)

_TWICE = "the request names the entity more than once: put all its quotas into one entry"


@dataclass(eq=False)
class AlterClientQuotasHandler(Handler[AlterClientQuotasRequest, AlterClientQuotasResponse]):
    request = AlterClientQuotasRequest
    quotas: QuotaStore
    rights: ClusterRights
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: AlterClientQuotasRequest
    ) -> Deferred[AlterClientQuotasResponse]:
        self.rights.check(context, "alter quotas", AclOperation.ALTER_CONFIGS)
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        twice = repeated(map(_named, request.entries))

        def alter(entry: AlteredQuota) -> Deferred[AlteredEntry]:
            if _named(entry) in twice:
                return succeed(_entry(entry, BrokerError(ErrorCode.INVALID_REQUEST, _TWICE)))
            return self._alter(context, entry, request.validate_only)

        with self.answers.begin(context, AlterClientQuotasResponse) as answer:
            entries = await answer.altered(AlteredEntry, request.entries, alter)
            return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)

    def _alter(
        self, context: RequestContext, wanted: AlteredQuota, validate_only: bool
    ) -> Deferred[AlteredEntry]:
        limits = {each.key: None if each.remove else each.value for each in wanted.ops}
        try:
            if len(limits) != len(wanted.ops):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a quota more than once")
            entity = entity_of((part.entity_type, part.entity_name) for part in wanted.entity)
        except BrokerError as error:
            return succeed(_entry(wanted, error))

        def answer(error: BrokerError | None) -> AlteredEntry:
            if error is None and not validate_only:
                log_change(context, "Altered quotas of %s: %s", shown(str(entity)), shown(limits))
            return _entry(wanted, error)

        return self.quotas.alter(entity, limits, validate_only=validate_only).addCallback(answer)

    def failed(
        self, context: RequestContext, request: AlterClientQuotasRequest, error: BrokerError
    ) -> AlterClientQuotasResponse:
        entries = [_entry(wanted, error) for wanted in request.entries]
        return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)


def _named(wanted: AlteredQuota) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in wanted.entity)


def _entry(wanted: AlteredQuota, error: BrokerError | None) -> AlteredEntry:
    return AlteredEntry(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=wanted.entity,
    )
