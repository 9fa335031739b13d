"""Looking up offsets, deleting records, and describing idempotent producers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clients.admin.asking import Asking, raise_first
from clients.admin.topics import by_leader
from clients.fetching.offsets import OffsetAndTimestamp, look_up_offsets
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An idempotent producer that a partition remembers. `last_timestamp` is in ms since the epoch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int


def list_offsets(
    asking: Asking, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offsets of EARLIEST, LATEST, MAX_TIMESTAMP, or of times in ms since the epoch."""
    return look_up_offsets(asking.connection, times, asking.timeout_ms)


def delete_records(asking: Asking, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records before these offsets; -1 deletes all records."""
    found: dict[TopicPartition, int] = {}
    for node, led in by_leader(asking, before).items():
        topics: dict[str, DeleteRecordsTopic] = {}
        for partition in led:
            row = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[]))
            row.partitions.append(
                DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
            )
        request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=asking.timeout_ms)
        response = asking.ask(node, request)
        rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
        raise_first((f"{name}-{row.partition_index}", row.error_code, None) for name, row in rows)
        for name, deleted in rows:
            found[TopicPartition(name, deleted.partition_index)] = deleted.low_watermark
    return found


def describe_producers(
    asking: Asking, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerDescription]]:
    """The idempotent producers that each partition's leader remembers."""
    found: dict[TopicPartition, list[ProducerDescription]] = {}
    for node, led in by_leader(asking, partitions).items():
        topics: dict[str, TopicRequest] = {}
        for name, number in led:
            row = topics.setdefault(name, TopicRequest(name=name, partition_indexes=[]))
            row.partition_indexes.append(number)
        response = asking.ask(node, DescribeProducersRequest(topics=list(topics.values())))
        rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
        raise_first(
            (f"{name}-{row.partition_index}", row.error_code, row.error_message) for name, row in rows
        )
        for name, described in rows:
            found[TopicPartition(name, described.partition_index)] = [
                ProducerDescription(
                    each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp
                )
                for each in described.active_producers
            ]
    return found
