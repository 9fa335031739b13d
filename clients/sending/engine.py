"""The engine of a producer: its queues, its connection, the sending loop and the thread that runs it.

Producers put records in through its `accumulator`, and wait, flush and close through its methods.
"""

from __future__ import annotations

import atexit
import random
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from clients.config import required_acks
from clients.connection.connection import Connection
from clients.connection.network import ClientNetwork
from clients.errors import ClosedError
from clients.feedback.events import OnEvent
from clients.fence import OwnerFence
from clients.sending.accumulator import RecordAccumulator
from clients.sending.batch import Batch
from clients.sending.partitioner import Partitioner
from clients.sending.queues import Queues
from clients.sending.sender import Sender
from clients.sending.settings import SenderSettings
from clients.sending.write_access import WriteAccess
from clients.settings import Settings
from protocol.batches import Compression
from protocol.compression import codec_named

if TYPE_CHECKING:
    from clients.feedback.snapshots import ProducerFeedback

_IDLE_WAIT_MS = 60_000


def producer_connection(
    settings: Settings,
    network: ClientNetwork | None,
    rng: random.Random | None,
    on_event: OnEvent | None,
) -> Connection:
    """The connection of a producer with these settings."""
    return Connection(
        settings["bootstrap.servers"],
        settings,
        network=network,
        rng=rng,
        allow_auto_topic_creation=True,
        on_event=on_event,
        kind="producer",
        raises_unreachable=False,
    )


class Closable(Protocol):
    """A producer that has an engine, and closes it."""

    def close(self, timeout_ms: int | None = None) -> None: ...


class SendingEngine:
    """Sends what the accumulator is given, over `connection`.

    `settings` are a producer's, checked. `access` says which partitions may be written; None is all of them.
    With a `fence`, every request proves that it is made for the owner of its partitions.
    The loop runs in a thread from `start` on. If that is never called, the host runs it by `turn`, and
    methods that wait run it meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        partitioner: Partitioner,
        access: WriteAccess | None = None,
        fence: OwnerFence | None = None,
    ) -> None:
        mutex = threading.RLock()
        self.lock = threading.Condition(mutex)
        """Guards the queues, and `access`. Notified when a batch has its outcome or access changes."""
        codec = codec_named(settings["compression.type"])
        # A batch filled by `send_many` takes all its memory at once: several must fit side by side.
        batch_size = min(settings["batch.size"], settings["buffer.memory"] // 8)
        self.queues = Queues(self.lock, batch_size, settings["linger.ms"], codec, _level(codec, settings))
        self.connection = connection
        self.network = connection.network
        self.sender = Sender(self.queues, connection, _sender_settings(settings), partitioner, access, fence)
        self.accumulator = RecordAccumulator(
            self.queues,
            mutex,
            self.network,
            partitioner,
            buffer_memory=settings["buffer.memory"],
            max_record_size=settings["max.request.size"],
            max_block_ms=settings["max.block.ms"],
            wait_until=self.wait_until,
        )
        self._thread: threading.Thread | None = None

    def start(self, producer: Closable) -> None:
        """Run the loop in a thread, which keeps `producer` alive until it ends.

        If the application does not close the producer, it is closed when the interpreter exits, so that sent
        messages are delivered.
        """
        self._thread = threading.Thread(
            target=self._run, args=(producer,), name="holdfast-producer", daemon=True
        )
        self._thread.start()
        _close_at_exit.add(producer)

    # State --------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.accumulator.is_closed

    @property
    def fatal_error(self) -> Exception | None:
        """Why nothing can be sent any more; None while sending is possible."""
        return self.queues.fatal_error

    def is_own_thread(self) -> bool:
        """Whether the caller is the engine's thread, as it is in callbacks."""
        return threading.current_thread() is self._thread

    def partitions_for(self, topic: str) -> int | None:
        """How many partitions a topic has; None while that is unknown."""
        info = self.connection.metadata.topics.get(topic)
        return None if info is None else len(info.partitions)

    def feedback(self) -> ProducerFeedback:
        """The counts so far. May be called by any thread."""
        from clients.sending.feedback import producer_feedback  # Slow to import, seldom used.

        with self.lock:
            return producer_feedback(
                self.connection.feedback(),
                self.sender.tally,
                self.queues.pending(),
                records_refused=self.accumulator.refused,
                buffer_used_bytes=self.queues.used,
                buffer_wait_ms=self.accumulator.waited_ms,
            )

    # Waiting and ending -------------------------------------------------------------------------------

    def wait_until(self, is_so: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Wait until a condition holds, at most `timeout_ms`; whether it does. The lock must be held."""
        if self._thread is not None:
            return self.lock.wait_for(is_so, None if timeout_ms is None else timeout_ms / 1000)
        deadline_ms = None if timeout_ms is None else self.network.now_ms() + timeout_ms
        while not is_so():
            left_ms = _IDLE_WAIT_MS if deadline_ms is None else deadline_ms - self.network.now_ms()
            if left_ms <= 0:
                return False
            self.turn(left_ms)
        return True

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what is queued without lingering, and wait until all of it has its outcome.

        False if that takes longer than `timeout_ms`.
        """
        with self.lock:
            pending = self.queues.pending()
            self.queues.flushing += 1
            self.network.wake()
            try:
                return self.wait_until(lambda: _all_settled(pending), timeout_ms)
            finally:
                self.queues.flushing -= 1

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most `timeout_ms`, then stop and close the connection.

        Messages not acknowledged by then fail with ClosedError. May be called again, and by a callback.
        """
        is_own_thread = self.is_own_thread()
        if not self.is_closed and not is_own_thread:
            self.flush(timeout_ms)
        with self.lock:
            was_closing, self.accumulator.is_closed = self.accumulator.is_closed, True
            self.lock.notify_all()
        if self._thread is None:
            if not was_closing:
                self._end(_closed_error())
            return
        self.network.wake()
        if not is_own_thread:
            self._thread.join()

    # The loop -----------------------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for an engine without a thread; waits at most `max_wait_ms`."""
        self.sender.turn(max_wait_ms)
        if self.queues.fatal_error is not None:
            self.sender.fail_all(self.queues.fatal_error)

    def _run(self, _kept_alive: Closable) -> None:
        error = _closed_error()
        try:
            while not self.accumulator.is_closed and self.queues.fatal_error is None:
                self.sender.turn(_IDLE_WAIT_MS)
            error = self.queues.fatal_error or error
        except Exception as failure:
            error = failure
            raise
        finally:
            self._end(error)

    def _end(self, error: Exception) -> None:
        # However the loop ended, every response gets an outcome.
        self.sender.fail_all(error)
        self.connection.close()


def _closed_error() -> Exception:
    return ClosedError("the producer was closed before the message was acknowledged")


def _all_settled(batches: list[Batch]) -> bool:
    """Whether all batches have their outcome. Settled ones leave the list, so that each is asked once."""
    while batches and batches[-1].is_settled:
        batches.pop()
    return not batches


def _level(codec: Compression, settings: Settings) -> int | None:
    levels = {Compression.GZIP: "compression.gzip.level", Compression.ZSTD: "compression.zstd.level"}
    return settings[levels[codec]] if codec in levels else None


def _sender_settings(settings: Settings) -> SenderSettings:
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
        bootstrap_timeout_ms=settings["bootstrap.timeout.ms"],
    )


_close_at_exit: weakref.WeakSet[Closable] = weakref.WeakSet()


@atexit.register
def _close_forgotten_producers() -> None:
    for producer in list(_close_at_exit):
        producer.close()
