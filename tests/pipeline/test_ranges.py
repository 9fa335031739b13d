"""A task reads exactly its range, despite gaps, deleted records and data that does not arrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.pipeline.offsets import DataLossError, OffsetRange
from holdfast_log.pipeline.options import ReadOptions, read_options
from holdfast_log.pipeline.ranges import ReadTimeoutError, batches
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import compacted_batch, fetched

PARTITION = TopicPartition("log", 0)


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ScriptedConsumer:
    """A consumer that follows a script; each step is batches and a new position, or an error to raise."""

    def __init__(self, *script: tuple[Sequence[int], int] | Exception, first: int = 0, clock: Clock) -> None:
        self._script = list(script)
        self._position = 0
        self._first = first
        self._clock = clock
        self.sought: list[int] = []
        self.known = ["log"]

    def poll_encoded(self, timeout_ms: int = 0) -> Sequence[EncodedBatch]:
        self._clock.now += timeout_ms / 1000
        if not self._script:
            return ()
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        offsets, self._position = step
        if not offsets:
            return ()
        rows = {offset: (0, None, b"%d" % offset) for offset in offsets}
        return [fetched(compacted_batch(rows, min(offsets), self._position - 1))]

    def position(self, partition: TopicPartition) -> int:
        return self._position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append(offset)
        self._position = offset

    def topics(self, timeout_ms: int | None = None) -> Sequence[str]:
        return self.known

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._first)


def options(**given: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "log", **given})


def read(consumer: ScriptedConsumer, clock: Clock, start: int, end: int, **given: str) -> list[int]:
    found: list[int] = []
    for batch in batches(consumer, OffsetRange(PARTITION, start, end), options(**given), clock):
        found += batch.column("offset").to_pylist()
    return found


def test_a_task_ends_soon_after_its_topic_was_deleted() -> None:
    clock = Clock()
    consumer = ScriptedConsumer((range(5), 5), clock=clock)
    consumer.known = []

    with pytest.raises(DataLossError, match="log-0 no longer exists: the topic was deleted"):
        read(consumer, clock, 0, 12)

    assert clock.now < 10
    assert read(ScriptedConsumer((range(5), 5), clock=clock), clock, 0, 5) == [0, 1, 2, 3, 4]
    consumer = ScriptedConsumer((range(5), 5), clock=clock)
    consumer.known = []
    assert read(consumer, clock, 0, 12, failOnDataLoss="false") == [0, 1, 2, 3, 4]


def test_reading_starts_and_ends_inside_batches() -> None:
    clock = Clock()
    consumer = ScriptedConsumer((range(10), 10), (range(10, 20), 20), clock=clock)

    assert read(consumer, clock, 7, 12) == [7, 8, 9, 10, 11]
    assert consumer.sought == [7]


def test_a_gap_at_the_end_of_the_range_ends_it() -> None:
    clock = Clock()
    consumer = ScriptedConsumer(([3, 5], 8), clock=clock)

    assert read(consumer, clock, 3, 8) == [3, 5]


def test_a_range_without_records_is_skipped() -> None:
    clock = Clock()
    consumer = ScriptedConsumer(([], 6), ([7], 8), clock=clock)

    assert read(consumer, clock, 0, 8) == [7]


def test_data_that_does_not_arrive_in_time_fails_the_task() -> None:
    clock = Clock()
    consumer = ScriptedConsumer(([0], 1), clock=clock)

    with pytest.raises(ReadTimeoutError, match=r"log-0 \[0, 5\): no record arrived at offset 1 for 3000 ms"):
        read(consumer, clock, 0, 5, **{"kafkaConsumer.pollTimeoutMs": "3000"})
    assert clock.now <= 5


def test_slow_data_does_not_fail_the_task() -> None:
    clock = Clock()
    nothing: list[tuple[Sequence[int], int]] = [([], 1)] * 4
    consumer = ScriptedConsumer(([0], 1), *nothing, ([1], 2), ([], 2), ([2], 3), clock=clock)

    assert read(consumer, clock, 0, 3, **{"kafkaConsumer.pollTimeoutMs": "3000"}) == [0, 1, 2]


def test_records_deleted_during_the_read_fail_the_task_or_are_skipped() -> None:
    gone = error_for(ErrorCode.OFFSET_OUT_OF_RANGE)
    clock = Clock()

    with pytest.raises(DataLossError, match="now begins at 4"):
        read(ScriptedConsumer(([0, 1], 2), gone, clock=clock, first=4), clock, 0, 6)

    consumer = ScriptedConsumer(([0, 1], 2), gone, ([4, 5], 6), clock=clock, first=4)
    assert read(consumer, clock, 0, 6, failOnDataLoss="false") == [0, 1, 4, 5]


def test_a_range_deleted_as_a_whole_reads_nothing() -> None:
    clock = Clock()
    consumer = ScriptedConsumer(error_for(ErrorCode.OFFSET_OUT_OF_RANGE), clock=clock, first=100)

    assert read(consumer, clock, 0, 6, failOnDataLoss="false") == []


def test_other_errors_fail_the_task() -> None:
    clock = Clock()
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(type(error)):
        read(ScriptedConsumer(error, clock=clock), clock, 0, 6, failOnDataLoss="false")
