"""Heartbeat (key 12): keeps a member's session, and tells the member to rejoin (REBALANCE_IN_PROGRESS).

Versions: from 3 on members may be static (KIP-345).

While the group is being loaded the response has no error, as in Kafka: sessions start again when the group is
loaded, and clients treat every error as a lasting one.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.callers import caller_of
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@dataclass(eq=False)
class HeartbeatHandler(Handler[HeartbeatRequest, HeartbeatResponse]):
    request = HeartbeatRequest
    groups: GroupService

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.classic.heartbeat(
                waiting, request.group_id, caller_of(request), now_ms
            ),
        ).addCallback(lambda answer: HeartbeatResponse(throttle_time_ms=0, error_code=answer.error))

    def failed(
        self, context: RequestContext, request: HeartbeatRequest, error: BrokerError
    ) -> HeartbeatResponse:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE
        return HeartbeatResponse(throttle_time_ms=0, error_code=code)
