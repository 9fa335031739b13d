"""Threads in which the calls of an asyncio producer wait: one for each call, because producers serve any
number of threads, and such calls are rare beside messages."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.errors import UndeliveredError
from holdfast_log.clients.feedback.connection_log import warn
from holdfast_log.clients.sending.producer_lock import ProducerLock

T = TypeVar("T")
_here = threading.local()
_EXIT_S = 1.0
"""How long the exit of the interpreter waits for calls to end."""
_under_way: weakref.WeakSet[_ThreadedCall] = weakref.WeakSet()


def is_call_thread() -> bool:
    """Whether the calling thread may wait: no event loop runs in it."""
    return getattr(_here, "is_call_thread", False)


class _ThreadedCall:
    """A call in a thread of its own. `lock` is that of the producer, once there is one."""

    def __init__(
        self,
        call: Callable[[], Any],
        future: asyncio.Future[Any],
        home: HomeLoop,
        lock: ProducerLock | None,
        undo: Callable[[Any], object] | None,
    ) -> None:
        self._call = call
        self._future = future
        self._home = home
        self._lock = lock
        self._undo = undo
        self._guard = threading.Lock()
        self._is_abandoned = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast {home.name} call", daemon=True)

    def start(self) -> None:
        _under_way.add(self)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def abandon(self, result: Any = None) -> threading.Thread:
        """Nobody waits for the call any more: end it, or undo it if it has ended with `result`. Returns the
        thread that ends once that is done."""
        with self._guard:
            self._is_abandoned = True
            has_ended = self._has_ended
            if not has_ended and self._lock is not None and self._thread.ident is not None:
                self._lock.interrupt(self._thread.ident)
        if not has_ended or self._undo is None or result is None:
            return self._thread
        undoing = threading.Thread(target=self._undo, args=(result,), daemon=True)
        undoing.start()
        return undoing

    def _run(self) -> None:
        _here.is_call_thread = True
        result, error = None, None
        try:
            result = self._call()
        except BaseException as failure:
            error = failure
        with self._guard:
            self._has_ended = True
            is_abandoned = self._is_abandoned
            if is_abandoned and self._lock is not None:
                self._lock.forget_interruption(threading.get_ident())
        is_lost = is_abandoned or not self._home.post(self._finish, result, error)
        if is_lost:
            self._note_lost(error)
        if is_lost and result is not None and self._undo is not None:
            self._undo(result)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():  # The caller was cancelled.
            self._note_lost(error)
        elif error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)

    def _note_lost(self, error: BaseException | None) -> None:
        """Losses are told once: if nobody waits for the call that tells them, they are logged."""
        if isinstance(error, UndeliveredError):
            warn(f"holdfast.{self._home.name}", str(error))


async def in_thread(
    home: HomeLoop,
    lock: ProducerLock | None,
    call: Callable[[], T],
    undo: Callable[[T], object] | None = None,
    undoing: set[threading.Thread] | None = None,
) -> T:
    """Make a call that waits in a thread of its own. If the caller is cancelled, the wait ends, and `undo`
    gets what the call has returned nevertheless; the thread that calls it is then added to `undoing`."""
    future = home.enter().create_future()
    threaded = _ThreadedCall(call, future, home, lock, undo)
    threaded.start()
    try:
        return cast("T", await future)
    except asyncio.CancelledError:
        has_result = future.done() and not future.cancelled() and future.exception() is None
        thread = threaded.abandon(future.result() if has_result else None)
        if undo is not None and undoing is not None:
            undoing.add(thread)
        raise


def wait_for(undoing: set[threading.Thread]) -> None:
    """Wait until what nobody waited for has been undone."""
    for thread in tuple(undoing):
        thread.join()
        undoing.discard(thread)


def end_calls() -> None:
    """At the exit of the interpreter: end the calls under way. Daemon threads do not live on, and one that
    has just taken the losses of its producer, to tell them, would tell nobody."""
    calls: Iterable[_ThreadedCall] = tuple(_under_way)
    for call in calls:
        call.abandon()
    until_s = time.monotonic() + _EXIT_S
    for call in calls:
        call.join(max(0.0, until_s - time.monotonic()))
