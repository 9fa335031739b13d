"""CreateAcls (key 30): add entries to access control lists (KIP-140, KIP-290).

Every broker carries it out. They are in force on this broker when it answers, on the others once ZooKeeper
has notified them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import AnswerAbandoned, LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.security.administration import AclAdministration
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

_ROW_BYTES = 200
"""The price of a row: its line in the log takes longer than its bytes."""


@dataclass(eq=False)
class CreateAclsHandler(Handler[CreateAclsRequest, CreateAclsResponse]):
    request = CreateAclsRequest
    acls: AclAdministration
    answers: LongAnswers
    rights: ClusterRights

    def handle(self, context: RequestContext, request: CreateAclsRequest) -> Deferred[CreateAclsResponse]:
        self.rights.check(context, "alter access control lists")
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        with self.answers.begin(context, CreateAclsResponse) as answer:
            wanted: list[AclBinding] = []
            for each in request.creations:
                await answer.turn(_ROW_BYTES)
                wanted.append(_binding(each))
            errors = await self._created(answer, wanted)
            rows = answer.rows(AclCreationResult)
            for binding, error in zip(wanted, errors, strict=True):
                await answer.turn(_ROW_BYTES, even_if_gone=True)
                if error is None:
                    log_change(context, "Created the access control entry %s", shown(str(binding)))
                rows.add(_result(error))
            return CreateAclsResponse(throttle_time_ms=0, results=rows.finish())

    async def _created(
        self, answer: LongAnswer, wanted: Sequence[AclBinding]
    ) -> Sequence[BrokerError | None]:
        """Create the entries. The result has an error for each that was not created."""
        try:
            return await self.acls.create(wanted, answer)
        except AnswerAbandoned:
            raise
        except BrokerError as error:
            return [error.with_traceback(None)] * len(wanted)

    def failed(
        self, context: RequestContext, request: CreateAclsRequest, error: BrokerError
    ) -> CreateAclsResponse:
        return CreateAclsResponse(throttle_time_ms=0, results=[_result(error) for _ in request.creations])


def _binding(wanted: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            AclResource(wanted.resource_type), wanted.resource_name, AclPattern(wanted.resource_pattern_type)
        ),
        AclEntry(
            wanted.principal,
            wanted.host,
            AclOperation(wanted.operation),
            AclPermission(wanted.permission_type),
        ),
    )


def _result(error: BrokerError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE)
    return AclCreationResult(error_code=error.code, error_message=error.message)
