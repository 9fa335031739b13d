"""DeleteAcls (key 31): delete the entries of access control lists that filters select (KIP-140, KIP-290).

Every broker carries it out. They have no effect on this broker any more when it answers, on the others once
ZooKeeper has notified them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.security.administration import AclAdministration, DeletedAcl
from holdfast_log.broker.security.filters import checked_filter
from holdfast_log.protocol.acl_bindings import AclFilter
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

_ENTRY_BYTES = 200


@dataclass(eq=False)
class DeleteAclsHandler(Handler[DeleteAclsRequest, DeleteAclsResponse]):
    request = DeleteAclsRequest
    acls: AclAdministration
    answers: LongAnswers
    rights: ClusterRights

    def handle(self, context: RequestContext, request: DeleteAclsRequest) -> Deferred[DeleteAclsResponse]:
        self.rights.check(context, "alter access control lists")
        return ensureDeferred(self._answer(context, [_filter(each) for each in request.filters]))

    async def _answer(self, context: RequestContext, filters: Sequence[AclFilter]) -> DeleteAclsResponse:
        with self.answers.begin(context, DeleteAclsResponse) as answer:

            def reserve(entries: int) -> None:
                if not answer.reserve(entries * _ENTRY_BYTES):
                    raise answer.too_long

            deleted = await self.acls.delete(filters, answer, reserve)
            rows = answer.rows(DeleteAclsFilterResult)
            for found in deleted:
                matching = await _matching(answer, found)
                rows.add(DeleteAclsFilterResult(error_code=ErrorCode.NONE, matching_acls=matching))
            return DeleteAclsResponse(throttle_time_ms=0, filter_results=rows.finish())

    def failed(
        self, context: RequestContext, request: DeleteAclsRequest, error: BrokerError
    ) -> DeleteAclsResponse:
        results = [
            DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])
            for _ in request.filters
        ]
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _filter(wanted: DeleteAclsFilter) -> AclFilter:
    return checked_filter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


async def _matching(answer: LongAnswer, found: Sequence[DeletedAcl]) -> list[DeleteAclsMatchingAcl]:
    rows = answer.rows(DeleteAclsMatchingAcl)
    for each in found:
        await answer.turn(_ENTRY_BYTES)
        if each.error is None:
            log_change(answer.context, "Deleted the access control entry %s", shown(str(each.binding)))
        rows.add(_row(each))
    return rows.finish()


def _row(deleted: DeletedAcl) -> DeleteAclsMatchingAcl:
    pattern, entry, error = deleted.binding.pattern, deleted.binding.entry, deleted.error
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
