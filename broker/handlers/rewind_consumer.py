"""RewindConsumer (key 30015, client rewrite): have a group read some partitions from other offsets.

The response waits until the owners have stopped and the offsets are committed. Only the partition's leader
knows whether an offset is still in the log: the owner finds out when it fetches.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.effects import RewindAnswer, RewoundPartition
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.group_membership import (
    ActualOffset,
    RewindConsumerRequest,
    RewindConsumerResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(eq=False)
class RewindConsumerHandler(Handler[RewindConsumerRequest, RewindConsumerResponse]):
    request = RewindConsumerRequest
    groups: GroupService

    def handle(
        self, context: RequestContext, request: RewindConsumerRequest
    ) -> Deferred[RewindConsumerResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.consumer_group)
        for topic in dict.fromkeys(new.topic for new in request.new_offsets):
            context.check(AclOperation.READ, AclResource.TOPIC, topic)
        new_offsets = [(TopicPartition(new.topic, new.partition), new.offset) for new in request.new_offsets]
        return self.groups.ask(
            request.consumer_group,
            lambda shard, waiting, now_ms: shard.managed.rewind_consumer(
                waiting,
                request.consumer_group,
                new_offsets,
                now_ms=now_ms,
                consumer_id=request.consumer_id,
                generation=request.controller_generation,
            ),
        ).addCallback(lambda answer: _response(request, answer))

    def failed(
        self, context: RequestContext, request: RewindConsumerRequest, error: BrokerError
    ) -> RewindConsumerResponse:
        refused = [
            RewoundPartition(TopicPartition(new.topic, new.partition), -1, error.code)
            for new in request.new_offsets
        ]
        return _response(request, RewindAnswer(-1, refused))


def _response(request: RewindConsumerRequest, answer: RewindAnswer) -> RewindConsumerResponse:
    return RewindConsumerResponse(
        consumer_group=request.consumer_group,
        actual_offsets=[
            ActualOffset(
                topic=rewound.partition.topic,
                partition=rewound.partition.partition,
                offset=rewound.offset,
                error_code=rewound.error,
            )
            for rewound in answer.actual_offsets
        ],
        controller_generation=answer.generation,
    )
