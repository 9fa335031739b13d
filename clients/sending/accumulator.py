"""Where the application's threads put records: checks, the choice of a partition, and the wait for room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import repeat

from holdfast_log.clients.arguments import PARTITION_NUMBER
from holdfast_log.clients.connection.network import ClientNetwork, SystemNetwork
from holdfast_log.clients.errors import BufferFullError, ClosedError, RecordTooLargeError
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.columns import RecordColumns
from holdfast_log.clients.sending.expectations import Expectation, KeyExpectation
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.clients.sending.queues import (
    BULK_OVERHEAD,
    RECORD_OVERHEAD,
    UNPLACED,
    Queues,
    TopicQueues,
    unplaceable,
)
from holdfast_log.clients.sending.record import SerializedRecord
from holdfast_log.clients.sending.responses import RecordResponse, SpanResponse
from holdfast_log.protocol.batches import HEADER_SIZE
from holdfast_log.protocol.key_hash import murmur2
from holdfast_log.protocol.records import TYPICAL_OVERHEAD
from holdfast_log.protocol.send_fields import SenderFields


class NeedsRoom(Exception):
    """There is no room in `buffer.memory`, and the calling thread may not wait for it."""


class RecordAccumulator:
    """Puts serialized records in their queues. Any number of threads may call it.

    `mutex` is the lock under the queues' condition: entering it directly costs a third of entering the
    condition. `wait_until` waits, with the lock, until a condition holds or so many ms have passed, and
    returns whether the condition holds.
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
        self.refused = 0
        """How many records were refused so far. Guarded by the lock."""
        self.waited_ms = 0
        """Sum of the times for which callers have waited for room. Guarded by the lock."""
        self.on_refusal: Callable[[Exception], None] | None = None
        """Called with the lock, and the error of a record that is refused."""
        self.may_wait: Callable[[], bool] | None = None
        """Whether the calling thread may wait for room; if not, NeedsRoom is raised, and nothing was queued.
        None if every thread may."""
        self.gives_up = False
        """Whether a caller that may not wait gets BufferFullError instead of NeedsRoom: it has waited. Set
        only around its call, with the lock."""
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

    def serve(self, sender: SenderFields) -> None:
        """Give the compiled `send` what it needs to do the usual of `enqueue` itself."""
        sender._acquire, sender._release = self._mutex.acquire, self._mutex.release
        sender._queues = self._queues
        sender._wall_ms = None if type(self._network) is SystemNetwork else self._network.wall_ms
        sender._murmur2 = murmur2 if self._partitioner is by_key else None
        sender._size_max, sender._buffer_memory = self._size_max, self._buffer_memory

    # One record ---------------------------------------------------------------------------------------

    def enqueue(self, topic: str, partition: int | None, record: SerializedRecord) -> RecordResponse:
        """Queue a record; the response gets its outcome."""
        queues = self._queues
        size = record[4]
        with self._mutex:
            if (
                size > self._size_max
                or queues.used + size + RECORD_OVERHEAD > self._buffer_memory
                or queues.is_closed
                or queues.fatal_error is not None
                or queues.barrier is not None
            ):
                error = self._refusal(size) or self._make_room(size + RECORD_OVERHEAD)
                if error is not None:
                    return self._failed(topic, partition, record, error)
            of_topic = queues.topics.get(topic) or queues.topic(topic)
            if partition is None:
                count = of_topic.partition_count
                if not count:
                    return self._enqueue_unplaced(of_topic, record)
                partitioner = self._partitioner  # A plain name is faster to call than an attribute.
                partition = partitioner(topic, record[1], count)
                if partition is None:
                    partition = of_topic.keyless_partition
            elif type(partition) is not int or partition < 0:
                partition = _checked_partition(topic, partition)
            batch, index, should_wake = queues.append(of_topic, partition, record, self._now_ms)
        if should_wake:
            self._network.wake()
        return RecordResponse(batch, index)

    def enqueue_at(
        self, topic: str, partition: int, expected: Expectation, records: Sequence[SerializedRecord]
    ) -> list[RecordResponse]:
        """As `enqueue`, for records of one batch that is written, all or none of it, only at the offset that
        it expects. Returns their responses, in order."""
        partition = _checked_partition(topic, partition)
        size = sum(record[4] for record in records)
        with self._mutex:
            error = self._refusal_at(size, len(records))
            error = error or self._make_room(size + len(records) * RECORD_OVERHEAD)
            if error is not None:
                return [self._failed(topic, partition, record, error) for record in records]
            queue = self._queues.topic(topic).queue(partition)
            batch, first, should_wake = self._queues.append_at(queue, expected, records, size, self._now_ms())
        if should_wake:
            self._network.wake()
        return [RecordResponse(batch, first + index) for index in range(len(records))]

    def enqueue_versioned(
        self, topic: str, partition: int | None, expected: KeyExpectation, record: SerializedRecord
    ) -> RecordResponse:
        """As `enqueue`, for a record that depends on the last record with its key."""
        if partition is not None:
            partition = _checked_partition(topic, partition)
        with self._mutex:
            error = self._refusal(record[4]) or self._make_room(record[4] + RECORD_OVERHEAD)
            if error is not None:
                return self._failed(topic, partition, record, error)
            of_topic, now_ms = self._queues.topic(topic), self._now_ms()
            if partition is None and of_topic.partition_count:
                partition = self._partitioner(topic, record[1], of_topic.partition_count)
                if partition is None:
                    raise unplaceable(topic)
            if partition is None:
                batch = self._queues.append_unplaced(of_topic, record, now_ms, expected)
            else:
                queue = of_topic.queue(partition)
                batch = self._queues.append_versioned(queue, expected, record, now_ms)
        self._network.wake()
        return RecordResponse(batch, 0)

    def _enqueue_unplaced(self, queues: TopicQueues, record: SerializedRecord) -> RecordResponse:
        if not queues.unplaced:
            self._network.wake()
        return RecordResponse(self._queues.append_unplaced(queues, record, self._now_ms()), 0)

    # Many records -------------------------------------------------------------------------------------

    def enqueue_columns(
        self, topic: str, partition: int | None, columns: RecordColumns, responses: list[SpanResponse]
    ) -> None:
        """Queue the records of one topic, and add their responses to `responses`."""
        if partition is not None:
            partition = _checked_partition(topic, partition)
        with self._mutex:
            of_topic = self._queues.topic(topic)
            count, keyless = of_topic.partition_count, of_topic.keyless_partition
        if partition is None and not count:
            for key, value in zip(columns.keys or repeat(None), columns.values, strict=False):
                size = TYPICAL_OVERHEAD + len(key or b"") + len(value or b"")
                response = self.enqueue(topic, None, (columns.timestamp, key, value, b"", size))
                responses.append(response.as_span())
            return
        if partition is not None or columns.keys is None:
            self._enqueue_to(of_topic, keyless if partition is None else partition, columns, responses)
            return
        for place, part in self._by_partition(topic, count, keyless, columns).items():
            self._enqueue_to(of_topic, place, part, responses)

    def _by_partition(
        self, topic: str, count: int, keyless: int, columns: RecordColumns
    ) -> dict[int, RecordColumns]:
        """The records by the partitions that the partitioner chooses; those without one in `keyless`."""
        found: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for key, value in zip(columns.keys or (), columns.values, strict=True):
            chosen = self._partitioner(topic, key, count)
            keys, values = found.setdefault(keyless if chosen is None else chosen, ([], []))
            keys.append(key)
            values.append(value)
        return {place: RecordColumns(columns.timestamp, *lists) for place, lists in found.items()}

    def _enqueue_to(
        self, of_topic: TopicQueues, partition: int, columns: RecordColumns, responses: list[SpanResponse]
    ) -> None:
        """Queue records of one partition, a batch at a time, so that the wait for room is for a batch too."""
        ends = columns.running_sizes()
        start = 0
        while start < len(columns):
            with self._mutex:
                count = self._queues.room_for(of_topic, partition, ends, start)
                size = ends[start + count - 1] - (ends[start - 1] if start else 0)
                error = self._refusal(size if count == 1 else 0) or self._make_room(
                    size + count * BULK_OVERHEAD
                )
                if error is not None:
                    self._note_refused(error, count)
                    timestamp = columns.timestamp
                    batch = Batch.failed(
                        of_topic.topic, partition, timestamp, self._lock, self._queues.losses, error, count
                    )
                    index, should_wake = 0, False
                else:
                    part = columns.part(start, start + count)
                    batch, index, should_wake = self._queues.extend(
                        of_topic, partition, part, size, self._now_ms()
                    )
            if should_wake:
                self._network.wake()
            responses.append(SpanResponse(batch, index, count))
            start += count

    # Refusals and room --------------------------------------------------------------------------------

    def _refusal(self, size: int) -> Exception | None:
        """Why a record of this size can never be queued; None if it can. Raises if no record can."""
        if self._queues.is_closed:
            raise ClosedError("the producer is closed")
        if self._queues.fatal_error is not None:
            self._queues.losses.know(self._queues.fatal_error)
            raise self._queues.fatal_error
        if self._queues.barrier is not None:
            raise self._queues.barrier()
        if size > self._size_max:
            return RecordTooLargeError(
                f"a message of {size} bytes: max.request.size and buffer.memory allow {self._size_max}"
            )
        return None

    def _refusal_at(self, size: int, count: int) -> Exception | None:
        """As `_refusal`, for records that must fit into one batch."""
        queues = self._queues
        if count == 1 or queues.is_closed or queues.fatal_error is not None or queues.barrier is not None:
            return self._refusal(size)
        if HEADER_SIZE + size > self._size_max:
            return RecordTooLargeError(
                f"the {count} messages of one send_at make a batch of {HEADER_SIZE + size} bytes, which must "
                "fit into one request, because they are written all or none. max.request.size and "
                f"buffer.memory allow {self._size_max} bytes. Nothing was sent: raise these, or send fewer "
                "messages at once"
            )
        return None

    def _make_room(self, cost: int) -> Exception | None:
        """Wait until `buffer.memory` has `cost` bytes left; the error if it has not after `max.block.ms`."""
        if self._queues.used + cost <= self._buffer_memory or self._queues.used == 0:
            return None
        if self.may_wait is not None and not self.may_wait():
            if not self.gives_up:
                raise NeedsRoom
            return self._buffer_full()
        since_ms = self._now_ms()
        self._queues.waiting_for_room += 1
        self._network.wake()
        try:
            has_room = self._wait_until(
                lambda: (
                    self._queues.used + cost <= self._buffer_memory
                    or self._queues.used == 0
                    or self._queues.is_closed
                    or self._queues.fatal_error is not None
                    or self._queues.barrier is not None
                ),
                self._max_block_ms,
            )
        finally:
            self._queues.waiting_for_room -= 1
            self.waited_ms += self._now_ms() - since_ms
        if self._queues.is_closed:
            return ClosedError("the producer was closed while a message waited for room")
        if not has_room:
            return self._buffer_full()
        barrier = self._queues.barrier
        return barrier() if self._queues.fatal_error is None and barrier else self._queues.fatal_error

    def _buffer_full(self) -> BufferFullError:
        oldest = min(self._queues.pending(), key=lambda batch: batch.created_ms, default=None)
        why = "" if oldest is None else f"; the oldest message waits: {self._lock.why_waiting(oldest)}"
        return BufferFullError(
            f"buffer.memory={self._buffer_memory} has been used up for max.block.ms={self._max_block_ms}{why}"
        )

    def _note_refused(self, error: Exception, count: int) -> None:
        self.refused += count
        if self.on_refusal is not None:
            self.on_refusal(error)

    def _failed(
        self, topic: str, partition: int | None, record: SerializedRecord, error: Exception
    ) -> RecordResponse:
        self._note_refused(error, 1)
        place = UNPLACED if partition is None else partition
        losses = self._queues.losses
        return RecordResponse(Batch.failed(topic, place, record[0], self._lock, losses, error), 0)


def _checked_partition(topic: str, partition: int) -> int:
    """The partition that a message names. Raises TypeError or ValueError for what cannot be its number."""
    number: int = PARTITION_NUMBER.check("", f"the partition of a message for {topic}", partition)
    return number
