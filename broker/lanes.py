"""Lanes of work for worker threads: few jobs at a time, in turns between those who ask for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.broker.workers import Workers

T = TypeVar("T")


class Lane:
    """Gives at most `jobs_max` jobs at a time to the workers. The others wait.

    Each owner of jobs has a queue of its own, and the queues take turns: who asks for a thousand jobs delays
    others by one job, not by a thousand.
    """

    def __init__(self, workers: Workers, jobs_max: int) -> None:
        self._workers = workers
        self._jobs_max = jobs_max
        self._running = 0
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        """The first owner is the next one."""

    @property
    def waiting(self) -> int:
        """Number of jobs that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def run(self, owner: Hashable, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """Call `function` in a worker when it is its turn; the Deferred fires with its result."""
        done: Deferred[T] = Deferred()
        start = partial(self._start, done, function, args)
        if self._running < self._jobs_max:
            start()
        else:
            self._waiting.setdefault(owner, deque()).append(start)
        return done

    def _start(self, done: Deferred[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._running += 1
        self._workers.run(function, *args).addBoth(self._ended).chainDeferred(done)

    def _ended(self, result: T) -> T:
        self._running -= 1
        owner = next(iter(self._waiting), None)
        if owner is not None:
            queue = self._waiting.pop(owner)
            start = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # Behind all others.
            start()
        return result
