"""Worker threads, for work that would block the reactor. They use no state that another thread changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call `function` in a worker; the Deferred fires with its result, on the reactor's thread."""
        ...


class ThreadWorkers:
    """A pool of threads. It is not Twisted's, which leaves a reference cycle for each job."""

    def __init__(self, reactor: Any, threads_max: int) -> None:
        self._reactor = reactor
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="worker")

    def stop(self) -> None:
        """Wait until all work that was given has ended. No more may be given."""
        self._pool.shutdown()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        self._pool.submit(self._work, done, function, args, kwargs)
        return done

    def _work(
        self, done: Deferred[Any], function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self._reactor.callFromThread(done.errback, Failure())
        else:
            self._reactor.callFromThread(done.callback, result)


def all_back(jobs: Sequence[Deferred[Any]]) -> Deferred[None]:
    """Fires when all jobs have succeeded or failed; fails with the failure of the first one that failed."""
    return DeferredList(jobs, consumeErrors=True).addCallback(_raise_first)


def _raise_first(results: Sequence[tuple[bool, Any]]) -> None:
    for succeeded, result in results:
        if not succeeded:
            result.raiseException()
