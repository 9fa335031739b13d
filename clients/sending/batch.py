"""Messages that are sent, acknowledged or given up together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clients.sending.expectations import Guard
from clients.sending.sequences import SEQUENCE_MASK
from protocol.records import BatchBuilder, decode_columns


@dataclass(frozen=True, slots=True)
class ReplacementSpan:
    """Where messages of a batch have gone: those from `first` on are in `batch`, from `index` on."""

    first: int
    batch: Batch
    index: int


class Batch:
    """A batch on its way through the queues. Its fields are guarded by the producer's lock.

    `builder` is None once the batch is encoded. Messages move to other batches when their topic's partitions
    become known, and when the broker finds the batch too large: `replacements` then says where they are.
    """

    __slots__ = (
        "_callbacks",
        "_lock",
        "attempt",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "cost",
        "created_ms",
        "encoded",
        "error",
        "expected_epoch",
        "expected_offset",
        "guards",
        "is_closed",
        "is_done",
        "is_unwritten",
        "last_error",
        "log_append_time",
        "mismatch",
        "number",
        "partition",
        "replacements",
        "retry_at_ms",
        "timestamps",
        "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, builder: BatchBuilder, created_ms: int, lock: threading.Condition
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.builder: BatchBuilder | None = builder
        self.timestamps = builder.timestamps
        self.created_ms = created_ms
        self.cost = 0
        """What it takes of `buffer.memory`."""
        self.is_closed = False
        """Whether it takes no more messages."""
        self.encoded: bytearray | None = None
        self.number: tuple[int, ...] = ()
        """Its place in the order of the partition, given when it is first taken to be sent; () before that.
        The parts of a batch have its number and their own behind it."""
        self.base_sequence = -1
        self.expected_offset = -1
        """Where the log has to end for it (KIP-27); -1: anywhere."""
        self.expected_epoch = -1
        """The leader epoch that the record before it has to have; -1: any."""
        self.guards: tuple[Guard, ...] = ()
        """Other partitions of the same broker that it rests on."""
        self.attempt = -1
        """Under which attempt a batch with a condition was sent (`PartitionQueue.attempt`)."""
        self.mismatch: Exception | None = None
        """The refusal of a batch before this one, whose condition rests on that one."""
        self.attempts = 0
        self.is_unwritten = False
        """Whether it is certain that no attempt has written it, and none will yet."""
        self.retry_at_ms = 0
        self.is_done = False
        self.error: Exception | None = None
        """Why it failed, once it is done."""
        self.last_error: Exception | None = None
        """Why the last attempt failed."""
        self.replacements: tuple[ReplacementSpan, ...] = ()
        self.base_offset = -1
        self.log_append_time = -1
        self._callbacks: list[Callable[[], object]] = []
        self._lock = lock

    @classmethod
    def failed(
        cls,
        topic: str,
        partition: int,
        timestamp: int,
        lock: threading.Condition,
        error: Exception,
        count: int = 1,
    ) -> Batch:
        """A batch of messages that never got into a queue."""
        batch = cls(topic, partition, BatchBuilder(), 0, lock)
        batch.timestamps.extend([timestamp] * count)
        batch.finish(error)
        return batch

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def is_settled(self) -> bool:
        """Whether its messages have their outcome, here or where they went."""
        return all(span.batch.is_settled for span in self.replacements) if self.replacements else self.is_done

    @property
    def size(self) -> int:
        """Bytes that it takes, or about would take before compression, in a request."""
        return len(self.encoded or b"") if self.builder is None else self.builder.size

    def when_done(self, callback: Callable[[], object]) -> bool:
        """Call back when the outcome is known, or now if it is. False where the messages have gone to other
        batches: ask there."""
        with self._lock:
            if self.replacements:
                return False
            if not self.is_done:
                self._callbacks.append(callback)
                return True
        callback()
        return True

    def finish(self, error: Exception | None = None) -> list[Callable[[], object]]:
        """Make the outcome known; what is to be called back now, without the lock."""
        if self.is_done:
            return []
        self.error = error
        self.is_done = True
        return self._take_callbacks()

    def hand_over(self, replacements: tuple[ReplacementSpan, ...]) -> list[Callable[[], object]]:
        """Record that the messages have moved. Returns the callbacks to run now; each waits there instead."""
        self.replacements = replacements
        return self._take_callbacks()

    def _take_callbacks(self) -> list[Callable[[], object]]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def halves(self, new_builder: Callable[[], BatchBuilder]) -> tuple[Batch, Batch]:
        """Two batches with the messages of this one, which is encoded and has more than one.

        They take over its memory, its sequence numbers and its place in the order; `hand_over` is still to
        be called.
        """
        assert self.encoded is not None and len(self) > 1
        columns = decode_columns(self.encoded)
        builders = [new_builder(), new_builder()]
        middle = len(self) // 2
        headers = columns.headers or [()] * len(self)
        rows = zip(self.timestamps, columns.keys, columns.values, headers, strict=True)
        for index, row in enumerate(rows):
            builders[index >= middle].append(*row)
        first, second = (
            Batch(self.topic, self.partition, builder, self.created_ms, self._lock) for builder in builders
        )
        for part, half in enumerate((first, second)):
            half.is_closed = True
            half.number = (*self.number, part)
            half.last_error = self.last_error
        if self.base_sequence >= 0:
            first.base_sequence = self.base_sequence
            second.base_sequence = (self.base_sequence + middle) & SEQUENCE_MASK
        if self.expected_offset >= 0:
            first.expected_offset, first.expected_epoch = self.expected_offset, self.expected_epoch
            first.guards = self.guards
            second.expected_offset = self.expected_offset + middle
        first.cost = self.cost // 2
        second.cost = self.cost - first.cost
        self.cost = 0
        self.encoded = None
        return first, second


def whereabouts(batch: Batch, first: int, count: int) -> Iterator[tuple[Batch, int, int]]:
    """Where messages of a batch are by now: batches that have not handed them on, and which of theirs."""
    if not batch.replacements:
        yield batch, first, count
        return
    ends = [span.first for span in batch.replacements[1:]] + [len(batch)]
    for span, end in zip(batch.replacements, ends, strict=True):
        start, stop = max(first, span.first), min(first + count, end)
        if start < stop:
            yield from whereabouts(span.batch, span.index + start - span.first, stop - start)
