"""Reads exactly one range of offsets, in a Spark task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.pipeline.arrow import BatchCollector
from holdfast_log.pipeline.cluster import open_consumer
from holdfast_log.pipeline.offsets import DataLossError, OffsetRange, PartitionsGoneError
from holdfast_log.pipeline.options import ReadOptions
from holdfast_log.protocol.errors import BrokerError, OffsetOutOfRangeError
from holdfast_log.protocol.topic_partition import TopicPartition

_POLL_MS = 500
_EXISTS_S = 5.0
"""Time in seconds without a record after which a task asks whether its topic still exists."""


class ReadTimeoutError(Exception):
    """No record arrived for kafkaConsumer.pollTimeoutMs, and the range was not read to its end."""


class BatchConsumer(Protocol):
    """The methods of a consumer that reading a range needs."""

    def poll_encoded(self, timeout_ms: int = 0) -> Sequence[EncodedBatch]:
        """Batches that contain the position or come after it; moves the position behind them."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to read."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at this offset."""
        ...

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        ...

    def topics(self, timeout_ms: int | None = None) -> Sequence[str]:
        """The names of all topics."""
        ...


def read_range(wanted: OffsetRange, options: ReadOptions, fence: OwnerFence | None = None) -> Iterator[Any]:
    """The records of a range as Arrow batches. Raises `DataLossError` and `ReadTimeoutError`.

    With a `fence`, the records are read for the owner of the partition: raises OwnershipFencedError once
    another run owns it.
    """
    with open_consumer(options.client, fence) as consumer:
        consumer.add_topic(*wanted.partition)
        yield from batches(consumer, wanted, options, time.monotonic)


def batches(
    consumer: BatchConsumer, wanted: OffsetRange, options: ReadOptions, clock: Callable[[], float]
) -> Iterator[Any]:
    """`read_range` with a consumer to which the partition was added, and a clock in seconds."""
    collector = BatchCollector(wanted.partition, options.include_headers)
    consumer.seek(wanted.partition, wanted.start)
    position, progress_at = wanted.start, clock()
    ask_at = progress_at + _EXISTS_S
    while position < wanted.end:
        for fetched in _poll(consumer, wanted, options):
            yield from collector.add(fetched, wanted.start, wanted.end)
        # Progress is judged by the position, not by the last record: offsets may be missing at the end.
        now, position, before = clock(), consumer.position(wanted.partition), position
        if position > before:
            progress_at, ask_at = now, now + _EXISTS_S
        elif now > ask_at and _is_deleted(consumer, wanted.partition.topic):
            if options.fail_on_data_loss:
                raise PartitionsGoneError([wanted.partition])
            break
        elif now - progress_at > options.poll_timeout_ms / 1000:
            raise ReadTimeoutError(
                f"{wanted}: no record arrived at offset {position} for {options.poll_timeout_ms} ms "
                "(kafkaConsumer.pollTimeoutMs)"
            )
    if len(collector):
        yield collector.take()


def _is_deleted(consumer: BatchConsumer, topic: str) -> bool:
    """Whether a broker says so; False if none answers."""
    with suppress(BrokerError, ClientError):
        return topic not in consumer.topics(_POLL_MS)
    return False


def _poll(consumer: BatchConsumer, wanted: OffsetRange, options: ReadOptions) -> Sequence[EncodedBatch]:
    try:
        return consumer.poll_encoded(_POLL_MS)
    except OffsetOutOfRangeError:
        first = consumer.beginning_offsets([wanted.partition])[wanted.partition]
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{wanted}: records were deleted while the job ran; the partition now begins at {first}. "
                "To read the remaining records, set failOnDataLoss to false."
            ) from None
    consumer.seek(wanted.partition, max(first, wanted.start))
    return ()
