"""DeleteGroups (key 42): delete groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths, refusal
from holdfast_log.coordinator.groups.effects import DeleteAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@dataclass(eq=False)
class DeleteGroupsHandler(Handler[DeleteGroupsRequest, DeleteGroupsResponse]):
    request = DeleteGroupsRequest
    parts = (RowPaths(("groups_names",), ("results",)),)
    elements_max = ANY_ELEMENTS
    groups: GroupService

    def handle(self, context: RequestContext, request: DeleteGroupsRequest) -> Deferred[DeleteGroupsResponse]:
        names = list(dict.fromkeys(request.groups_names))
        return delete_groups(context, self.groups, names).addCallback(
            lambda results: DeleteGroupsResponse(throttle_time_ms=0, results=results)
        )

    def failed(
        self, context: RequestContext, request: DeleteGroupsRequest, error: BrokerError
    ) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                DeletableGroupResult(group_id=name, error_code=error.code) for name in request.groups_names
            ],
        )


def delete_groups(
    context: RequestContext, groups: GroupService, names: list[str]
) -> Deferred[list[DeletableGroupResult]]:
    """Delete each group at its shard, if the client may. Returns the results in the order of `names`."""
    return gatherResults([_delete(context, groups, name) for name in names])


def _delete(context: RequestContext, groups: GroupService, name: str) -> Deferred[DeletableGroupResult]:
    denied = context.denial(AclOperation.DELETE, AclResource.GROUP, name)
    if denied is not None:
        return succeed(DeletableGroupResult(group_id=name, error_code=denied.code))

    def deleted(answer: DeleteAnswer) -> DeletableGroupResult:
        ((_, error),) = answer.groups
        return DeletableGroupResult(group_id=name, error_code=error)

    def failed(failure: Failure) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=name, error_code=refusal(failure).code)

    return groups.ask(name, lambda shard, waiting, _: shard.delete_groups(waiting, [name])).addCallbacks(
        deleted, failed
    )
