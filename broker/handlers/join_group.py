"""JoinGroup (key 11): become a member of a group, or join its next generation.

The response waits until all members have joined, or the rebalance timeout has passed.

Versions: before 1 the session timeout also bounds the rebalance. From 4 on a member without an id gets one
first, and has to join again with it (KIP-394); from 5 on members may be static (KIP-345); from 8 on they may
give a reason, which the broker logs (KIP-800); from 9 on a static leader that rejoins learns that the
assignment is unchanged (KIP-814).
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.reasons import note_reason
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.classic_join import Join
from holdfast_log.coordinator.groups.effects import JoinAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_VERSION_THAT_ASKS_MEMBER_ID = 4
_FIRST_VERSION_WITH_PROTOCOL_TYPE = 7
_FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


@dataclass(eq=False)
class JoinGroupHandler(Handler[JoinGroupRequest, JoinGroupResponse]):
    request = JoinGroupRequest
    groups: GroupService

    def handle(self, context: RequestContext, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        note_reason(request.group_id, request.member_id, "joins", request.reason)
        has_rebalance_timeout = context.version >= _FIRST_VERSION_WITH_REBALANCE_TIMEOUT
        rebalance_timeout_ms = (
            request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        )
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.classic.join(
                request.group_id,
                Join(
                    waiting,
                    request.member_id,
                    request.group_instance_id,
                    context.client_id,
                    context.client_host,
                    request.session_timeout_ms,
                    rebalance_timeout_ms,
                    request.protocol_type,
                    protocols,
                    asks_member_id=context.version >= _FIRST_VERSION_THAT_ASKS_MEMBER_ID,
                    can_skip_assignment=context.version >= _FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
                ),
                now_ms,
            ),
        ).addCallback(lambda answer: _response(context, answer))

    def failed(
        self, context: RequestContext, request: JoinGroupRequest, error: BrokerError
    ) -> JoinGroupResponse:
        return _response(context, JoinAnswer(error.code, request.member_id))


def _response(context: RequestContext, answer: JoinAnswer) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and context.version < _FIRST_VERSION_WITH_PROTOCOL_TYPE:
        protocol_name = ""
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment and context.version >= _FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )
