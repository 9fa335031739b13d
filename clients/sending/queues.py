"""Where records wait: a queue for each partition, and for each topic two for records without a partition.

As in the client rewrite, "One queue per partition". A record has no partition for one of two reasons. Records
without a key gather in batches, and a whole batch is given a partition when it is sent. Records sent before
the topic's partitions are known wait one by one, in order, until they are.

Plain data under the producer's lock: the calling threads append, the sending thread takes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from holdfast_log.clients.arguments import A_NAME, PARTITION_NUMBER
from holdfast_log.clients.sending.batch import Batch, ReplacementSpan
from holdfast_log.clients.sending.columns import RecordColumns
from holdfast_log.clients.sending.expectations import ANY_EPOCH, Expectation, KeyExpectation
from holdfast_log.clients.sending.losses import Losses
from holdfast_log.clients.sending.producer_lock import ProducerLock
from holdfast_log.clients.sending.record import SerializedRecord
from holdfast_log.clients.sending.sequences import Sequences
from holdfast_log.protocol.batches import HEADER_SIZE, Compression
from holdfast_log.protocol.records import BatchBuilder
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.send_fields import PartitionFields, QueuesFields, TopicFields

UNPLACED = -1
"""The partition number of records and batches that have none yet."""

RECORD_OVERHEAD = 240
"""Bytes of memory that a waiting record takes besides its key and value."""
UNPLACED_OVERHEAD = 900
"""Bytes of memory that a record takes while it waits in a batch of its own for its topic's partitions."""
BULK_OVERHEAD = 80
"""Bytes of memory that a record of a `send_many` takes: its call has one response for each batch."""
NEVER_MS = 2**62


def keyless_partition_of(partition_count: int) -> int:
    """The queue of records for which no partition is chosen: UNPLACED, from which a whole batch goes to any
    partition; or partition 0 if it is the topic's only one, so that records stay in order."""
    return UNPLACED if partition_count > 1 else 0


def unplaceable(topic: str) -> ValueError:
    """The error of a message with an expected version for which the partitioner chooses no partition. All
    writers of a key must agree on its partition, so a batch may not go to any."""
    return ValueError(f"{topic}: a message with an expected version needs a partition")


class UnplacedRecord(NamedTuple):
    """A record whose topic's partitions are unknown, the batch of its own that its response watches, and what
    it expects of its key; None for nothing."""

    record: SerializedRecord
    batch: Batch
    expected: KeyExpectation | None = None


@dataclass(slots=True, eq=False)
class PartitionQueue(PartitionFields):
    """The batches that wait for one partition, oldest first, and those under way to it."""

    topic: str
    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    """Batches that were sent and not answered, in the order of their numbers."""
    sequences: Sequences = field(default_factory=Sequences)
    next_number: int = 0
    attempt: int = 0
    """Counts refused batches with conditions, so that a broker knows what was sent before it refused one."""
    topic_id: UUID = ZERO_UUID
    """The id of the topic that conditions mean; ZERO_UUID until the first one is sent. If the topic is
    created again, the waiting conditional batches fail, and later ones mean the new topic."""

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits or is under way."""
        return not self.batches and not self.in_flight

    def put_back(self, *batches: Batch) -> None:
        """Queue batches again that were sent, at their old place in the order."""
        number = batches[0].number
        later = [other for other in self.batches if not other.number or other.number > number]
        earlier = [other for other in self.batches if other.number and other.number < number]
        self.batches = deque([*earlier, *batches, *later])

    def take(self) -> Batch:
        """Take the first batch; it counts as under way from now on."""
        batch = self.batches.popleft()
        batch.is_closed = True
        if not batch.number:
            batch.number = (self.next_number,)
            self.next_number += 1
        insort(self.in_flight, batch, key=lambda each: each.number)
        return batch

    def is_first(self, batch: Batch) -> bool:
        """Whether every batch that was taken before this one has its outcome."""
        return all(
            other is batch or not other.number or other.number > batch.number
            for other in (*self.in_flight, *self.batches)
        )


@dataclass(slots=True, eq=False)
class TopicQueues(TopicFields):
    """The queues of one topic."""

    topic: str
    partitions: dict[int, PartitionQueue] = field(default_factory=dict)
    keyless: deque[Batch] = field(default_factory=deque)
    """Batches of records without a key that have no partition yet."""
    unplaced: deque[UnplacedRecord] = field(default_factory=deque)
    turn: int = 0
    """Counts keyless batches, to spread them over the partitions in turn."""
    partition_count: int = 0
    """How many partitions the topic has; 0 while that is unknown, or records wait in `unplaced`."""
    keyless_partition: int = 0
    """`keyless_partition_of` the count, kept because every record without a key needs it."""
    batch_size: int = 0
    """Largest size of a batch in bytes: `batch.size`, or less once the broker has refused a batch as too
    large."""

    def set_partition_count(self, count: int) -> None:
        """How many partitions the topic has from now on; 0 for unknown."""
        self.partition_count = count
        self.keyless_partition = keyless_partition_of(count)

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition, made if there is none. Raises TypeError or ValueError for what is no
        partition's number: it may come from the application's partitioner."""
        queue = self.partitions.get(partition)
        if queue is None:
            number = PARTITION_NUMBER.check("", f"the partition of a message for {self.topic}", partition)
            queue = self.partitions[number] = PartitionQueue(self.topic, number)
        return queue


class Queues(QueuesFields):
    """The queues of all topics. `lock` must be held for every call."""

    def __init__(
        self,
        lock: ProducerLock,
        batch_size: int,
        linger_ms: int,
        compression: Compression,
        level: int | None,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.used = 0
        """Bytes of `buffer.memory` in use."""
        self.waiting_for_room = 0
        """How many callers wait for room in `buffer.memory`."""
        self.flushing = 0
        """How many callers are in `flush`: no batch lingers meanwhile."""
        self.fatal_error: Exception | None = None
        """Why nothing can be sent any more."""
        self.barrier: Callable[[], Exception] | None = None
        """Makes the error of a record that may not be queued at present, though the producer goes on: no
        transaction is open. None if it may."""
        self.is_closed = False
        """Whether records are refused from now on."""
        self.lock = lock
        self.losses = Losses()
        self.busy: dict[PartitionQueue, None] = {}
        """Queues with a batch that waits or is under way; may still contain some that have become idle."""
        self.waiting: dict[TopicQueues, None] = {}
        """Topics with records that have no partition; may still contain some that have none left."""
        self.look_at_ms = NEVER_MS
        """When the sending thread next looks at the queues, unless it is woken."""
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._compression = compression
        self._level = level

    def topic(self, name: str) -> TopicQueues:
        """The queues of a topic, made if there are none."""
        queues = self.topics.get(name)
        if queues is None:
            A_NAME.check("", "the topic of a message", name)
            queues = self.topics[name] = TopicQueues(name, batch_size=self._batch_size)
        return queues

    def queue_of(self, batch: Batch) -> PartitionQueue:
        """The queue of the partition that a batch has been given."""
        return self.topics[batch.topic].partitions[batch.partition]

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        record: SerializedRecord,
        now_ms: Callable[[], int],
    ) -> tuple[Batch, int, bool]:
        """Add a record to the last batch of a partition, or to the last one without a partition.

        `now_ms` returns the time, and is called only if it is needed. Returns the batch, the record's index
        in it, and whether to wake the sending thread.
        """
        timestamp, key, value, tail, size = record
        if partition == UNPLACED:
            batches = topic.keyless
        else:
            batches = (topic.partitions.get(partition) or topic.queue(partition)).batches
        should_wake = False
        batch = batches[-1] if batches else None
        builder = None if batch is None or batch.is_closed else batch.builder
        if batch is None or builder is None or builder.size + size > topic.batch_size:
            batch, should_wake = self._begin_batch(topic, partition, batches, now_ms())
            builder = batch.builder
            assert builder is not None
        values = builder.values
        index = len(values)
        if tail:
            builder.append_encoded(timestamp, key, value, tail)
        else:  # What `append` does, without the call: this line is where a producer spends its time.
            values.append(value)
            builder.keys.append(key)
            builder.timestamps.append(timestamp)
            builder.size += size
        cost = size + RECORD_OVERHEAD
        batch.cost += cost
        self.used += cost
        if builder.size >= topic.batch_size:
            batch.is_closed = True
            should_wake |= self._is_early(now_ms())
        return batch, index, should_wake

    def extend(
        self,
        topic: TopicQueues,
        partition: int,
        columns: RecordColumns,
        size: int,
        now_ms: int,
    ) -> tuple[Batch, int, bool]:
        """Add records of about `size` bytes, as many as `room_for` allows, to one batch.

        Returns the batch, the index of the first record in it, and whether to wake the sending thread.
        """
        batches = topic.keyless if partition == UNPLACED else topic.queue(partition).batches
        should_wake = False
        batch = batches[-1] if batches else None
        builder = None if batch is None or batch.is_closed else batch.builder
        if batch is None or builder is None or builder.size + size > topic.batch_size:
            batch, should_wake = self._begin_batch(topic, partition, batches, now_ms)
            builder = batch.builder
            assert builder is not None
        index = len(builder.values)
        keys = [None] * len(columns) if columns.keys is None else columns.keys
        builder.extend(columns.timestamp, keys, columns.values, size)
        cost = size + len(columns) * BULK_OVERHEAD
        batch.cost += cost
        self.used += cost
        return batch, index, should_wake

    def append_at(
        self,
        queue: PartitionQueue,
        expected: Expectation,
        records: Sequence[SerializedRecord],
        size: int,
        now_ms: int,
    ) -> tuple[Batch, int, bool]:
        """Add records of `size` bytes that are written together, and only at the offset that they expect.

        They share one batch, however large: together with the records expected right before them if
        `batch.size` allows it. It takes no record without a condition and does not linger. Returns the batch,
        the index of the first record in it, and whether to wake the sending thread.
        """
        topic = self.topics[queue.topic]
        batch = queue.batches[-1] if queue.batches else None
        builder = None if batch is None or batch.expected_offset < 0 else batch.builder
        should_wake = False
        if (
            batch is None
            or builder is None
            or batch.expected_offset + len(batch) != expected.offset
            or builder.size + size > topic.batch_size
            or expected.last_leader_epoch != ANY_EPOCH
            or expected.guards
            or expected.append_id
            or batch.append_id
            or expected.topic_id not in (ZERO_UUID, batch.topic_id)
        ):
            batch, _ = self._begin_batch(topic, queue.partition, queue.batches, now_ms)
            batch.expected_offset, batch.expected_epoch = expected.offset, expected.last_leader_epoch
            batch.guards, batch.append_id = expected.guards, expected.append_id
            batch.topic_id, batch.id_unused_before = expected.topic_id, expected.id_unused_before
            batch.is_closed = True
            builder = batch.builder
            assert builder is not None
            should_wake = True
        first = len(batch)
        batch.unit_starts.append(first)
        for timestamp, key, value, tail, _ in records:
            builder.append_encoded(timestamp, key, value, tail)
        cost = size + len(records) * RECORD_OVERHEAD
        batch.cost += cost
        self.used += cost
        return batch, first, should_wake

    def append_versioned(
        self, queue: PartitionQueue, expected: KeyExpectation, record: SerializedRecord, now_ms: int
    ) -> Batch:
        """Add a record that depends on the last record with its key. It has a batch of its own, because a
        broker that refuses it refuses its whole batch. The batch does not linger."""
        topic = self.topics[queue.topic]
        batch, _ = self._begin_batch(topic, queue.partition, queue.batches, now_ms)
        batch.expected_version, batch.topic_id = expected
        batch.is_closed = True
        assert batch.builder is not None
        batch.builder.append_encoded(*record[:4])
        batch.cost = record[4] + RECORD_OVERHEAD
        self.used += batch.cost
        return batch

    def room_for(self, topic: TopicQueues, partition: int, ends: Sequence[int], start: int) -> int:
        """How many records from `start` on go into one batch, at least one. `ends` has the running sums of
        the records' sizes."""
        queue = None if partition == UNPLACED else topic.partitions.get(partition)
        batches = topic.keyless if partition == UNPLACED else queue.batches if queue is not None else ()
        before = ends[start - 1] if start else 0
        if batches and not batches[-1].is_closed and batches[-1].builder is not None:
            count = bisect_right(ends, before + topic.batch_size - batches[-1].builder.size, start) - start
            if count > 0:
                return count
        return max(1, bisect_right(ends, before + topic.batch_size - HEADER_SIZE, start) - start)

    def _begin_batch(
        self, topic: TopicQueues, partition: int, batches: deque[Batch], now_ms: int
    ) -> tuple[Batch, bool]:
        """A new batch behind the others, and whether to wake the sending thread for it."""
        due_ms = now_ms + self._linger_ms
        if batches and not batches[-1].is_closed:
            batches[-1].is_closed = True
            due_ms = now_ms
        batch = Batch(topic.topic, partition, self.new_builder(), now_ms, self.lock)
        batches.append(batch)
        if partition == UNPLACED:
            self.waiting[topic] = None
        else:
            self.busy[topic.partitions[partition]] = None
        return batch, self._is_early(due_ms)

    def _is_early(self, due_ms: int) -> bool:
        """Whether to wake the sending thread, because `due_ms` is before its next look at the queues."""
        if due_ms >= self.look_at_ms:
            return False
        self.look_at_ms = due_ms
        return True

    def new_builder(self) -> BatchBuilder:
        """A builder for the records of one batch."""
        return BatchBuilder(self._compression, self._level)

    def append_unplaced(
        self,
        topic: TopicQueues,
        record: SerializedRecord,
        now_ms: int,
        expected: KeyExpectation | None = None,
    ) -> Batch:
        """Add a record while the topic's partitions are unknown.

        Returns a batch of its own, which is replaced once the record has a partition.
        """
        timestamp, key, value, tail, size = record
        builder = BatchBuilder()
        batch = Batch(topic.topic, UNPLACED, builder, now_ms, self.lock)
        builder.append_encoded(timestamp, key, value, tail)
        batch.cost = size + UNPLACED_OVERHEAD
        self.used += batch.cost
        topic.unplaced.append(UnplacedRecord(record, batch, expected))
        self.waiting[topic] = None
        return batch

    def place_first(self, topic: TopicQueues, partition: int) -> list[Callable[[], object]]:
        """Give the first record that waits for its topic a partition; the callbacks to run now."""
        record, alone, expected = topic.unplaced.popleft()
        self.used -= alone.cost
        if expected is not None:
            placed = self.append_versioned(topic.queue(partition), expected, record, alone.created_ms)
            return alone.hand_over((ReplacementSpan(0, placed, 0),))
        batch, index, _ = self.append(topic, partition, record, lambda: alone.created_ms)
        return alone.hand_over((ReplacementSpan(0, batch, index),))

    def split(self, queue: PartitionQueue, batch: Batch) -> list[Callable[[], object]]:
        """Queue the records of a batch that is too large as two batches; returns the callbacks to run now.

        The batch must have a `middle`, and no longer be in the queue. The topic's batches are smaller from
        now on.
        """
        topic = self.topics[batch.topic]
        topic.batch_size = min(topic.batch_size, max(batch.size // 2, 1))
        halves = batch.halves(self.new_builder)
        queue.put_back(*halves)
        self.busy[queue] = None
        return batch.hand_over(
            (ReplacementSpan(0, halves[0], 0), ReplacementSpan(len(halves[0]), halves[1], 0))
        )

    def release(self, batch: Batch) -> None:
        """Give back the memory of a batch that has its outcome."""
        self.used -= batch.cost
        batch.cost = 0
        batch.builder = batch.encoded = None
        self.lock.notify_all()

    def pending(self) -> list[Batch]:
        """Every batch that has no outcome yet."""
        found: list[Batch] = []
        for topic in self.waiting:
            found += (waiting.batch for waiting in topic.unplaced)
            found += topic.keyless
        for queue in self.busy:
            found += queue.in_flight
            found += queue.batches
        return found

    def forget_idle(self) -> None:
        """Remove idle queues from `busy`, and topics without such records from `waiting`."""
        for queue in [queue for queue in self.busy if queue.is_idle]:
            del self.busy[queue]
        for topic in [topic for topic in self.waiting if not topic.keyless and not topic.unplaced]:
            del self.waiting[topic]
