"""What a fake broker answers to those who read: Fetch, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from holdfast_log.testing.fakes.fake_partition import FakePartition

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_broker import FakeBroker, FakeChannel

_NOBODY = -1


def is_empty(response: FetchResponse) -> bool:
    """Whether a fetch has nothing to tell yet, so that it waits."""
    return not any(
        row.error_code or row.records or row.preferred_read_replica != _NOBODY
        for topic in response.responses
        for row in topic.partitions
    )


def fetched(
    broker: FakeBroker, request: FetchRequest, error: ErrorCode, channel: FakeChannel
) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0,
        session_id=0,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    _row(broker, request, topic.topic, asked, error, channel) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _row(
    broker: FakeBroker,
    request: FetchRequest,
    topic: str,
    asked: FetchPartition,
    error: ErrorCode,
    channel: FakeChannel,
) -> PartitionData:
    partition = broker.cluster.partition(topic, asked.partition)
    if partition is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
    code = _refusal(broker, partition, topic, asked, channel) or error
    preferred = _NOBODY if code else _preferred(broker, request, partition)
    is_answered = code is ErrorCode.NONE and preferred == _NOBODY
    return PartitionData(
        partition_index=asked.partition,
        error_code=code,
        high_watermark=partition.end_offset,
        last_stable_offset=partition.stable_offset,
        aborted_transactions=(
            partition.aborted_from(asked.fetch_offset) if request.isolation_level else None
        ),
        preferred_read_replica=preferred,
        records=_records(broker, request, partition, asked) if is_answered else b"",
    )


def _refusal(
    broker: FakeBroker, partition: FakePartition, topic: str, asked: FetchPartition, channel: FakeChannel
) -> ErrorCode:
    cluster = broker.cluster
    if partition.leader != broker.node and broker.node not in partition.followers:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= asked.current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not cluster.readers.may_read(channel, (topic, asked.partition)):
        return ErrorCode.OWNERSHIP_FENCED
    if not cluster.ownership.may_read(channel, topic, asked.partition):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not partition.start_offset <= asked.fetch_offset <= partition.end_at(broker.node):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _preferred(broker: FakeBroker, request: FetchRequest, partition: FakePartition) -> int:
    """The follower in the reader's rack to which the leader sends it, without a look at whether it is up."""
    if partition.leader != broker.node or request.rack_id in ("", broker.rack):
        return _NOBODY
    near = [node for node in partition.followers if broker.cluster.brokers[node].rack == request.rack_id]
    return near[0] if near else _NOBODY


def _records(
    broker: FakeBroker, request: FetchRequest, partition: FakePartition, asked: FetchPartition
) -> bytes:
    limit = partition.stable_offset if request.isolation_level else partition.end_offset
    limit = min(limit, partition.end_at(broker.node))
    wanted = [
        batch
        for batch in partition.batches
        for header in split(batch)
        if header.last_offset >= asked.fetch_offset and header.base_offset < limit
    ]
    records = b""
    while wanted and (not records or len(records) < asked.partition_max_bytes):
        records += wanted.pop(0)
    return records


def listed(broker: FakeBroker, request: ListOffsetsRequest, error: ErrorCode) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            partition = broker.cluster.partition(topic.name, asked.partition_index)
            code, offset, timestamp = error, -1, -1
            if partition is None or partition.leader != broker.node:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif asked.timestamp == -1:
                offset = partition.stable_offset if request.isolation_level else partition.end_offset
            elif asked.timestamp == -2:
                offset = partition.start_offset
            else:
                late = [r for r in partition.records() if r.timestamp >= asked.timestamp]
                if late:
                    offset, timestamp = late[0].offset, late[0].timestamp
            rows.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=code,
                    offset=offset,
                    timestamp=timestamp,
                )
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


def ends_of_epochs(
    broker: FakeBroker, request: OffsetForLeaderEpochRequest, error: ErrorCode
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            partition = broker.cluster.partition(topic.topic, asked.partition)
            code, epoch, end = error, -1, -1
            if partition is None or partition.leader != broker.node:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif asked.current_leader_epoch not in (-1, partition.leader_epoch):
                code = ErrorCode.FENCED_LEADER_EPOCH
            elif code is ErrorCode.NONE:
                epoch, end = partition.end_of_epoch(asked.leader_epoch)
            rows.append(
                EpochEndOffset(partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end)
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)
