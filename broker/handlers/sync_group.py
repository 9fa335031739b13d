"""SyncGroup (key 14): the leader of a generation sends the assignment, and every member gets its part.

The response waits for the leader's request, and until the assignment is committed like any record.

Versions: from 3 on members may be static (KIP-345), from 5 on the request names the protocol, which has to be
the group's (KIP-559).

While the group is being loaded the response is REBALANCE_IN_PROGRESS, as in Kafka: the rebalance was lost
with the former coordinator, so members rejoin. Kafka's own consumer raises COORDINATOR_LOAD_IN_PROGRESS here
as a program error.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.callers import caller_of
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.classic_rebalance import Sync
from holdfast_log.coordinator.groups.effects import SyncAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@dataclass(eq=False)
class SyncGroupHandler(Handler[SyncGroupRequest, SyncGroupResponse]):
    request = SyncGroupRequest
    groups: GroupService

    def handle(self, context: RequestContext, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.classic.sync(
                request.group_id, _sync(waiting, request), now_ms
            ),
        ).addCallback(_response)

    def failed(
        self, context: RequestContext, request: SyncGroupRequest, error: BrokerError
    ) -> SyncGroupResponse:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return _response(SyncAnswer(code))


def _sync(waiting: RequestToken, request: SyncGroupRequest) -> Sync:
    return Sync(
        waiting,
        caller_of(request),
        request.protocol_type,
        request.protocol_name,
        {each.member_id: each.assignment for each in request.assignments},
    )


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time_ms=0,
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
