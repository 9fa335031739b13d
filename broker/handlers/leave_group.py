"""LeaveGroup (key 13): members leave, and the group rebalances without waiting for their sessions to end.

Versions: from 3 on a request may name several members, static ones by their instance id alone (KIP-345);
before, the member's error is that of the whole response. From 5 on members may give a reason, which the
broker logs (KIP-800).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.reasons import note_reason
from holdfast_log.broker.requests.handler import Handler, RequestContext, RowPaths
from holdfast_log.coordinator.groups.effects import LeaveAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3
_LOGGED_MAX = 20
"""Maximum number of reasons that are logged of one request: each line takes longer than the rest of it."""


@dataclass(eq=False)
class LeaveGroupHandler(Handler[LeaveGroupRequest, LeaveGroupResponse]):
    request = LeaveGroupRequest
    parts = (RowPaths(("members",), ("members",)),)
    whole_rows_max = 100
    groups: GroupService

    def divisible_steps(
        self, context: RequestContext, request: LeaveGroupRequest
    ) -> Generator[None, None, bool]:
        """All members leave at once, so that their group rebalances once. The answer is made in turns."""
        yield from ()
        return False

    def handle(self, context: RequestContext, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        if context.version >= _FIRST_VERSION_WITH_SEVERAL_MEMBERS:
            members = [(member.member_id, member.group_instance_id) for member in request.members]
            for member in request.members[:_LOGGED_MAX]:
                who = member.member_id or member.group_instance_id or ""
                note_reason(request.group_id, who, "leaves", member.reason)
        else:
            members = [(request.member_id, None)]
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.leave(waiting, request.group_id, members, now_ms),
        ).addCallback(lambda answer: _response(context, answer))

    def failed(
        self, context: RequestContext, request: LeaveGroupRequest, error: BrokerError
    ) -> LeaveGroupResponse:
        return LeaveGroupResponse(throttle_time_ms=0, error_code=error.code, members=[])


def _response(context: RequestContext, answer: LeaveAnswer) -> LeaveGroupResponse:
    if context.version < _FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        (left,) = answer.members
        return LeaveGroupResponse(throttle_time_ms=0, error_code=left.error)
    return LeaveGroupResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(
                member_id=left.member_id, group_instance_id=left.instance_id, error_code=left.error
            )
            for left in answer.members
        ],
    )
