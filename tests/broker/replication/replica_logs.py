"""Replicas with logs on simulated disks, and leaders that answer fetches as the broker does."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.records import iterate
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import START_MS as NOW_MS
from tests.models.batches import batch
from tests.models.disk import SimDisk
from tests.models.logs import append_as_leader

LAG_MS = 10_000
EVERYONE = (1, 2, 3)
TOPIC_ID = uuid.UUID(int=7)


def replica(broker_id: int, topic: str = "t", index: int = 0, topic_id: uuid.UUID = TOPIC_ID) -> Partition:
    """An empty replica without a role."""
    disk = SimDisk(random.Random(broker_id), lambda: NOW_MS)
    log = create_log(
        disk, LoadRequest(TopicPartition(topic, index), f"/data/{topic}-{index}", LogSettings(), NOW_MS)
    )
    return Partition(topic, index, topic_id, broker_id, log)


def elect(
    leader: int,
    epoch: int,
    replicas: Sequence[Partition],
    isr: Sequence[int] = EVERYONE,
    now_ms: int = NOW_MS,
) -> Partition:
    """Give the replicas a new leader. Returns the leading replica."""
    assignment = LeaderAndIsr(leader, epoch, tuple(isr), epoch, EVERYONE)
    found = None
    for each in replicas:
        if each.local_id == leader:
            each.lead(assignment, now_ms)
            found = each
        else:
            each.follow(assignment)
    assert found is not None
    return found


def append(leader: Partition, *values: bytes) -> int:
    """Append one batch to a leader's log; its first offset."""
    records = memoryview(bytearray(batch(*values)))
    first = append_as_leader(leader.log, records, leader.leader_epoch, now_ms=NOW_MS).first_offset
    leader.advance_high_watermark(NOW_MS, LAG_MS)
    return first


def values(partition: Partition) -> dict[int, bytes | None]:
    """The value of every record in a replica's log, by offset."""
    content = raw(partition)
    return {
        record.offset: None if record.value is None else bytes(record.value)
        for header in split(content)
        for record in iterate(content[header.position : header.end])
        if record.offset >= partition.log.log_start_offset
    }


def raw(partition: Partition) -> bytes:
    """All bytes of a replica's log."""
    log = partition.log
    read = log.read(log.log_start_offset, 1 << 30, upper_offset=log.log_end_offset)
    return b"" if read.slice is None else read.slice.read()


def serve(
    leaders: Sequence[Partition], request: FetchRequest, now_ms: int = NOW_MS, max_bytes: int = 1 << 20
) -> FetchResponse:
    """The leader's response to a follower's fetch."""
    by_key = {(each.topic_id, each.index): each for each in leaders}
    follower = request.replica_state.replica_id
    return FetchResponse(
        throttle_time_ms=0,
        responses=[
            FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    _serve(by_key[topic.topic_id, wanted.partition], wanted, follower, now_ms, max_bytes)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _serve(
    leader: Partition, wanted: FetchPartition, follower: int, now_ms: int, max_bytes: int
) -> PartitionData:
    data = PartitionData(partition_index=wanted.partition, error_code=0, high_watermark=-1, records=b"")
    try:
        leader.record_fetch(follower, wanted, now_ms)
        leader.advance_high_watermark(now_ms, LAG_MS)
        found = leader.read(
            wanted.fetch_offset,
            max_bytes,
            replica_id=follower,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )
    except BrokerError as error:
        data.error_code = error.code
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            data.log_start_offset = leader.log.log_start_offset
        return data
    data.high_watermark = found.high_watermark
    data.log_start_offset = found.log_start_offset
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        data.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
    if found.records is not None:
        data.records = memoryview(bytearray(found.records.read()))
    return data
