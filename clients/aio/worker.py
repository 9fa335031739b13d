"""The thread of an asyncio consumer or admin client: it makes the client's calls, one after the other.

A call whose caller is cancelled ends soon: it is not made if it has not begun, and interrupted otherwise.
What it has taken meanwhile, such as records, is given back before the next call is made.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast_log.clients.aio.home_loop import CallbackRun, HomeLoop, callback_around
from holdfast_log.clients.errors import ClosedError, ForkedError, InsideCallbackError, RequestTimeoutError

T = TypeVar("T")
_LOOK_S = 0.5
"""How often a thread that waits for the loop looks whether the loop is closed."""


class Interruptible(Protocol):
    """A client whose calls a worker makes. Any thread may call these methods."""

    def interrupt(self, thread: int) -> None:
        """Have the call under way in this thread raise an exception soon."""
        ...

    def forget_interruption(self) -> None:
        """The call has ended, maybe without having met its interruption."""
        ...

    def discard(self) -> None:
        """Close what a client holds that its application has forgotten to close."""
        ...


class ThreadedJob:
    """One call of a client, from the coroutine that awaits it to the thread and back."""

    __slots__ = (
        "call", "future", "give_back", "interrupt", "is_abandoned", "is_decided", "is_inside", "is_running",
        "may_nest", "returned", "taken",
    )  # fmt: skip

    def __init__(
        self,
        call: Callable[[], Any],
        future: asyncio.Future[Any] | None = None,
        *,
        give_back: Callable[[Any], None] | None = None,
        interrupt: Callable[[], None] | None = None,
        may_nest: bool = True,
        is_inside: bool = False,
    ) -> None:
        self.call = call
        self.future = future
        """None if nobody waits for the call."""
        self.give_back = give_back
        """Undoes what the call has taken."""
        self.interrupt = interrupt
        """Ends the call early; None for an exception in it."""
        self.may_nest = may_nest
        """Whether the call may be made while the client waits for a callback."""
        self.is_inside = is_inside
        """Whether a callback makes the call."""
        self.is_abandoned = False
        self.is_running = False
        self.taken: Any = None
        """What the call has returned."""
        self.returned: Any = None
        """What of it the caller hands back."""
        self.is_decided = give_back is None
        """Whether it is known what the caller has got."""


class Worker:
    """Makes the calls of one client in a thread, which starts with the first call.

    While a call waits for a callback of the application, other calls are made, so that the callback can use
    the client. Once nobody refers to `owner`, the application's object, the thread ends.
    """

    def __init__(self, home: HomeLoop, client: Interruptible, owner: object) -> None:
        self.home = home
        self._client = client
        self._name = home.name
        self._queue: queue.SimpleQueue[ThreadedJob | CallbackRun | None] = queue.SimpleQueue()
        self._later: deque[ThreadedJob | None] = deque()
        self._waiting: set[ThreadedJob] = set()
        """The calls that coroutines wait for. Belongs to the loop."""
        self._guard = threading.Lock()
        self._running: list[ThreadedJob] = []
        self._undecided: ThreadedJob | None = None
        self._decided = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_ended = False
        self._pid = os.getpid()
        weakref.finalize(owner, self.forget).atexit = False

    # In the loop --------------------------------------------------------------------------------------

    async def run(
        self,
        call: Callable[[], T],
        *,
        give_back: Callable[[T], None] | None = None,
        what_stays: Callable[[T], T | None] | None = None,
        interrupt: Callable[[], None] | None = None,
        may_nest: bool = True,
    ) -> T:
        """Make a call in the thread, and wait for its outcome.

        If the caller is cancelled, `give_back` gets what the call has returned. If not, it gets what
        `what_stays` returns, which is called in the loop.
        """
        self.check(may_nest=may_nest)
        job = ThreadedJob(
            call,
            self.home.enter().create_future(),
            give_back=give_back,
            interrupt=interrupt,
            may_nest=may_nest,
            is_inside=callback_around(self) is not None,
        )
        self.submit(job)
        result: T = await self._outcome(job)
        if give_back is not None:
            self._decide(job, None if what_stays is None else what_stays(result))
        return result

    async def run_last(self, call: Callable[[], object]) -> None:
        """Make the call that closes the client, to its end, also if the caller is cancelled. Other calls
        under way fail with ClosedError. Does nothing if it was made before."""
        loop = self.home.enter()
        if self._is_ended:
            return
        self.check(may_nest=False)
        self._is_ended = True
        for other in [job for job in self._waiting if not job.is_inside]:
            self._abandon(other)
            if other.future is not None and not other.future.done():
                other.future.set_exception(ClosedError(f"the {self._name} was closed during the call"))
        job = ThreadedJob(call, loop.create_future(), may_nest=False, interrupt=_go_on)
        self.submit(job)
        self._queue.put(None)
        await self._outcome(job)

    def submit(self, job: ThreadedJob) -> None:
        """Make a call after those before it, without waiting."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"holdfast {self._name}", daemon=True)
            self._thread.start()
        self._queue.put(job)

    def is_busy(self) -> bool:
        """Whether other calls wait or are under way."""
        return bool(self._waiting)

    async def _outcome(self, job: ThreadedJob) -> Any:
        assert job.future is not None
        self._waiting.add(job)
        try:
            return await job.future
        except BaseException:
            self._abandon(job)
            raise
        finally:
            self._waiting.discard(job)

    def check(self, *, may_nest: bool) -> None:
        """Raise why a call cannot be made here. `may_nest` is as in `run`."""
        around = callback_around(self)
        if self._is_ended and around is None:
            raise ClosedError(f"the {self._name} is closed")
        if self._pid != os.getpid():
            raise ForkedError(
                f"this {self._name} belongs to process {self._pid}, and this is its child process "
                f"{os.getpid()}, without the thread that makes the calls: make one in each process"
            )
        if around is not None and not (may_nest and around.serves):
            raise InsideCallbackError(
                f"this {self._name} waits for the callback that makes this call: call it elsewhere"
            )

    def _decide(self, job: ThreadedJob, returned: Any = None) -> None:
        job.returned = returned
        job.is_decided = True
        self._decided.set()

    def _abandon(self, job: ThreadedJob) -> None:
        """Nobody waits for a call any more."""
        with self._guard:
            job.is_abandoned = True
            if job.is_running:
                if job.interrupt is not None:
                    job.interrupt()
                elif self._running[-1] is job:
                    assert self._thread is not None and self._thread.ident is not None
                    self._client.interrupt(self._thread.ident)
        if not job.is_decided:
            self._decide(job)

    def forget(self) -> None:
        """The application does not refer to the client any more: end the thread, and close what is open."""
        if self._is_ended or self._pid != os.getpid():
            return
        self._is_ended = True
        message = f"an {self._name} was not closed: use async with, or close()"
        warnings.warn(message, ResourceWarning, stacklevel=1)
        if self._thread is None:
            self._client.discard()
        else:
            self.submit(ThreadedJob(self._client.discard))
            self._queue.put(None)

    # In the thread ------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            item = self._later.popleft() if self._later else self._queue.get()
            if item is None:
                return
            if isinstance(item, ThreadedJob):
                self._make(item)

    def _make(self, job: ThreadedJob) -> None:
        self._settle()
        with self._guard:
            if job.is_abandoned:
                return
            job.is_running = True
            self._running.append(job)
        error = None
        try:
            job.taken = job.call()
        except BaseException as failure:
            error = failure
        with self._guard:
            self._running.pop()
            job.is_running = False
            if _is_abandoned(job):
                self._client.forget_interruption()
        if error is None and job.give_back is not None:
            self._undecided = job
        if job.future is not None:
            self.home.post(_finish, job.future, job.taken, error)

    def _settle(self) -> None:
        """Give back what the last call has taken and its caller did not get."""
        job, self._undecided = self._undecided, None
        if job is None or job.give_back is None:
            return
        while not job.is_decided and not self.home.is_closed:
            self._decided.wait(_LOOK_S)
            self._decided.clear()
        has_got = job.is_decided and not job.is_abandoned
        returned = job.returned if has_got else job.taken
        if returned:
            job.give_back(returned)

    def call_back(self, call: Callable[[], object], what: str, limit_ms: int, *, serves: bool = True) -> Any:
        """Have the loop call the application back, and wait for the end of that. Returns what the callback
        does. Other calls of the client are made meanwhile, if it `serves`.

        Raises what the callback raises, RequestTimeoutError if it takes longer than `limit_ms`, and
        ClosedError if the loop is closed.
        """
        run = CallbackRun(self, serves=serves)
        if not self.home.post(self.home.begin, run, call, self._queue.put):
            raise ClosedError(f"{what} cannot be called: the event loop of this {self._name} is closed")
        until_s = time.monotonic() + limit_ms / 1000
        while not _has_ended(run):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                self.home.post(_cancel, run)
                raise RequestTimeoutError(f"{what} has not ended within max.poll.interval.ms={limit_ms}")
            if self.home.is_closed:
                raise ClosedError(f"{what} has not ended: the event loop of this {self._name} is closed")
            try:
                item = self._queue.get(timeout=min(left_s, _LOOK_S))
            except queue.Empty:
                continue
            if isinstance(item, ThreadedJob) and item.may_nest and serves:
                self._make(item)
            elif not isinstance(item, CallbackRun):
                self._later.append(item)
        if isinstance(run.error, Exception):
            raise run.error
        if run.error is not None:  # The end of a task, which must not end this one.
            raise ClosedError(f"{what} was ended by {type(run.error).__name__}") from run.error
        return run.result


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # The caller was cancelled.
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _is_abandoned(job: ThreadedJob) -> bool:
    return job.is_abandoned  # The loop's thread changes it.


def _has_ended(run: CallbackRun) -> bool:
    return run.is_done  # The loop's thread changes it.


def _cancel(run: CallbackRun) -> None:
    if run.task is not None:
        run.task.cancel()


def _go_on() -> None:
    """What is being closed is closed to its end, also if nobody waits for that."""
