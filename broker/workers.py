"""Worker threads, for work that would block the reactor. They use no state that another thread changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call `function` in a worker; the Deferred fires with its result, on the reactor's thread."""
        ...


class ThreadWorkers:
    """A pool of threads."""

    def __init__(self, reactor: Any, threads_max: int) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(minthreads=0, maxthreads=threads_max, name="worker")

    def start(self) -> None:
        self._pool.start()

    def stop(self) -> None:
        """Wait until the running work has ended."""
        self._pool.stop()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._pool, function, *args, **kwargs)


def all_back(jobs: Sequence[Deferred[Any]]) -> Deferred[None]:
    """Fires when all jobs have succeeded or failed; fails with the failure of the first one that failed."""
    return DeferredList(jobs, consumeErrors=True).addCallback(_raise_first)


def _raise_first(results: Sequence[tuple[bool, Any]]) -> None:
    for succeeded, result in results:
        if not succeeded:
            result.raiseException()
