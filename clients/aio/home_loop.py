"""The event loop that an asyncio client belongs to: what other threads may ask of it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

from holdfast_log.clients.errors import WrongLoopError

_UNTOLD_MAX = 1_000


class CallbackRun:
    """One run of an application's callback, for which a client's thread waits."""

    __slots__ = ("error", "is_done", "owner", "result", "serves", "task")

    def __init__(self, owner: object, *, serves: bool) -> None:
        self.owner = owner
        """The thread that waits."""
        self.serves = serves
        """Whether it makes other calls of the client meanwhile."""
        self.is_done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.task: asyncio.Future[Any] | None = None


_inside: ContextVar[CallbackRun | None] = ContextVar("holdfast_callback", default=None)


def callback_around(owner: object) -> CallbackRun | None:
    """The callback that makes this call, or whose task does, while `owner` waits for its end."""
    run = _inside.get()
    return run if run is not None and run.owner is owner and not run.is_done else None


class HomeLoop:
    """The loop of the client `name`: the one that runs when the client is made, or else the first in which a
    method of it is awaited."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._untold: deque[Callable[[], None]] = deque(maxlen=_UNTOLD_MAX)
        """Calls that were made before the loop was known."""
        self._tasks: set[asyncio.Future[Any]] = set()
        with suppress(RuntimeError):  # The client is made before its loop runs.
            self.loop = asyncio.get_running_loop()

    @property
    def is_closed(self) -> bool:
        """Whether the loop can run nothing any more."""
        return self.loop is not None and self.loop.is_closed()

    def enter(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises WrongLoopError if the client belongs to another one."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self._adopt(loop)
        return loop

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self.loop is not None:
                state = "closed" if self.loop.is_closed() else "another one"
                raise WrongLoopError(
                    f"this {self.name} belongs to an event loop that is {state}: make one in each loop, for "
                    "example in the coroutine that asyncio.run() runs"
                )
            self.loop = loop
            while self._untold:
                loop.call_soon(self._untold.popleft())

    # Called by other threads --------------------------------------------------------------------------

    def post(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Have the loop make a call. False if it is closed, or not known yet."""
        loop = self.loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # The loop is closed.
            return False
        return True

    def tell(self, callback: Callable[[Any], object], value: Any) -> None:
        """Have the loop call the application back, without waiting for it. What the callback returns is
        awaited, if it can be; what it raises goes to the loop's exception handler."""
        call = partial(self._tell, callback, value)
        with self._lock:
            if self.loop is None:
                self._untold.append(call)
                return
        self.post(call)

    # In the loop --------------------------------------------------------------------------------------

    def _tell(self, callback: Callable[[Any], object], value: Any) -> None:
        try:
            outcome = callback(value)
        except Exception as error:
            self._report(error)
            return
        if isinstance(outcome, Awaitable):
            self._keep(asyncio.ensure_future(outcome)).add_done_callback(self._reported)

    def _keep(self, task: asyncio.Future[Any]) -> asyncio.Future[Any]:
        self._tasks.add(task)  # The loop itself refers to tasks only weakly.
        task.add_done_callback(self._tasks.discard)
        return task

    def _reported(self, task: asyncio.Future[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        assert self.loop is not None
        message = f"a callback of this {self.name} has failed"
        self.loop.call_exception_handler({"message": message, "exception": error})

    def begin(
        self, run: CallbackRun, call: Callable[[], object], ended: Callable[[CallbackRun], None]
    ) -> None:
        """Call the application back, await what it returns, and call `ended` with the outcome in `run`."""
        token = _inside.set(run)
        try:
            outcome = call()
            if isinstance(outcome, Awaitable):
                run.task = self._keep(asyncio.ensure_future(outcome))
        except BaseException as error:
            run.error = error
            if not isinstance(error, Exception):
                self._end(run, ended)
                raise
        finally:
            _inside.reset(token)
        if run.task is None:
            if run.error is None:
                run.result = outcome
            self._end(run, ended)
        else:
            run.task.add_done_callback(partial(self._ended, run, ended))

    def _ended(
        self, run: CallbackRun, ended: Callable[[CallbackRun], None], task: asyncio.Future[Any]
    ) -> None:
        if task.cancelled():
            run.error = asyncio.CancelledError()
        else:
            run.error = task.exception()
            run.result = None if run.error is not None else task.result()
        self._end(run, ended)

    def _end(self, run: CallbackRun, ended: Callable[[CallbackRun], None]) -> None:
        run.is_done = True
        ended(run)
