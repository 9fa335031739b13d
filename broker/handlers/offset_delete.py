"""OffsetDelete (key 47): delete committed offsets of a group (KIP-496).

In an empty group any offset may be deleted; in a group with consumers, those of topics that none of them
reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
from holdfast_log.coordinator.groups.effects import PartitionErrorsAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(eq=False)
class OffsetDeleteHandler(Handler[OffsetDeleteRequest, OffsetDeleteResponse]):
    request = OffsetDeleteRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    elements_max = ANY_ELEMENTS
    groups: GroupService
    metadata: MetadataCache

    def handle(self, context: RequestContext, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
        context.check(AclOperation.DELETE, AclResource.GROUP, request.group_id)
        denied = {
            topic.name
            for topic in request.topics
            if not context.may(AclOperation.READ, AclResource.TOPIC, topic.name)
        }
        partitions = [
            TopicPartition(topic.name, wanted.partition_index)
            for topic in request.topics
            if topic.name not in denied
            for wanted in topic.partitions
            if self.metadata.partition(topic.name, wanted.partition_index) is not None
        ]
        if denied and not partitions:
            return succeed(_response(request, PartitionErrorsAnswer(ErrorCode.NONE), denied))
        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, _: shard.delete_offsets(waiting, request.group_id, partitions),
        ).addCallback(lambda answer: _response(request, answer, denied))

    def failed(
        self, context: RequestContext, request: OffsetDeleteRequest, error: BrokerError
    ) -> OffsetDeleteResponse:
        return _response(request, PartitionErrorsAnswer(error.code))


def _response(
    request: OffsetDeleteRequest, answer: PartitionErrorsAnswer, denied: Collection[str] = ()
) -> OffsetDeleteResponse:
    """`denied` are topics that the client may not read."""
    if answer.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=answer.error, throttle_time_ms=0, topics=[])
    errors = dict(answer.partitions)

    def missing(topic: str) -> ErrorCode:
        is_denied = topic in denied
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        throttle_time_ms=0,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=wanted.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, wanted.partition_index), missing(topic.name)
                        ),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
