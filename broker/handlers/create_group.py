"""CreateGroup (key 30010, client rewrite): make a group whose partitions the server assigns.

Any broker accepts the request and forwards it to the group's coordinator. A repeated request changes nothing,
so every consumer of a group may send it when it starts; topics that the group lacks are added.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.forwarding import Forwarding
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.group_membership import CreateGroupRequest, CreateGroupResponse


@dataclass(eq=False)
class CreateGroupHandler(Handler[CreateGroupRequest, CreateGroupResponse]):
    request = CreateGroupRequest
    groups: GroupService
    forwarding: Forwarding

    def handle(self, context: RequestContext, request: CreateGroupRequest) -> Deferred[CreateGroupResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.consumer_group)
        for topic in request.topics:
            context.check(AclOperation.READ, AclResource.TOPIC, topic)
        if request.forwarded:
            return self._create(request)

        def found(coordinator: int) -> Deferred[CreateGroupResponse]:
            if coordinator == self.forwarding.local_id:
                return self._create(request)
            return self.forwarding.send(coordinator, dataclasses.replace(request, forwarded=True))

        return self.forwarding.find(request.consumer_group).addCallback(found)

    def _create(self, request: CreateGroupRequest) -> Deferred[CreateGroupResponse]:
        return self.groups.ask(
            request.consumer_group,
            lambda shard, waiting, now_ms: shard.managed.create_group(
                waiting,
                request.consumer_group,
                session_timeout_ms=request.session_timeout,
                topics=request.topics,
                now_ms=now_ms,
                ephemeral=request.ephemeral,
                assignment_strategy=request.assignment_strategy,
                single_reader=request.single_reader,
            ),
        ).addCallback(
            lambda answer: CreateGroupResponse(consumer_group=request.consumer_group, error_code=answer.error)
        )

    def failed(
        self, context: RequestContext, request: CreateGroupRequest, error: BrokerError
    ) -> CreateGroupResponse:
        return CreateGroupResponse(consumer_group=request.consumer_group, error_code=error.code)
