"""The way into the queues: what may come in, where it goes, and the wait for room.

Called by the threads of the application, any number of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import repeat

from clients.connection.network import ClientNetwork
from clients.errors import BufferFullError, ClosedError, RecordTooLargeError
from clients.sending.batch import Batch
from clients.sending.columns import running_sizes
from clients.sending.expectations import Expectation
from clients.sending.partitioner import Partitioner
from clients.sending.queues import BULK_OVERHEAD, RECORD_OVERHEAD, UNPLACED, Queues, TopicQueues, without_key
from clients.sending.responses import SpanResponse
from protocol.record_codec import Headers
from protocol.records import TYPICAL_OVERHEAD


class RecordAccumulator:
    """Puts messages, serialized, in their queues.

    `mutex` is the lock below the queues' condition: entered directly it costs a third. `wait_until` waits
    with the lock held until a condition holds, for so many ms, and tells whether it does.
    """

    def __init__(
        self,
        queues: Queues,
        mutex: threading.RLock,
        network: ClientNetwork,
        partitioner: Partitioner,
        *,
        buffer_memory: int,
        max_record_size: int,
        max_block_ms: int,
        wait_until: Callable[[Callable[[], bool], int], bool],
    ) -> None:
        self.is_closed = False
        """Whether nothing comes in any more. Under the lock."""
        self.refused = 0
        """How many messages did not get in. Under the lock, as is the next."""
        self.waited_ms = 0
        """How long callers have waited for room, added up."""
        self._queues = queues
        self._mutex = mutex
        self._lock = queues.lock
        self._network = network
        self._now_ms = network.now_ms
        self._partitioner = partitioner
        self._buffer_memory = buffer_memory
        self._size_max = min(max_record_size, buffer_memory)
        self._max_block_ms = max_block_ms
        self._wait_until = wait_until

    def enqueue(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
    ) -> tuple[Batch, int]:
        """Put a message in its queue: the batch, and the index there, that its outcome will be that of."""
        queues = self._queues
        with self._mutex:
            if (
                size > self._size_max
                or queues.used + size + RECORD_OVERHEAD > self._buffer_memory
                or self.is_closed
                or self._queues.fatal_error is not None
            ):
                error = self._refusal(size) or self._make_room(size + RECORD_OVERHEAD)
                if error is not None:
                    return self._failed(topic, partition, timestamp, error)
            of_topic = queues.topics.get(topic) or queues.topic(topic)
            if partition is None:
                count = of_topic.partition_count
                if not count:
                    return self._enqueue_unplaced(of_topic, timestamp, key, value, headers, size)
                partition = self._partitioner(topic, key, count)
                if partition is None:
                    partition = without_key(count)
            batch, index, should_wake = queues.append(
                of_topic, partition, timestamp, key, value, headers, size, self._now_ms
            )
        if should_wake:
            self._network.wake()
        return batch, index

    def enqueue_at(
        self,
        topic: str,
        partition: int,
        expected: Expectation,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
    ) -> tuple[Batch, int]:
        """As `enqueue`, for a message that is to land at an offset."""
        with self._mutex:
            error = self._refusal(size) or self._make_room(size + RECORD_OVERHEAD)
            if error is not None:
                return self._failed(topic, partition, timestamp, error)
            queue = self._queues.topic(topic).queue(partition)
            batch, index, should_wake = self._queues.append_at(
                queue, expected, timestamp, key, value, headers, size, self._now_ms()
            )
        if should_wake:
            self._network.wake()
        return batch, index

    def enqueue_columns(
        self,
        topic: str,
        partition: int | None,
        timestamp: int,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        responses: list[SpanResponse],
    ) -> None:
        """Put messages of one topic in their queues; adds to `responses`."""
        with self._mutex:
            of_topic = self._queues.topic(topic)
            count = of_topic.partition_count
        if partition is None and not count:
            for key, value in zip(keys or repeat(None), values, strict=False):
                size = TYPICAL_OVERHEAD + len(key or b"") + len(value or b"")
                batch, index = self.enqueue(topic, None, timestamp, key, value, (), size)
                responses.append(SpanResponse(batch, index, 1))
            return
        if partition is not None or keys is None:
            chosen = partition if partition is not None else without_key(count)
            self._enqueue_to(of_topic, chosen, timestamp, keys, values, responses)
            return
        for place, (its_keys, its_values) in self._by_partition(topic, count, keys, values).items():
            self._enqueue_to(of_topic, place, timestamp, its_keys, its_values, responses)

    def _by_partition(
        self, topic: str, count: int, keys: list[bytes | None], values: list[bytes | None]
    ) -> dict[int, tuple[list[bytes | None], list[bytes | None]]]:
        """The messages by the partitions that their keys say; those without one by a queue of their own."""
        keyless = without_key(count)
        found: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for key, value in zip(keys, values, strict=True):
            chosen = self._partitioner(topic, key, count)
            columns = found.setdefault(keyless if chosen is None else chosen, ([], []))
            columns[0].append(key)
            columns[1].append(value)
        return found

    def _enqueue_to(
        self,
        of_topic: TopicQueues,
        partition: int,
        timestamp: int,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        responses: list[SpanResponse],
    ) -> None:
        """Queue messages for one partition, a batch at a time, so that room is waited for by batches too."""
        ends = running_sizes(keys, values)
        start = 0
        while start < len(values):
            with self._mutex:
                count = self._queues.room_for(of_topic, partition, ends, start)
                size = ends[start + count - 1] - (ends[start - 1] if start else 0)
                error = self._refusal(size if count == 1 else 0) or self._make_room(
                    size + count * BULK_OVERHEAD
                )
                if error is not None:
                    self.refused += count
                    topic = of_topic.topic
                    batch = Batch.failed(topic, partition, timestamp, self._lock, error, count)
                    index, should_wake = 0, False
                else:
                    some = slice(start, start + count)
                    batch, index, should_wake = self._queues.extend(
                        of_topic,
                        partition,
                        timestamp,
                        [None] * count if keys is None else keys[some],
                        values[some],
                        size,
                        self._now_ms(),
                    )
            if should_wake:
                self._network.wake()
            responses.append(SpanResponse(batch, index, count))
            start += count

    def _enqueue_unplaced(
        self,
        queues: TopicQueues,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
    ) -> tuple[Batch, int]:
        if not queues.unplaced:
            self._network.wake()
        return self._queues.append_unplaced(queues, timestamp, key, value, headers, size, self._now_ms()), 0

    def _refusal(self, size: int) -> Exception | None:
        """Why a message of this size cannot even wait. Raises where nothing can."""
        if self.is_closed:
            raise ClosedError("the producer is closed")
        if self._queues.fatal_error is not None:
            raise self._queues.fatal_error
        if size > self._size_max:
            return RecordTooLargeError(
                f"a message of {size} bytes; max.request.size and buffer.memory allow {self._size_max}"
            )
        return None

    def _make_room(self, cost: int) -> Exception | None:
        """Wait until `buffer.memory` has room for a message."""
        if self._queues.used + cost <= self._buffer_memory or self._queues.used == 0:
            return None
        since_ms = self._now_ms()
        self._queues.waiting_for_room += 1
        self._network.wake()
        try:
            has_room = self._wait_until(
                lambda: (
                    self._queues.used + cost <= self._buffer_memory
                    or self._queues.used == 0
                    or self.is_closed
                    or self._queues.fatal_error is not None
                ),
                self._max_block_ms,
            )
        finally:
            self._queues.waiting_for_room -= 1
            self.waited_ms += self._now_ms() - since_ms
        if self.is_closed:
            return ClosedError("the producer was closed while a message waited for room")
        if not has_room:
            return BufferFullError(
                f"buffer.memory={self._buffer_memory} has been used up for max.block.ms={self._max_block_ms}"
            )
        return self._queues.fatal_error

    def _failed(
        self, topic: str, partition: int | None, timestamp: int, error: Exception
    ) -> tuple[Batch, int]:
        self.refused += 1
        place = UNPLACED if partition is None else partition
        return Batch.failed(topic, place, timestamp, self._lock, error), 0
