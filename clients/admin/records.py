"""Looking up offsets, deleting records, and describing producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.leaders import ask_leaders
from holdfast_log.clients.fetching.offsets import OffsetAndTimestamp, look_up_offsets
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that a partition remembers. `last_timestamp` is in ms since the epoch.

    `coordinator_epoch` is that of the last marker of its transactions, -1 if there was none.
    `transaction_start_offset` is where its open transaction begins, None if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = -1
    transaction_start_offset: int | None = None


def list_offsets(
    asking: Asking, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offsets of EARLIEST, LATEST, MAX_TIMESTAMP, or of times in ms since the epoch."""
    return look_up_offsets(asking.connection, times, asking.timeout_ms)


def delete_records(asking: Asking, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records before these offsets; -1 deletes all records."""

    def ask(
        node: int, led: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, int, str | None, int]]:
        topics: dict[str, DeleteRecordsTopic] = {}
        for at in led:
            topic = topics.setdefault(at.topic, DeleteRecordsTopic(name=at.topic, partitions=[]))
            topic.partitions.append(DeleteRecordsPartition(partition_index=at.partition, offset=before[at]))
        request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=asking.timeout_ms)
        for answered in asking.ask(node, request).topics:
            for row in answered.partitions:
                at = TopicPartition(answered.name, row.partition_index)
                yield at, row.error_code, None, row.low_watermark

    return ask_leaders(asking, before, ask)


def describe_producers(
    asking: Asking, partitions: Iterable[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, list[ProducerDescription]]:
    """The producers that each partition's leader remembers, or those of a broker's replicas."""

    def ask(
        node: int, led: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, int, str | None, list[ProducerDescription]]]:
        topics: dict[str, TopicRequest] = {}
        for name, number in led:
            topic = topics.setdefault(name, TopicRequest(name=name, partition_indexes=[]))
            topic.partition_indexes.append(number)
        for answered in asking.ask(node, DescribeProducersRequest(topics=list(topics.values()))).topics:
            for row in answered.partitions:
                at = TopicPartition(answered.name, row.partition_index)
                yield at, row.error_code, row.error_message, _producers(row)

    if broker is None:
        return ask_leaders(asking, partitions, ask)
    asking.know_nodes([broker])
    rows = list(ask(broker, list(partitions)))
    raise_first((f"{at} on broker {broker}", code, message) for at, code, message, _ in rows)
    return {at: producers for at, _, _, producers in rows}


def _producers(row: PartitionResponse) -> list[ProducerDescription]:
    return [
        ProducerDescription(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in row.active_producers
    ]
