"""Which process wrote a broker's log directories, by the marks in them (`broker.log.run_marks`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.pressure import retried
from holdfast_log.broker.log.run_marks import NO_EPOCH
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.coordinator.clock import Clock


class Runs:
    """The marks of all directories together. `failed` is an errback with the directory that could not be
    marked."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        workers: Workers,
        clock: Clock,
        failed: Callable[[LogDirectory, Failure], None],
    ) -> None:
        self._directories = directories
        self._workers = workers
        self._clock = clock
        self._failed = failed

    @property
    def start_epoch(self) -> int:
        """The start epoch of the process that wrote last, if the directories hold all its writes; `NO_EPOCH`
        if records may be lost. Until `begin` that is the previous process, then it is this one."""
        return next(iter(self.lineage), NO_EPOCH)

    @property
    def lineage(self) -> tuple[int, ...]:
        """`start_epoch`, and before it the start epochs of earlier processes whose writes the directories all
        hold, latest first; empty if records may be lost."""
        lineages = [() if each.failure is not None else each.lineage for each in self._directories]
        if len({lineage[:1] for lineage in lineages}) > 1:
            return ()
        return tuple(epoch for epoch in lineages[0] if all(epoch in lineage for lineage in lineages))

    def begin(self, start_epoch: int) -> Deferred[None]:
        """Mark the live directories as written by the process that is registered under `start_epoch`."""
        earlier = self.lineage
        live = [directory for directory in self._directories if directory.failure is None]
        return all_back([self._mark(directory, start_epoch, earlier) for directory in live])

    def _mark(self, directory: LogDirectory, start_epoch: int, earlier: Sequence[int]) -> Deferred[None]:
        marked = retried(
            self._clock,
            f"mark of {directory.path}",
            lambda: self._workers.run(directory.mark_run, start_epoch, earlier),
        )
        return marked.addErrback(partial(self._failed, directory))
