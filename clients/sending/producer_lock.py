"""The lock of a producer, which every batch has. It also knows which threads must not wait for the sending
thread, and whom to ask why a batch waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from holdfast_log.clients.connection.network import interrupted
from holdfast_log.clients.errors import ForkedError, InsideCallbackError

T = TypeVar("T")
RunUntil: TypeAlias = Callable[[Callable[[], bool], int | None], bool]
"""Runs a producer's loop until a condition holds, at most a number of ms; whether the condition holds."""


class ProducerLock(threading.Condition):
    """Guards a producer's queues. Notified when a batch has its outcome or access changes."""

    def __init__(self, mutex: threading.RLock) -> None:
        super().__init__(mutex)
        self.sending_thread: threading.Thread | None = None
        """The thread that runs the loop; None if the caller runs it."""
        self.forked_from: int | None = None
        """In a process that was forked after the producer was made: the id of its parent."""
        self.why_waiting: Callable[[Any], str] = lambda batch: ""
        """Why a `Batch` has no outcome yet, in words. The lock must be held."""
        self.run_until: RunUntil | None = None
        """For those who wait for a producer without a thread; None if it has one."""
        self.on_notify: Callable[[], None] | None = None
        """Called with the lock whenever those who wait are notified, for who waits in another way."""
        self._interrupted: set[int] = set()

    def notify_all(self) -> None:
        """Wake every thread that waits."""
        super().notify_all()
        if self.on_notify is not None:
            self.on_notify()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """As Condition.wait_for. Raises InterruptedCall in a thread that was interrupted."""
        me, interrupted_threads = threading.get_ident(), self._interrupted

        def has_ended() -> T | bool:
            return me in interrupted_threads or predicate()

        outcome = super().wait_for(has_ended, timeout)
        if me in interrupted_threads:
            interrupted_threads.discard(me)
            raise interrupted("a call of a producer")
        return cast("T", outcome)

    def interrupt(self, thread: int) -> None:
        """Have the wait under way in the thread with this identifier, or its next one, raise
        InterruptedCall."""
        with self:
            self._interrupted.add(thread)
            super().notify_all()

    def forget_interruption(self, thread: int) -> None:
        """Undo an `interrupt` that no wait has met: the thread's call has ended."""
        with self:
            self._interrupted.discard(thread)

    def is_sending_thread(self) -> bool:
        """Whether the caller is the sending thread, as it is in callbacks."""
        return threading.current_thread() is self.sending_thread

    def forked_error(self) -> ForkedError | None:
        """Why this process cannot use the producer; None if it can."""
        if self.forked_from is None:
            return None
        return ForkedError(
            f"this producer belongs to process {self.forked_from}, and this process, {os.getpid()}, is a "
            "fork of it, without the thread that sends: make a producer in each process, after the fork"
        )

    def check_may_wait(self, call: str) -> None:
        """Raise InsideCallbackError or ForkedError if `call` would wait for ever."""
        forked = self.forked_error()
        if forked is not None:
            raise forked
        if self.is_sending_thread():
            raise InsideCallbackError(
                f"{call} was called inside a callback: it would wait for the producer's thread, which runs "
                "the callback. Call it in another thread, or look at `done` and `error` of the response"
            )
