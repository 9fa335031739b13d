"""Messages that are sent, acknowledged or given up together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast_log.clients.sending.expectations import Guard
from holdfast_log.clients.sending.losses import LossCount, Losses
from holdfast_log.clients.sending.producer_lock import ProducerLock, RunUntil
from holdfast_log.clients.sending.sequences import SEQUENCE_MASK
from holdfast_log.protocol.records import BatchBuilder, decode_columns
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.send_fields import BatchFields


@dataclass(frozen=True, slots=True)
class ReplacementSpan:
    """Where records of a batch have moved: those from `first` on are in `batch`, from `index` on."""

    first: int
    batch: Batch
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Onward:
    """A callback that takes the next step towards calling `callback`, which waits for more than one batch."""

    step: Callable[[Callable[[], object]], object]
    callback: Callable[[], object]

    def __call__(self) -> None:
        self.step(self.callback)


def _last_in(callback: Callable[[], object]) -> Callable[[], object]:
    """What is called in the end."""
    while isinstance(callback, Onward):
        callback = callback.callback
    return callback


class Batch(BatchFields):
    """A batch on its way through the queues. Its fields are guarded by the producer's lock.

    `builder` is None once the batch is encoded. Messages move to other batches when their topic's partitions
    become known, and when the broker finds the batch too large: `replacements` then says where they are.
    """

    __slots__ = (
        "_callbacks",
        "_lock",
        "append_id",
        "attempt",
        "attempts",
        "base_offset",
        "base_sequence",
        "created_ms",
        "doubted_since",
        "encoded",
        "error",
        "expected_epoch",
        "expected_offset",
        "expected_version",
        "guards",
        "id_unused_before",
        "is_done",
        "is_repeat",
        "is_unwritten",
        "last_error",
        "log_append_time",
        "looked_at",
        "loss",
        "mismatch",
        "number",
        "partition",
        "replacements",
        "retry_at_ms",
        "timestamps",
        "topic",
        "topic_id",
        "unit_starts",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, builder: BatchBuilder, created_ms: int, lock: ProducerLock
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.builder: BatchBuilder | None = builder
        self.timestamps = builder.timestamps
        self.created_ms = created_ms
        self.cost = 0
        """Bytes of `buffer.memory` that it uses."""
        self.is_closed = False
        """Whether it takes no more messages."""
        self.encoded: bytearray | None = None
        self.number: tuple[int, ...] = ()
        """Its place in the order of the partition, given when it is first taken to be sent; () before. Each
        half of a split batch has the batch's number followed by its own."""
        self.base_sequence = -1
        self.expected_offset = -1
        """The offset at which the log must end for it (KIP-27); -1 for any."""
        self.expected_epoch = -1
        """The leader epoch that the record before it must have; -1 for any."""
        self.expected_version: int | None = None
        """The offset at which the last record with the key of its only record must be; None for any."""
        self.topic_id = ZERO_UUID
        """With a condition: the id of the topic that it is on; ZERO_UUID until it is first sent."""
        self.doubted_since = -1
        """The count of metadata updates at which the topic was first seen to have another id; -1: never."""
        self.guards: tuple[Guard, ...] = ()
        """Other partitions, and where their logs must end for it."""
        self.append_id = b""
        """With a condition: the id by which the broker recognises its append if it is repeated; empty: none.
        Such a batch is one unit."""
        self.id_unused_before = 0
        """With an append id: an offset before which the log has no append with this id."""
        self.unit_starts: list[int] = []
        """With a condition: the indices at which records begin that are written all or none."""
        self.attempt = -1
        """The attempt with which a batch with a condition was sent (`PartitionQueue.attempt`)."""
        self.mismatch: Exception | None = None
        """The refusal of a batch before this one, on which the condition of this one depends."""
        self.attempts = 0
        self.is_unwritten = False
        """Whether it is certain that no attempt has written it or still will."""
        self.retry_at_ms = 0
        self.is_done = False
        self.error: Exception | None = None
        """Why it failed, once it is done."""
        self.last_error: Exception | None = None
        """Why the last attempt failed."""
        self.replacements: tuple[ReplacementSpan, ...] = ()
        self.base_offset = -1
        self.log_append_time = -1
        self.is_repeat = False
        """Whether the log already had an append with its id, at `base_offset`."""
        self.loss: LossCount | None = None
        """Once it has failed: where its records that nobody has looked at are counted."""
        self.looked_at: set[int] | None = None
        """Once it has failed: the indices of the records that were looked at; None for no record."""
        self._callbacks: list[Callable[[], object]] = []
        self._lock = lock

    @classmethod
    def failed(
        cls,
        topic: str,
        partition: int,
        timestamp: int,
        lock: ProducerLock,
        losses: Losses,
        error: Exception,
        count: int = 1,
    ) -> Batch:
        """A batch of records that were refused before they were queued."""
        batch = cls(topic, partition, BatchBuilder(), 0, lock)
        batch.timestamps.extend([timestamp] * count)
        batch.finish(error)
        losses.add(batch, error)
        return batch

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def is_settled(self) -> bool:
        """Whether its records have their outcome, here or in the batches that they moved to."""
        return all(span.batch.is_settled for span in self.replacements) if self.replacements else self.is_done

    @property
    def size(self) -> int:
        """Its bytes in a request; before it is encoded, about its bytes without compression."""
        return len(self.encoded or b"") if self.builder is None else self.builder.size

    def when_done(self, callback: Callable[[], object]) -> bool:
        """Call back when the outcome is known, or now if it is. Returns False if the records have moved to
        other batches: register there."""
        with self._lock:
            if self.replacements:
                return False
            if not self.is_done:
                self._callbacks.append(callback)
                return True
        callback()
        return True

    def forget(self, callback: Callable[[], object]) -> None:
        """Do not call back, neither here nor by what goes on elsewhere: who waited has given up."""
        with self._lock:
            self._callbacks = [each for each in self._callbacks if _last_in(each) is not callback]

    def finish(self, error: Exception | None = None) -> list[Callable[[], object]]:
        """Set the outcome. Returns the callbacks to run now, without the lock."""
        if self.is_done:
            return []
        self.error = error
        self.is_done = True
        return self._take_callbacks()

    def hand_over(self, replacements: tuple[ReplacementSpan, ...]) -> list[Callable[[], object]]:
        """Record that the messages have moved. Returns the callbacks to run now; each waits there instead."""
        self.replacements = replacements
        return self._take_callbacks()

    def look_at(self, first: int, count: int = 1) -> None:
        """Note that the application has seen the failure of these records."""
        with self._lock:
            if self.loss is None:
                return
            seen = self.looked_at = self.looked_at or set()
            before = len(seen)
            seen.update(range(first, first + count))
            assert self.error is not None
            self.loss.look_at(self.error, len(seen) - before)
            if len(seen) == len(self):
                self.loss = self.looked_at = None

    def check_may_wait(self, call: str) -> None:
        """Raise InsideCallbackError or ForkedError if `call` would wait for ever for the outcome."""
        self._lock.check_may_wait(call)

    def why_waiting(self) -> str:
        """What the producer knows about why there is no outcome yet, in words."""
        with self._lock:
            return self._lock.why_waiting(self)

    @property
    def run_until(self) -> RunUntil | None:
        """Runs the loop of a producer without a thread; None if it has one."""
        return self._lock.run_until

    def _take_callbacks(self) -> list[Callable[[], object]]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    @property
    def is_conditional(self) -> bool:
        """Whether a broker appends it only under a condition."""
        return self.expected_offset >= 0 or self.expected_version is not None

    @property
    def middle(self) -> int:
        """The index at which it can be divided into two batches; 0 if it cannot."""
        if self.expected_offset < 0:
            return len(self) // 2
        return self.unit_starts[len(self.unit_starts) // 2]

    def halves(self, new_builder: Callable[[], BatchBuilder]) -> tuple[Batch, Batch]:
        """Two batches with the records of this one, which must be encoded and have a `middle`.

        They take over its memory, its sequence numbers and its place in the order. The caller then calls
        `hand_over`.
        """
        middle = self.middle
        assert self.encoded is not None and middle > 0
        columns = decode_columns(self.encoded)
        builders = [new_builder(), new_builder()]
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
            first.topic_id = second.topic_id = self.topic_id
            second.expected_offset = self.expected_offset + middle
            first.unit_starts = [start for start in self.unit_starts if start < middle]
            second.unit_starts = [start - middle for start in self.unit_starts if start >= middle]
        first.cost = self.cost * middle // len(self)
        second.cost = self.cost - first.cost
        self.cost = 0
        self.encoded = None
        return first, second


def whereabouts(batch: Batch, first: int, count: int) -> Iterator[tuple[Batch, int, int]]:
    """The batches that records of a batch are in now, each with the index and the count there."""
    if not batch.replacements:
        yield batch, first, count
        return
    ends = [span.first for span in batch.replacements[1:]] + [len(batch)]
    for span, end in zip(batch.replacements, ends, strict=True):
        start, stop = max(first, span.first), min(first + count, end)
        if start < stop:
            yield from whereabouts(span.batch, span.index + start - span.first, stop - start)
