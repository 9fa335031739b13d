"""DescribeTopicPartitions (key 75): the partitions of topics, page by page (KIP-966).

A request without topics means all of them. Topics come in the order of their names. A page has at most
`max.request.partition.size.limit` partitions, or fewer if the request says so; the response then names the
partition with which the next page begins. A topic that does not exist has an error and no partitions, and is
never created. A client sees the topics that it may describe; another one that it names is refused, whether it
exists or not. Holdfast elects leaders from the in-sync set, so no other replica is an eligible leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import (
    ZERO_ID,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.operations import authorized_operations
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS, is_legal_name
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_topic_partitions import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PageCursor,
)

_PARTITION_BYTES = 40
"""Size of a partition without its replicas."""
_REPLICA_BYTES = 8
_PARTITIONS_PER_STEP = 64
"""Partitions that are made without a look at how long the turn has been."""


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class PageSettings:
    """The maximum number of partitions of one page."""

    partitions_max: Annotated[int, "max.request.partition.size.limit"]


@dataclass(eq=False)
class DescribeTopicPartitionsHandler(
    Handler[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse]
):
    request = DescribeTopicPartitionsRequest
    elements_max: ClassVar[int] = 20_000
    """The names are put in order at once; the rows are made in turns."""
    metadata: MetadataCache
    identity: BrokerIdentity
    first_update: FirstUpdate
    settings: PageSettings
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse | Deferred[DescribeTopicPartitionsResponse]:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            text = f"the cursor names partition {cursor.partition_index}: partitions are counted from 0"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        return self.first_update.then(lambda: ensureDeferred(self._page(context, request)))

    async def _page(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        left = max(1, min(request.response_partition_limit, self.settings.partitions_max))
        next_cursor: PageCursor | None = None
        with self.answers.begin(context, DescribeTopicPartitionsResponse) as answer:
            rows = answer.rows(DescribedTopic)
            for name, first in self._wanted(request):
                is_named = bool(request.topics)
                if not context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_noted=is_named):
                    await answer.turn(0)
                    if is_named:
                        rows.add(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                    continue
                topic = self.metadata.topics.get(name)
                price = len(name) + (0 if topic is None else _price(topic, first, left))
                if left == 0 or not answer.reserve(price):
                    next_cursor = PageCursor(topic_name=name, partition_index=first)
                    break
                await answer.turn(len(name))
                if topic is None:
                    # While the rows before it were made it may have been deleted; one that was asked for by
                    # its name is told to be missing.
                    if request.topics:
                        rows.add(_missing(name))
                    continue
                made, after = await self._topic(answer, topic, first, left)
                rows.add(made)
                left -= min(left, max(0, len(topic.partitions) - first))
                if after is not None:
                    next_cursor = PageCursor(topic_name=name, partition_index=after)
                    break
            return DescribeTopicPartitionsResponse(
                throttle_time_ms=0, topics=rows.finish(), next_cursor=next_cursor
            )

    def _wanted(self, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
        """The names of the page's topics, in order, each with its first partition on the page."""
        names = {topic.name for topic in request.topics} if request.topics else self.metadata.topics
        cursor = request.cursor
        for name in sorted(names):
            if cursor is None or name > cursor.topic_name:
                yield name, 0
            elif name == cursor.topic_name:
                yield name, cursor.partition_index

    async def _topic(
        self, answer: LongAnswer, topic: TopicMetadata, first: int, limit: int
    ) -> tuple[DescribedTopic, int | None]:
        """The partitions of a topic from `first` on, at most `limit`; and the one after them, if any."""
        listener = answer.context.listener or self.identity.inter_broker_listener
        indexes = sorted(index for index in topic.partitions if index >= first)
        rows = answer.rows(DescribedPartition)
        for number, index in enumerate(islice(indexes, limit)):
            if number % _PARTITIONS_PER_STEP == 0:
                await answer.turn(_price(topic, first + number, _PARTITIONS_PER_STEP))
            partition = topic.partitions.get(index)
            if partition is not None:
                rows.add(self._partition(index, partition, listener))
        described = DescribedTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=rows.finish(),
            topic_authorized_operations=authorized_operations(answer.context, AclResource.TOPIC, topic.name),
        )
        return described, indexes[limit] if len(indexes) > limit else None

    def _partition(self, index: int, partition: PartitionMetadata, listener: str) -> DescribedPartition:
        error, leader = self.metadata.leader_on(partition, listener)
        return DescribedPartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(partition.offline_replicas),
        )

    def failed(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest, error: BrokerError
    ) -> DescribeTopicPartitionsResponse:
        named = dict.fromkeys(topic.name for topic in request.topics)
        if not named and request.cursor is not None:
            named = {request.cursor.topic_name: None}
        return DescribeTopicPartitionsResponse(
            throttle_time_ms=0, topics=[_missing(name, error.code) for name in named]
        )


def _missing(name: str, error: ErrorCode | None = None) -> DescribedTopic:
    if error is None:
        is_legal = is_legal_name(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribedTopic(error_code=error, name=name, topic_id=ZERO_ID, is_internal=False, partitions=[])


def _price(topic: TopicMetadata, first: int, limit: int) -> int:
    """The size of at most `limit` partitions from `first` on, by the replicas of one of them."""
    one = next(iter(topic.partitions.values()), None)
    replicas = 0 if one is None else len(one.replicas)
    count = max(0, min(limit, len(topic.partitions) - first))
    return count * (_PARTITION_BYTES + _REPLICA_BYTES * replicas)
