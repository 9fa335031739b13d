"""ConsumerGroupHeartbeat (key 68): join a consumer group, stay in it, and leave it (KIP-848).

It is answered at once: what a member may read comes with one of its next answers. Versions: from 1 on members
choose their ids (KIP-1082) and may subscribe by a regular expression, which the broker matches. The API is
missing where `group.coordinator.rebalance.protocols` lacks `consumer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.consumer_assignment import IdPartition, Partitions
from holdfast_log.coordinator.groups.consumer_group import ConsumerHeartbeat
from holdfast_log.coordinator.groups.effects import ConsumerHeartbeatAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

_FIRST_VERSION_WITH_OWN_IDS = 1


@dataclass(eq=False)
class ConsumerGroupHeartbeatHandler(Handler[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]):
    request = ConsumerGroupHeartbeatRequest
    protocol = "consumer"
    groups: GroupService

    def handle(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            context.check(AclOperation.DESCRIBE, AclResource.TOPIC, name)
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.consumers.heartbeat(
                request.group_id, _sent(context, request, waiting), now_ms
            ),
        ).addCallback(_response)

    def failed(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest, error: BrokerError
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))


def _sent(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, waiting: RequestToken
) -> ConsumerHeartbeat:
    def may_see(topic: str) -> bool:
        return context.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_noted=False)

    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        waiting,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        _owned(request.topic_partitions),
        context.client_id,
        context.client_host,
        may_see,
        names_itself=context.version >= _FIRST_VERSION_WITH_OWN_IDS,
    )


def _owned(topics: Iterable[HeartbeatTopicPartitions] | None) -> Partitions | None:
    if topics is None:
        return None
    return frozenset(IdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)


def _response(answer: ConsumerHeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        topics: dict[UUID, list[int]] = {}
        for topic_id, number in answer.assignment:
            topics.setdefault(topic_id, []).append(number)
        rows = [HeartbeatTopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]
        assignment = HeartbeatAssignment(topic_partitions=rows)
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=assignment,
    )
