"""The memory that all of a broker's workers together use for decompressed records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.broker.log.decompression import SETTINGS
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.workers import Workers

P = ParamSpec("P")
T = TypeVar("T")

_BATCHES = 4
"""How many of the largest batches the budget has room for: one that is produced, one that is searched, one
that is compacted, and as much again for smaller ones."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class DecompressionLimits:
    """Bytes of decompressed records, of all jobs together."""

    bytes_max: Annotated[int, "decompression.max.bytes"] = 128 << 20


class DecompressionBudget:
    """Gives jobs to workers as long as what they may decompress together is within the limit. The others
    wait in the order in which they came. Belongs to the reactor's thread."""

    def __init__(self, workers: Workers, limits: DecompressionLimits | None = None) -> None:
        limits = limits or DecompressionLimits()
        self.batch_bytes_max = limits.bytes_max // _BATCHES
        """Maximum decompressed size of one batch, in bytes."""
        self.used_bytes = 0
        """What the running jobs may decompress."""
        self._bytes_max = limits.bytes_max
        self._workers = workers
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def share(self, job_bytes: int) -> Workers:
        """Workers for jobs that decompress at most `job_bytes` each, and not more than fits in the budget."""
        return _Share(self, min(job_bytes, self._bytes_max))

    def run(self, job_bytes: int, function: Callable[..., T], *args: Any, **kwargs: Any) -> Deferred[T]:
        """Call `function` in a worker when there is room; the Deferred fires with its result."""
        done: Deferred[T] = Deferred()
        self._waiting.append((job_bytes, partial(self._start, job_bytes, done, function, args, kwargs)))
        self._start_waiting()
        return done

    def _start_waiting(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self._bytes_max:
            _, start = self._waiting.popleft()
            start()

    def _start(
        self,
        job_bytes: int,
        done: Deferred[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.used_bytes += job_bytes
        self._workers.run(function, *args, **kwargs).addBoth(partial(self._ended, job_bytes)).chainDeferred(
            done
        )

    def _ended(self, job_bytes: int, result: T) -> T:
        self.used_bytes -= job_bytes
        self._start_waiting()
        return result


class _Share:
    """The workers of one kind of jobs."""

    def __init__(self, budget: DecompressionBudget, job_bytes: int) -> None:
        self._budget = budget
        self._job_bytes = job_bytes

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return self._budget.run(self._job_bytes, function, *args, **kwargs)
