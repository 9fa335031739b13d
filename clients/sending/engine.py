"""The engine of a producer: its queues, its connection, the sending loop and the thread that runs it.

Producers put records in through its `accumulator`, and wait, flush and close through its methods.
"""

from __future__ import annotations

import atexit
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast_log.clients.config import required_acks
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ClosedError, RequestTimeoutError
from holdfast_log.clients.feedback.connection_log import INTERVAL_MS, warn
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending import forks
from holdfast_log.clients.sending.accumulator import RecordAccumulator
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.partitioner import Partitioner
from holdfast_log.clients.sending.producer_lock import ProducerLock
from holdfast_log.clients.sending.queues import Queues
from holdfast_log.clients.sending.sender import Sender
from holdfast_log.clients.sending.settings import SenderSettings
from holdfast_log.clients.sending.standstill import why_waiting
from holdfast_log.clients.sending.write_access import WriteAccess
from holdfast_log.clients.settings import Settings
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.compression import codec_named

if TYPE_CHECKING:
    from holdfast_log.clients.feedback.snapshots import ProducerFeedback
    from holdfast_log.clients.sending.transaction_port import TransactionPort

_IDLE_WAIT_MS = 60_000
_END_MS = 1_000
"""How long `close` waits for the thread to end, beyond its timeout."""
_EXIT_MS = 10_000
_EXIT_HURRIED_MS = 1_000
"""How long the exit of the interpreter waits for all producers that were not closed; the second value after
Ctrl-C, and without a connection to any broker."""


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
    With `transactions`, which gets the queues, every record is part of a transaction.
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
        transactions: Callable[[Queues], TransactionPort] | None = None,
    ) -> None:
        mutex = threading.RLock()
        self.lock = ProducerLock(mutex)
        """Guards the queues, and `access`. Notified when a batch has its outcome or access changes."""
        codec = codec_named(settings["compression.type"])
        # A batch filled by `send_many` takes all its memory at once: several must fit side by side.
        batch_size = min(settings["batch.size"], settings["buffer.memory"] // 8)
        self.queues = Queues(self.lock, batch_size, settings["linger.ms"], codec, _level(codec, settings))
        self.connection = connection
        self.network = connection.network
        self.lock.why_waiting = partial(why_waiting, connection=connection, access=access)
        self.transactions = None if transactions is None else transactions(self.queues)
        self.sender = Sender(
            self.queues,
            connection,
            _sender_settings(settings),
            partitioner,
            access,
            fence,
            self.transactions,
        )
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
        if self.transactions is not None:
            self.accumulator.on_refusal = self.transactions.failed
        self._thread: threading.Thread | None = None
        self._unsettled = ""
        """What had no outcome when `close` gave up waiting, and why, for the error of the records."""
        self._next_warning_ms = 0
        self.lock.run_until = self._run_until

    def start(self, producer: Closable) -> None:
        """Run the loop in a thread, which keeps `producer` alive until it ends.

        If the application does not close the producer, it is closed when the interpreter exits, so that sent
        messages are delivered.
        """
        self.lock.run_until = None
        self._thread = self.lock.sending_thread = threading.Thread(
            target=self._run, args=(producer,), name="holdfast-producer", daemon=True
        )
        self._thread.start()
        forks.watched.add(self)
        _open_at_exit[self] = producer

    # State --------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.queues.is_closed

    @property
    def fatal_error(self) -> Exception | None:
        """Why nothing can be sent any more; None while sending is possible."""
        return self.queues.fatal_error

    def is_own_thread(self) -> bool:
        """Whether the caller is the engine's thread, as it is in callbacks."""
        return self.lock.is_sending_thread()

    def has_forked(self, parent: int) -> None:
        """This process is a fork of `parent`: nothing can be sent here. Called with the lock."""
        self.lock.forked_from = parent
        self.queues.fatal_error = self.lock.forked_error()

    def partitions_for(self, topic: str) -> int | None:
        """How many partitions a topic has; None while that is unknown."""
        info = self.connection.metadata.topics.get(topic)
        return None if info is None else len(info.partitions)

    def feedback(self) -> ProducerFeedback:
        """The counts so far. May be called by any thread."""
        from holdfast_log.clients.sending.feedback import producer_feedback  # Slow to import, seldom used.

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

    def _run_until(self, is_so: Callable[[], bool], timeout_ms: int | None) -> bool:
        with self.lock:
            return self.wait_until(is_so, timeout_ms)

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what is queued without lingering, and wait until all of it has its outcome.

        False if that takes longer than `timeout_ms`; a warning then says why, at most every 30 s. Raises
        UndeliveredError for failures that nobody has looked at, InsideCallbackError, ForkedError.
        """
        self.lock.check_may_wait("flush()")
        has_settled = self.settle(timeout_ms)
        if not has_settled:
            self._warn_unsettled(timeout_ms)
        self.raise_losses()
        return has_settled

    def _warn_unsettled(self, timeout_ms: int | None) -> None:
        now_ms = self.network.now_ms()
        unsettled = self._why_unsettled()
        if timeout_ms and unsettled and now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + INTERVAL_MS
            warn(self.connection.log_name, f"flush(timeout_ms={timeout_ms}) returned False: {unsettled}")

    def _why_unsettled(self) -> str:
        """How many records have no outcome, and what the oldest of them waits for; empty if there is none."""
        with self.lock:
            waiting = [batch for batch in self.queues.pending() if not batch.is_done]
            if not waiting:
                return ""
            count = sum(map(len, waiting))
            counted = "1 message has" if count == 1 else f"{count} messages have"
            oldest = min(waiting, key=lambda batch: batch.created_ms)
            return f"{counted} no outcome yet: {self.lock.why_waiting(oldest)}"

    def settle(self, timeout_ms: int | None) -> bool:
        """As `flush`, without raising anything."""
        with self.lock:
            pending = self.queues.pending()
            self.queues.flushing += 1
            self.network.wake()
            try:
                return self.wait_until(lambda: _all_settled(pending), timeout_ms)
            finally:
                self.queues.flushing -= 1

    def raise_losses(self) -> None:
        """Raise UndeliveredError if records have failed and nobody has looked at that. Of records in a
        transaction its end tells."""
        with self.lock:
            undelivered = self.queues.losses.take()
        if undelivered is not None and self.transactions is None:
            raise undelivered

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most `timeout_ms`, then stop and close the connection.

        Messages not acknowledged by then fail with ClosedError. Raises UndeliveredError as `flush` does, and
        RequestTimeoutError if the thread cannot end in that time. May be called again. In a callback it must
        not wait: with a `timeout_ms` of 0 it stops at once, else it raises InsideCallbackError. In a forked
        process it does nothing.
        """
        if self.lock.forked_from is not None:
            self.queues.is_closed = True
            return
        if timeout_ms != 0:
            self.lock.check_may_wait("close()")
        since_ms = self.network.now_ms()
        if not self.is_closed and timeout_ms != 0:
            self.settle(timeout_ms)
        with self.lock:
            if not self.is_closed:
                self._unsettled = self._why_unsettled()
            was_closing, self.queues.is_closed = self.queues.is_closed, True
            self.lock.notify_all()
        _open_at_exit.pop(self, None)
        if self._thread is None:
            if not was_closing:
                self._end(_closed_error(self._unsettled))
        else:
            self.network.wake()
            if self.is_own_thread():
                return  # The thread ends, and fails what is left, after the callback.
            spent_ms = self.network.now_ms() - since_ms
            self._join(None if timeout_ms is None else max(0, timeout_ms - spent_ms) + _END_MS)
        self.raise_losses()

    def _join(self, timeout_ms: int | None) -> None:
        """Wait for the thread, which a callback or the look-up of a name can hold up."""
        assert self._thread is not None
        self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
        if self._thread.is_alive():
            with self.lock:
                count = sum(len(batch) for batch in self.queues.pending() if not batch.is_done)
            raise RequestTimeoutError(
                f"the producer's thread has not ended within {timeout_ms} ms: a callback or the look-up of a "
                f"host name holds it up. {count} messages have no outcome"
            )

    # The loop -----------------------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for an engine without a thread; waits at most `max_wait_ms`."""
        self.sender.turn(max_wait_ms)
        if self.queues.fatal_error is not None:
            self.sender.fail_all(self.queues.fatal_error)

    def _run(self, _kept_alive: Closable) -> None:
        error: Exception = ClosedError("the producer was closed")
        try:
            while not self.queues.is_closed and self.queues.fatal_error is None:
                self.sender.turn(_IDLE_WAIT_MS)
            error = self.queues.fatal_error or _closed_error(self._unsettled)
        except Exception as failure:
            error = failure
            raise
        finally:
            self._end(error)

    def _end(self, error: Exception) -> None:
        # However the loop ended, every response gets an outcome.
        self.sender.fail_all(error)
        self.connection.close()


def _closed_error(unsettled: str) -> Exception:
    detail = "" if not unsettled else f"; when close() stopped waiting, {unsettled}"
    return ClosedError(f"the producer was closed before the message was acknowledged{detail}")


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


_open_at_exit: weakref.WeakKeyDictionary[SendingEngine, Closable] = weakref.WeakKeyDictionary()
"""The producers to close when the interpreter exits."""


@atexit.register
def _close_forgotten_producers() -> None:
    """Close what the application did not: for a bounded time, and with a warning about what was lost.

    Without a connection to any broker, and after Ctrl-C, the time is short: nothing would be delivered, or
    the user does not want to wait.
    """
    was_interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    since_s = time.monotonic()
    for engine, producer in list(_open_at_exit.items()):
        spent_ms = int((time.monotonic() - since_s) * 1000)
        try:
            has_settled = engine.settle(max(0, _EXIT_HURRIED_MS - spent_ms))
            if not has_settled and not was_interrupted and engine.connection.is_connected():
                engine.settle(max(0, _EXIT_MS - spent_ms))
            producer.close(0)
        except Exception as error:
            warn(engine.connection.log_name, f"at the exit of the interpreter: {error}")
