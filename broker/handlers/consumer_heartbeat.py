"""ConsumerHeartbeat (key 30014, the client rewrite's Heartbeat): keeps a
consumer's session. Any error code tells the consumer to register again.

While the group is being loaded the response has no error, as for Heartbeat: nothing has changed yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
)


@dataclass(eq=False)
class ConsumerHeartbeatHandler(Handler[ConsumerHeartbeatRequest, ConsumerHeartbeatResponse]):
    request = ConsumerHeartbeatRequest
    groups: GroupService

    def handle(
        self, context: RequestContext, request: ConsumerHeartbeatRequest
    ) -> Deferred[ConsumerHeartbeatResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.consumer_group)
        return self.groups.ask(
            request.consumer_group,
            lambda shard, waiting, now_ms: shard.managed.heartbeat(
                waiting,
                request.consumer_group,
                consumer_id=request.consumer_id,
                generation=request.controller_generation,
                now_ms=now_ms,
                session_timeout_ms=request.session_timeout,
                rebalance_timeout_ms=request.rebalance_timeout,
            ),
        ).addCallback(
            lambda answer: ConsumerHeartbeatResponse(
                controller_generation=answer.controller_generation, error_code=answer.error
            )
        )

    def failed(
        self, context: RequestContext, request: ConsumerHeartbeatRequest, error: BrokerError
    ) -> ConsumerHeartbeatResponse:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ConsumerHeartbeatResponse(
                controller_generation=request.controller_generation, error_code=ErrorCode.NONE
            )
        return ConsumerHeartbeatResponse(controller_generation=-1, error_code=error.code)
