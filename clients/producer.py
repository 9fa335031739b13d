"""The producer: `send` puts a message in a queue and returns at once; a background thread does the rest.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        response = producer.send(Message("flights", key="UA", value=b"..."))
        print(response.result().offset)

As in the client rewrite, "Proposed Producer API". A producer may be shared by any number of threads.
"""

from __future__ import annotations

import atexit
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from clients.config import Properties, producer_settings, required_acks
from clients.connection.connection import Connection
from clients.connection.network import ClientNetwork
from clients.errors import ClosedError, ConfigError
from clients.feedback.events import OnEvent
from clients.message import UNKNOWN_OFFSET, Message
from clients.sending.accumulator import RecordAccumulator
from clients.sending.batch import Batch
from clients.sending.columns import as_bytes, in_chunks
from clients.sending.expectations import ANY_EPOCH, NO_GUARDS, Expectation, guards_in
from clients.sending.partitioner import Partitioner, by_key
from clients.sending.queues import Queues
from clients.sending.responses import BulkResponse, GroupResponse, RecordResponse, SendResponse, SpanResponse
from clients.sending.sender import Sender
from clients.sending.settings import SenderSettings
from protocol.batches import Compression
from protocol.compression import codec_named
from protocol.record_codec import encode_headers
from protocol.records import TYPICAL_OVERHEAD
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.feedback.snapshots import ProducerFeedback
    from clients.ownership.write_access import ClaimedWriteAccess

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
"""(topic, key or value) -> bytes, None for null. Raises what it likes: `send` raises it to its caller."""

_IDLE_WAIT_MS = 60_000
_TIMESTAMP_END = 2**63
_PLAIN_TYPES = {bytes, NoneType}


def to_bytes(topic: str, value: Any) -> bytes | None:
    """The serializer for keys and values where none is given: bytes as they are, text as UTF-8, None as null.

    Raises TypeError for anything else.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{topic}: keys and values are bytes, str or None, not {type(value).__name__}; "
        "for other types give the producer a key_serializer or value_serializer"
    )


class Producer:
    """Sends messages. `properties` are Kafka's, from a dict or a properties file.

    Keys are serialized by the thread that calls `send`, since the partition follows from them, and values as
    well, since a message must not change once it is sent; encoding and compression are the background
    thread's. `partitioner` gets the serialized key. Without a thread (`is_threaded` false, for simulations)
    the caller runs the loop by `turn`, and whatever waits runs it meanwhile. `own` makes what the partitions
    written to have to be owned by (`clients.ownership`). The background thread tells `on_event` of what
    happens (`clients.feedback.events`). Raises ConfigError.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
        on_event: OnEvent | None = None,
        own: Callable[[Connection], ClaimedWriteAccess] | None = None,
    ) -> None:
        settings = producer_settings(properties)
        self.settings = settings
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        codec = codec_named(settings["compression.type"])
        mutex = threading.RLock()
        self._lock = threading.Condition(mutex)
        # A batch of what was sent in bulk gets its memory at once: some must fit in beside each other.
        batch_size = min(settings["batch.size"], settings["buffer.memory"] // 8)
        self._queues = Queues(self._lock, batch_size, settings["linger.ms"], codec, _level(codec, settings))
        self._connection = Connection(
            settings["bootstrap.servers"],
            settings,
            network=network,
            rng=rng,
            allow_auto_topic_creation=True,
            on_event=on_event,
        )
        self._network = self._connection.network
        self._has_serializers = key_serializer is not to_bytes or value_serializer is not to_bytes
        self._sender = Sender(
            self._queues,
            self._connection,
            _sender_settings(settings),
            partitioner,
            None if own is None else own(self._connection),
        )
        self._entrance = RecordAccumulator(
            self._queues,
            mutex,
            self._network,
            partitioner,
            buffer_memory=settings["buffer.memory"],
            max_record_size=settings["max.request.size"],
            max_block_ms=settings["max.block.ms"],
            wait_until=self._wait_until,
        )
        self._thread: threading.Thread | None = None
        if is_threaded:
            self._thread = threading.Thread(target=self._run, name="holdfast-producer", daemon=True)
            self._thread.start()
            _close_at_exit.add(self)

    # Sending ------------------------------------------------------------------------------------------

    def send(self, *messages: Message) -> SendResponse:
        """Queue messages to be sent, and return at once; what becomes of them, the response tells.

        Waits only where `buffer.memory` is used up, and for at most `max.block.ms`; a message for which there
        is no room even then ends with BufferFullError in its response. Raises ClosedError, TypeError for what
        cannot be serialized, and the error that has made this producer unusable, such as
        ProducerFencedError.
        """
        if len(messages) != 1:
            if not messages:
                raise ValueError("no message to send")
            return GroupResponse(tuple([self.send(message) for message in messages]))
        message = messages[0]
        if message.offset != UNKNOWN_OFFSET:
            return self._send_at(message, Expectation(message.offset))
        topic, key, value, headers = message.topic, message.key, message.value, message.headers
        if self._has_serializers or type(value) is not bytes or key is not None:
            key = as_bytes(topic, self._key_serializer(topic, key))
            value = as_bytes(topic, self._value_serializer(topic, value))
        size = TYPICAL_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            headers = tuple(headers)
            size += len(encode_headers(headers))
        timestamp = self._network.wall_ms() if message.timestamp is None else _time(message.timestamp)
        return RecordResponse(
            *self._entrance.enqueue(topic, message.partition, timestamp, key, value, headers, size)
        )

    def send_at(
        self,
        expected_offset: int,
        *messages: Message,
        last_leader_epoch: int = ANY_EPOCH,
        guards: Mapping[TopicPartition, int] = NO_GUARDS,
    ) -> SendResponse:
        """Queue messages of one partition, to be written only if its log ends at `expected_offset` (KIP-27).

        As `send` of messages with that `offset`, and those after it; a `last_leader_epoch` is what the record
        before the first has to have. Where the log ends elsewhere they fail with OffsetMismatchError, which
        says where, and with them all other messages with an `offset` that wait for the partition. Several
        messages are one batch, all or none, as far as they fit in `batch.size`. Needs
        `enable.idempotence`: ConfigError; and brokers of Holdfast: UnsupportedRequestError.

        `guards` are other partitions, and where their logs have to end as well; nothing is written to them.
        Where one ends elsewhere the messages fail with GuardMismatchError, which says which, and where. One
        broker judges all of it: with a guard that another leads they fail with GuardElsewhereError.
        """
        if not messages:
            raise ValueError("no message to send")
        with self._lock:
            responses: list[SendResponse] = []
            for index, message in enumerate(messages):
                if (message.topic, message.partition) != (messages[0].topic, messages[0].partition):
                    raise ValueError("messages for one partition, for they are to land one after the other")
                expected = Expectation(expected_offset + index)
                if index == 0 and message.partition is not None:
                    partition = TopicPartition(message.topic, message.partition)
                    all_guards = guards_in(partition, guards)
                    expected = Expectation(expected_offset, last_leader_epoch, all_guards)
                responses.append(self._send_at(message, expected))
        return responses[0] if len(responses) == 1 else GroupResponse(tuple(responses))

    def _send_at(self, message: Message, expected: Expectation) -> SendResponse:
        if expected.offset < 0 or message.partition is None:
            place = f"offset {expected.offset} of partition {message.partition}"
            raise ValueError(f"{place}: both have to be named")
        if not self.settings["enable.idempotence"]:
            raise ConfigError("a message with an offset needs enable.idempotence=true: a retry must not fail")
        key = as_bytes(message.topic, self._key_serializer(message.topic, message.key))
        value = as_bytes(message.topic, self._value_serializer(message.topic, message.value))
        headers = tuple(message.headers)
        size = TYPICAL_OVERHEAD + len(key or b"") + len(value or b"") + len(encode_headers(headers))
        timestamp = self._network.wall_ms() if message.timestamp is None else _time(message.timestamp)
        return RecordResponse(
            *self._entrance.enqueue_at(
                message.topic, message.partition, expected, timestamp, key, value, headers, size
            )
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> BulkResponse:
        """Queue many messages for one topic, as `send` would one by one, at a fraction of the cost.

        `values`, and `keys` if there are any, of equal number, may be columns of Arrow. What becomes of the
        messages is told by batches: the response's `responses` are `SpanResponse`s, in the order of the
        messages where they have no keys; with keys, in the order of each partition's. `timestamp`, in ms, is
        that of all. Raises as `send` does, ValueError also for no message at all, and for keys that are too
        few or too many: what comes before them has been queued by then.
        """
        timestamp = self._network.wall_ms() if timestamp is None else _time(timestamp)
        responses: list[SpanResponse] = []
        for some_values, some_keys in in_chunks(values, keys):
            value_column = self._serialized(topic, some_values, self._value_serializer)
            key_column = None
            if some_keys is not None:
                key_column = self._serialized(topic, some_keys, self._key_serializer)
            self._entrance.enqueue_columns(topic, partition, timestamp, key_column, value_column, responses)
        if not responses:
            raise ValueError("no message to send")
        return BulkResponse(tuple(responses))

    def _serialized(self, topic: str, column: list[Any], serializer: Serializer) -> list[bytes | None]:
        if serializer is to_bytes and set(map(type, column)) <= _PLAIN_TYPES:
            return column
        return [as_bytes(topic, serializer(topic, item)) for item in column]

    # Waiting and ending -------------------------------------------------------------------------------

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what waits without lingering, and wait until everything sent so far has its outcome.

        False where that took longer than `timeout_ms`.
        """
        with self._lock:
            pending = self._queues.pending()
            self._queues.flushing += 1
            self._network.wake()
            try:
                return self._wait_until(lambda: _all_settled(pending), timeout_ms)
            finally:
                self._queues.flushing -= 1

    def close(self, timeout_ms: int | None = None) -> None:
        """Send what waits, for at most `timeout_ms`, then stop. What is not acknowledged by then fails with
        ClosedError. May be called again, and by a callback."""
        _close_at_exit.discard(self)
        is_own_thread = self._is_own_thread()
        if not self._entrance.is_closed and not is_own_thread:
            self.flush(timeout_ms)
        with self._lock:
            was_closing, self._entrance.is_closed = self._entrance.is_closed, True
            self._lock.notify_all()
        if self._thread is None:
            if not was_closing:
                self._end(self._closed_error())
            return
        self._network.wake()
        if not is_own_thread:
            self._thread.join()

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0 if kind is KeyboardInterrupt else None)

    # Looking ------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> int | None:
        """How many partitions a topic has, as far as this producer knows."""
        info = self._connection.metadata.topics.get(topic)
        return None if info is None else len(info.partitions)

    def feedback(self) -> ProducerFeedback:
        """What has become of what was sent, and what was asked of brokers. May be called by any thread."""
        from clients.sending.feedback import producer_feedback  # Slow to import, and many do without.

        with self._lock:
            return producer_feedback(
                self._connection.feedback(),
                self._sender.tally,
                self._queues.pending(),
                records_refused=self._entrance.refused,
                buffer_used_bytes=self._queues.used,
                buffer_wait_ms=self._entrance.waited_ms,
            )

    # The sending thread -------------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for a producer without a thread; waits at most `max_wait_ms`."""
        self._sender.turn(max_wait_ms)
        if self._queues.fatal_error is not None:
            self._sender.fail_all(self._queues.fatal_error)

    def _wait_until(self, is_so: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Wait, with the lock, until it is so; whether it is."""
        if self._thread is not None:
            return self._lock.wait_for(is_so, None if timeout_ms is None else timeout_ms / 1000)
        deadline_ms = None if timeout_ms is None else self._network.now_ms() + timeout_ms
        while not is_so():
            left_ms = _IDLE_WAIT_MS if deadline_ms is None else deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                return False
            self.turn(left_ms)
        return True

    def _run(self) -> None:
        error = self._closed_error()
        try:
            while not self._entrance.is_closed and self._queues.fatal_error is None:
                self._sender.turn(_IDLE_WAIT_MS)
            error = self._queues.fatal_error or error
        except Exception as failure:
            error = failure
            raise
        finally:
            self._end(error)

    def _end(self, error: Exception) -> None:
        # Whatever ended the loop, no future is left without an outcome.
        self._sender.fail_all(error)
        self._connection.close()

    def _closed_error(self) -> Exception:
        return ClosedError("the producer was closed before the message was acknowledged")


def _time(timestamp_ms: int) -> int:
    """A message's own timestamp. Raises ValueError for what no record can have."""
    if not 0 <= timestamp_ms < _TIMESTAMP_END:
        raise ValueError(f"{timestamp_ms} is no timestamp: ms since 1970, not negative")
    return timestamp_ms


def _all_settled(batches: list[Batch]) -> bool:
    """Whether all are; those that are leave the list, so that nobody is asked for ever."""
    while batches and batches[-1].is_settled:
        batches.pop()
    return not batches


def _level(codec: Compression, settings: Any) -> int | None:
    levels = {Compression.GZIP: "compression.gzip.level", Compression.ZSTD: "compression.zstd.level"}
    return settings[levels[codec]] if codec in levels else None


def _sender_settings(settings: Any) -> SenderSettings:
    return SenderSettings(
        acks=required_acks(settings),
        is_idempotent=settings["enable.idempotence"],
        linger_ms=settings["linger.ms"],
        max_request_size=settings["max.request.size"],
        max_in_flight=settings["max.in.flight.requests.per.connection"],
        retries=settings["retries"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        retry_backoff_max_ms=settings["retry.backoff.max.ms"],
        delivery_timeout_ms=settings["delivery.timeout.ms"],
        max_block_ms=settings["max.block.ms"],
        request_timeout_ms=settings["request.timeout.ms"],
    )


_close_at_exit: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _close_forgotten_producers() -> None:
    """What was sent is sent, even where nobody thought of closing."""
    for producer in list(_close_at_exit):
        producer.close()
