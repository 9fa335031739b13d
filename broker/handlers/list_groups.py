"""ListGroups (key 16): the groups that this broker coordinates; tools ask every broker.

Versions: from 4 on filtered by state (KIP-518), from 5 on by type. While groups are being loaded the response
has COORDINATOR_LOAD_IN_PROGRESS and the groups loaded so far. A client that may not describe the cluster sees
the groups that it may describe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.effects import ListAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@dataclass(eq=False)
class ListGroupsHandler(Handler[ListGroupsRequest, ListGroupsResponse]):
    request = ListGroupsRequest
    groups: GroupService
    answers: LongAnswers

    def handle(self, context: RequestContext, request: ListGroupsRequest) -> Deferred[ListGroupsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        answers, error = await self.groups.ask_all(
            lambda shard, waiting, _: shard.list_groups(waiting, request.states_filter, request.types_filter)
        )
        is_shown = None
        if not context.may(AclOperation.DESCRIBE, AclResource.CLUSTER, is_noted=False):
            describe, kind = AclOperation.DESCRIBE, AclResource.GROUP

            def is_shown(row: ListedGroup) -> bool:
                return context.may(describe, kind, row.group_id, is_noted=False)

        groups = await self.answers.listed(context, ListGroupsResponse, _rows(answers), is_shown=is_shown)
        return ListGroupsResponse(throttle_time_ms=0, error_code=error, groups=groups)

    def failed(
        self, context: RequestContext, request: ListGroupsRequest, error: BrokerError
    ) -> ListGroupsResponse:
        return ListGroupsResponse(throttle_time_ms=0, error_code=error.code, groups=[])


def _rows(answers: list[ListAnswer]) -> Iterator[ListedGroup]:
    for answer in answers:
        for group in answer.groups:
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
