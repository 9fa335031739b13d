"""Who uses a consumer now: one thread of the application, or between its calls the heartbeat thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from holdfast_log.clients.errors import ConcurrentUseError, ForkedConsumerError


class ConsumerUse:
    """Lets one thread at a time use a consumer's parts.

    A second thread of the application is refused. The heartbeat thread waits: it takes its turns while the
    application is `away`, between two calls or in code of the application that a call runs.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._in_call = threading.Lock()
        """Held by the application's thread while it is in a method of the consumer."""
        self._in_turn = threading.Lock()
        """Held by the thread that may touch the connection and the membership."""
        self._user: int | None = None
        self._what = ""
        self._is_away = True

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return os.getpid() != self._pid

    def enter(self, what: str) -> tuple[bool, bool]:
        """The application calls the method `what`. Returns what `leave` needs.

        Raises ConcurrentUseError if another thread is in a method, ForkedConsumerError in a child process.
        """
        if self.is_forked:
            raise ForkedConsumerError(
                f"the consumer belongs to process {self._pid}, and this is its child process {os.getpid()}: "
                "two processes cannot share the connections, so make a consumer in the child"
            )
        me = threading.get_ident()
        is_outermost = self._user != me
        if is_outermost:
            if not self._in_call.acquire(blocking=False):
                raise ConcurrentUseError(self._who_uses_it(what))
            self._user, self._what = me, what
        was_away = self._is_away
        if was_away:
            self._in_turn.acquire()
            self._is_away = False
        return is_outermost, was_away

    def leave(self, entered: tuple[bool, bool]) -> None:
        """The method returns."""
        is_outermost, was_away = entered
        if was_away:
            self._is_away = True
            self._in_turn.release()
        if is_outermost:
            self._user = None
            self._in_call.release()

    @contextmanager
    def away(self) -> Iterator[None]:
        """For code of the application that a method runs: heartbeats can be sent meanwhile."""
        was_away = self._is_away
        if not was_away:
            self._is_away = True
            self._in_turn.release()
        try:
            yield
        finally:
            if not was_away:
                self._in_turn.acquire()
                self._is_away = False

    @contextmanager
    def beside(self) -> Iterator[None]:
        """For the heartbeat thread: waits until the application is away, and keeps it waiting."""
        with self._in_turn:
            yield

    def _who_uses_it(self, what: str) -> str:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        name = names.get(self._user, "that has ended")
        return (
            f"{what}() was called in thread {threading.current_thread().name}, but the consumer is in "
            f"{self._what}() in thread {name}. A consumer is not safe for use by several threads: use it in "
            "one thread, or make one for each. Only wake() may be called by any thread"
        )


P = ParamSpec("P")
R = TypeVar("R")


class _Guarded(Protocol):
    _use: ConsumerUse


S = TypeVar("S", bound=_Guarded)


def one_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Guards a method of a consumer: raises ConcurrentUseError while another thread is in one."""
    name = method.__name__

    @wraps(method)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> R:
        use = self._use
        entered = use.enter(name)
        try:
            return method(self, *arguments, **named)
        finally:
            use.leave(entered)

    return guarded
