"""Models of worker threads (`broker.workers.Workers`): at once, on demand or in simulated time.

`test_workers` holds them to what the real `ThreadWorkers` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from tests.models.world import Process


class ImmediateWorkers:
    """Do each job before `run` returns. While `is_held`, jobs wait for `work` or `release`."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.jobs: list[Callable[[], None]] = []
        """The jobs that wait, oldest first."""

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        if not self.is_held:
            return maybeDeferred(function, *args, **kwargs)
        done: Deferred[Any] = Deferred()
        self.jobs.append(lambda: maybeDeferred(function, *args, **kwargs).chainDeferred(done))
        return done

    def work(self) -> None:
        """Do the oldest waiting job."""
        self.jobs.pop(0)()

    def release(self) -> None:
        """Do all waiting jobs; from now on each job is done at once."""
        self.is_held = False
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


class SimWorkers:
    """A simulated process's worker threads. A job runs as a whole after up to `delay_ms_max`, and its result
    arrives up to `result_ms_max` later, unless the process dies first."""

    def __init__(self, process: Process, delay_ms_max: float = 5.0, result_ms_max: float = 0.0) -> None:
        self._process = process
        self._rng = process.rng("workers")
        self._result_rng = process.rng("results of workers")
        self.delay_ms_max = delay_ms_max
        self.result_ms_max = result_ms_max

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        delay_s = self._rng.random() * self.delay_ms_max / 1000
        self._process.clock.callLater(delay_s, self._do, done, function, args, kwargs)
        return done

    def _do(
        self,
        done: Deferred[Any],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        result: Any
        try:
            result = function(*arguments, **keywords)
        except Exception:
            result = Failure()
        if self.result_ms_max:
            delay_s = self._result_rng.random() * self.result_ms_max / 1000
            self._process.clock.callLater(delay_s, done.callback, result)
        else:
            done.callback(result)
