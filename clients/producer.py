"""The producer: `send` puts a message in a queue and returns at once; a background thread does the rest.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        response = producer.send(Message("flights", key="UA", value=b"..."))
        print(response.result().offset)

After the seed client-rewrite, "Proposed Producer API". A producer may be shared by any number of threads.
"""

from __future__ import annotations

import atexit
import random
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeAlias

from clients.config import Properties, producer_settings, required_acks
from clients.connection import Connection
from clients.errors import BufferFullError, ClosedError, RecordTooLargeError
from clients.message import Message
from clients.network import Network
from clients.partitioner import Partitioner, by_key
from clients.queues import RECORD_OVERHEAD, UNPLACED, Batch, Queues, TopicQueues, without_key
from clients.responses import GroupResponse, RecordResponse, SendResponse
from clients.sender import Sender, SenderSettings
from protocol.batches import Compression
from protocol.compression import codec_named
from protocol.records import TYPICAL_OVERHEAD, Headers

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
"""(topic, key or value) -> bytes, None for null. Raises what it likes: `send` raises it to its caller."""

_IDLE_WAIT_MS = 60_000


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
    the caller runs the loop by `turn`, and whatever waits runs it meanwhile. Raises ConfigError.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: Network | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
    ) -> None:
        settings = producer_settings(properties)
        self.settings = settings
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._max_record_size: int = settings["max.request.size"]
        self._buffer_memory: int = settings["buffer.memory"]
        self._max_block_ms: int = settings["max.block.ms"]
        codec = codec_named(settings["compression.type"])
        self._lock = threading.Condition()
        self._queues = Queues(self._lock, settings["batch.size"], codec, _level(codec, settings))
        self._connection = Connection(
            settings["bootstrap.servers"], settings, network=network, rng=rng, allow_auto_topic_creation=True
        )
        self._network = self._connection.network
        self._sender = Sender(self._queues, self._connection, _sender_settings(settings), partitioner)
        self._is_closing = False
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
        if len(messages) == 1:
            return self._send(messages[0])
        if not messages:
            raise ValueError("no message to send")
        return GroupResponse(tuple([self._send(message) for message in messages]))

    def _send(self, message: Message) -> SendResponse:
        topic = message.topic
        key = self._key_serializer(topic, message.key)
        value = self._value_serializer(topic, message.value)
        size = TYPICAL_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in message.headers:
            size += len(name) + len(content or b"") + 4
        now_ms = self._network.now_ms()
        timestamp = self._network.wall_ms() if message.timestamp is None else message.timestamp
        with self._lock:
            error = self._refusal(size) or self._make_room(size + RECORD_OVERHEAD)
            if error is not None:
                return self._failed(message, timestamp, error)
            queues = self._queues.topic(topic)
            partition = message.partition
            if partition is None:
                info = self._connection.metadata.topics.get(topic)
                if info is None or queues.unplaced:
                    return self._send_unplaced(queues, timestamp, key, value, message.headers, size, now_ms)
                count = len(info.partitions)
                chosen = self._partitioner(topic, key, count)
                partition = without_key(count) if chosen is None else chosen
            batch, index, should_wake = self._queues.append(
                queues, partition, timestamp, key, value, message.headers, size, now_ms
            )
        if should_wake:
            self._network.wake()
        return RecordResponse(batch, index)

    def _send_unplaced(
        self,
        queues: TopicQueues,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        now_ms: int,
    ) -> SendResponse:
        if not queues.unplaced:
            self._network.wake()
        return self._queues.append_unplaced(queues, timestamp, key, value, headers, size, now_ms)

    def _refusal(self, size: int) -> Exception | None:
        """Why a message of this size cannot even wait. Raises where nothing can."""
        if self._is_closing:
            raise ClosedError("the producer is closed")
        if self._sender.fatal_error is not None:
            raise self._sender.fatal_error
        limit = min(self._max_record_size, self._buffer_memory)
        if size > limit:
            return RecordTooLargeError(
                f"a message of {size} bytes; max.request.size and buffer.memory allow {limit}"
            )
        return None

    def _make_room(self, cost: int) -> Exception | None:
        """Wait until `buffer.memory` has room for a message."""
        if self._queues.used + cost <= self._buffer_memory or self._queues.used == 0:
            return None
        self._sender.waiting_for_room += 1
        self._network.wake()
        try:
            has_room = self._wait_until(
                lambda: (
                    self._queues.used + cost <= self._buffer_memory
                    or self._queues.used == 0
                    or self._is_closing
                    or self._sender.fatal_error is not None
                ),
                self._max_block_ms,
            )
        finally:
            self._sender.waiting_for_room -= 1
        if self._is_closing:
            return ClosedError("the producer was closed while a message waited for room")
        if not has_room:
            return BufferFullError(
                f"buffer.memory={self._buffer_memory} has been used up for max.block.ms={self._max_block_ms}"
            )
        return self._sender.fatal_error

    def _failed(self, message: Message, timestamp: int, error: Exception) -> SendResponse:
        partition = UNPLACED if message.partition is None else message.partition
        batch = Batch.failed(message.topic, partition, timestamp, self._lock, error)
        return RecordResponse(batch, 0)

    # Waiting and ending -------------------------------------------------------------------------------

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what waits without lingering, and wait until everything sent so far has its outcome.

        False where that took longer than `timeout_ms`.
        """
        with self._lock:
            pending = self._queues.pending()
            self._sender.is_flushing += 1
            self._network.wake()
            try:
                return self._wait_until(lambda: all(batch.is_settled for batch in pending), timeout_ms)
            finally:
                self._sender.is_flushing -= 1

    def close(self, timeout_ms: int | None = None) -> None:
        """Send what waits, for at most `timeout_ms`, then stop. What is not acknowledged by then fails with
        ClosedError. May be called again, and by a callback."""
        _close_at_exit.discard(self)
        is_own_thread = threading.current_thread() is self._thread
        if not self._is_closing and not is_own_thread:
            self.flush(timeout_ms)
        with self._lock:
            was_closing, self._is_closing = self._is_closing, True
            self._lock.notify_all()
        if self._thread is None:
            if not was_closing:
                self._end(self._closed_error())
            return
        self._network.wake()
        if not is_own_thread:
            self._thread.join()

    def __enter__(self) -> Producer:
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

    # The sending thread -------------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for a producer without a thread; waits at most `max_wait_ms`."""
        self._sender.turn(max_wait_ms)
        if self._sender.fatal_error is not None:
            self._sender.fail_all(self._sender.fatal_error)

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
            while not self._is_closing and self._sender.fatal_error is None:
                self._sender.turn(_IDLE_WAIT_MS)
            error = self._sender.fatal_error or error
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
