"""Where messages wait: one queue for each partition, and for each topic one of what has no partition.

After the seed client-rewrite, "One queue per partition". A topic's messages are without a partition for two
reasons. Those without a key gather in batches, and a whole batch is given a partition when it is sent. Those
that were sent before the topic's partitions were known wait one by one, in order, until they are.

Plain data under one lock, the producer's: the calling threads append, the sending thread takes.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clients.idempotence import Sequences
from clients.responses import RecordResponse
from protocol.batches import Compression
from protocol.records import BatchBuilder, Headers

UNPLACED = -1
"""The partition of what has none yet."""

RECORD_OVERHEAD = 240
"""Bytes that Python needs for a waiting message besides its key and value: the objects around them."""


def without_key(partition_count: int) -> int:
    """Where a message goes for which no partition is chosen. With one partition, nothing is gained by batches
    that wait for theirs, and order among all messages is."""
    return UNPLACED if partition_count > 1 else 0


class Batch:
    """Messages that are sent, acknowledged or given up together."""

    __slots__ = (
        "_callbacks", "_lock", "attempts", "base_offset", "base_sequence", "builder", "cost", "created_ms",
        "encoded", "error", "heir", "is_closed", "is_done", "last_error", "log_append_time", "number",
        "partition", "retry_at_ms", "timestamps", "topic",
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
        self.number = -1
        """Its place in the order of the partition, given when it is first taken to be sent."""
        self.base_sequence = -1
        self.attempts = 0
        self.retry_at_ms = 0
        self.is_done = False
        self.error: Exception | None = None
        """Why it failed, once it is done."""
        self.last_error: Exception | None = None
        """Why the last attempt failed."""
        self.heir: Batch | None = None
        """The batch that its messages have gone to."""
        self.base_offset = -1
        self.log_append_time = -1
        self._callbacks: list[Callable[[], object]] = []
        self._lock = lock

    @classmethod
    def failed(
        cls, topic: str, partition: int, timestamp: int, lock: threading.Condition, error: Exception
    ) -> Batch:
        """A batch of one message that never got into a queue."""
        batch = cls(topic, partition, BatchBuilder(), 0, lock)
        batch.timestamps.append(timestamp)
        batch.finish(error)
        return batch

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def is_settled(self) -> bool:
        """Whether its messages have their outcome, here or where they went."""
        return self.is_done if self.heir is None else self.heir.is_settled

    def when_done(self, callback: Callable[[], object]) -> bool:
        """Call back when the outcome is known, or now if it is. False where the messages have gone to another
        batch: ask there."""
        with self._lock:
            if self.heir is not None:
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
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def hand_over(self, heir: Batch) -> None:
        """The messages have gone to `heir`, and those who wait with them."""
        heir._callbacks += self._callbacks
        self._callbacks = []
        self.heir = heir


@dataclass(slots=True)
class Unplaced:
    """A message whose topic's partitions are not known yet. Its response belongs to a batch of one."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    slip: Batch
    response: RecordResponse


@dataclass(slots=True)
class PartitionQueue:
    """What waits for one partition, oldest first, and what is under way to it."""

    topic: str
    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    """Sent and not answered, in the order of their numbers."""
    sequences: Sequences = field(default_factory=Sequences)
    next_number: int = 0

    def put_back(self, batch: Batch) -> None:
        """Let a batch that was sent wait again, at its old place: before all that come after it."""
        self.in_flight.remove(batch)
        later = [other for other in self.batches if not 0 <= other.number < batch.number]
        earlier = [other for other in self.batches if 0 <= other.number < batch.number]
        self.batches = deque([*earlier, batch, *later])

    def take(self) -> Batch:
        """The first batch, which is under way from now on."""
        batch = self.batches.popleft()
        batch.is_closed = True
        if batch.number < 0:
            batch.number = self.next_number
            self.next_number += 1
        insort(self.in_flight, batch, key=lambda each: each.number)
        return batch

    def is_first(self, batch: Batch) -> bool:
        """Whether no batch that was taken before this one is without an outcome."""
        return all(
            other is batch or other.number < 0 or other.number > batch.number
            for other in (*self.in_flight, *self.batches)
        )


@dataclass(slots=True)
class TopicQueues:
    """The queues of one topic."""

    topic: str
    partitions: dict[int, PartitionQueue] = field(default_factory=dict)
    keyless: deque[Batch] = field(default_factory=deque)
    """Batches of messages without a key, not yet given a partition."""
    unplaced: deque[Unplaced] = field(default_factory=deque)
    turn: int = 0
    """Counts keyless batches, so that they go round the partitions."""

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition, made where there is none."""
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(self.topic, partition)
        return queue


class Queues:
    """All that waits. `lock` must be held for every call."""

    def __init__(
        self, lock: threading.Condition, batch_size: int, compression: Compression, level: int | None
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.used = 0
        """Bytes of `buffer.memory` in use."""
        self.lock = lock
        self._batch_size = batch_size
        self._compression = compression
        self._level = level

    def topic(self, name: str) -> TopicQueues:
        """The queues of a topic, made where there are none."""
        queues = self.topics.get(name)
        if queues is None:
            queues = self.topics[name] = TopicQueues(name)
        return queues

    def partition_queues(self) -> Iterator[PartitionQueue]:
        """Every partition's queue."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        now_ms: int,
    ) -> tuple[Batch, int, bool]:
        """Add a message to a partition's last batch, or the last without a partition.

        `size` is about what the message takes in a batch. Returns the batch, the message's index in it, and
        whether the sending thread should have a look: a batch is new, or full.
        """
        batches = topic.keyless if partition == UNPLACED else topic.queue(partition).batches
        batch = batches[-1] if batches else None
        should_look = False
        if batch is not None and not batch.is_closed:
            assert batch.builder is not None
            if batch.builder.size + size > self._batch_size:
                batch.is_closed = should_look = True
        if batch is None or batch.is_closed:
            builder = BatchBuilder(self._compression, self._level)
            batch = Batch(topic.topic, partition, builder, now_ms, self.lock)
            batches.append(batch)
            should_look = True
        assert batch.builder is not None
        index = batch.builder.append(timestamp, key, value, headers)
        cost = size + RECORD_OVERHEAD
        batch.cost += cost
        self.used += cost
        if batch.builder.size >= self._batch_size:
            batch.is_closed = should_look = True
        return batch, index, should_look

    def append_unplaced(
        self,
        topic: TopicQueues,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        now_ms: int,
    ) -> RecordResponse:
        """Add a message while the topic's partitions are not known."""
        builder = BatchBuilder()
        slip = Batch(topic.topic, UNPLACED, builder, now_ms, self.lock)
        builder.append(timestamp, key, value, headers)
        slip.cost = size + RECORD_OVERHEAD
        self.used += slip.cost
        response = RecordResponse(slip, 0)
        topic.unplaced.append(Unplaced(timestamp, key, value, headers, slip, response))
        return response

    def place_first(self, topic: TopicQueues, partition: int) -> None:
        """Give the first of the messages that wait one by one its partition."""
        waiting = topic.unplaced.popleft()
        slip = waiting.slip
        self.used -= slip.cost
        batch, index, _ = self.append(
            topic,
            partition,
            waiting.timestamp,
            waiting.key,
            waiting.value,
            waiting.headers,
            slip.cost - RECORD_OVERHEAD,
            slip.created_ms,
        )
        waiting.response.moved(batch, index)
        slip.hand_over(batch)

    def release(self, batch: Batch) -> None:
        """Give back the memory of a batch that has its outcome."""
        self.used -= batch.cost
        batch.cost = 0
        batch.builder = batch.encoded = None
        self.lock.notify_all()

    def pending(self) -> list[Batch]:
        """Every batch that has no outcome yet."""
        found: list[Batch] = []
        for topic in self.topics.values():
            found += (waiting.slip for waiting in topic.unplaced)
            found += topic.keyless
            for queue in topic.partitions.values():
                found += queue.in_flight
                found += queue.batches
        return found
