"""DeleteGroup (key 30011, client rewrite): delete groups that have no members and are not ephemeral."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.handlers.delete_groups import delete_groups
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.parts import PART_PRICE, PART_ROWS
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.delete_groups import DeletableGroupResult
from holdfast_log.protocol.messages.group_membership import DeleteGroupRequest, DeleteGroupResponse


@dataclass(eq=False)
class DeleteGroupHandler(Handler[DeleteGroupRequest, DeleteGroupResponse]):
    request = DeleteGroupRequest
    groups: GroupService
    answers: LongAnswers

    def handle(self, context: RequestContext, request: DeleteGroupRequest) -> Deferred[DeleteGroupResponse]:
        names = list(dict.fromkeys(request.consumer_group))
        return ensureDeferred(self._delete(context, names))

    async def _delete(self, context: RequestContext, names: list[str]) -> DeleteGroupResponse:
        """Delete the groups, a few of them in each turn of the reactor."""
        results: list[DeletableGroupResult] = []
        with self.answers.begin(context, DeleteGroupResponse) as answer:
            for first in range(0, len(names), PART_ROWS):
                asked = names[first : first + PART_ROWS]
                await answer.turn(PART_PRICE * len(asked) // PART_ROWS)
                waiting = delete_groups(context, self.groups, asked)
                part: list[DeletableGroupResult] = await answer.outcome(waiting)
                results += part
        return _response(results)

    def failed(
        self, context: RequestContext, request: DeleteGroupRequest, error: BrokerError
    ) -> DeleteGroupResponse:
        return DeleteGroupResponse(deleted_consumer_groups=[], error_code=error.code)


def _response(results: list[DeletableGroupResult]) -> DeleteGroupResponse:
    errors = [result.error_code for result in results if result.error_code != ErrorCode.NONE]
    return DeleteGroupResponse(
        deleted_consumer_groups=[
            result.group_id for result in results if result.error_code == ErrorCode.NONE
        ],
        error_code=errors[0] if errors else ErrorCode.NONE,
    )
