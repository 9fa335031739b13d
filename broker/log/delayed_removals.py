"""Removes files of logs after file.delete.delay.ms: until then a fetch in progress can still send them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock

logger = logging.getLogger(__name__)


class DelayedRemovals:
    """Has workers remove files and directories that were renamed, so that nothing opens them any more."""

    def __init__(self, disk: Disk, workers: Workers, clock: Clock) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock

    def discard(self, log: Log, paths: Iterable[str]) -> None:
        """Remove files of a log after its delay."""
        for path in paths:
            self.remove_later(path, log.settings.file_delete_delay_ms, self._disk.remove)

    def remove_later(self, path: str, delay_ms: int, remove: Callable[[str], None]) -> None:
        """Call `remove` with the path in a worker, after a delay. The next start removes what cannot be
        removed now."""

        def run() -> None:
            self._workers.run(remove, path).addErrback(
                lambda failure: logger.warning(
                    "%s could not be removed; the next start removes it: %s", path, failure.value
                )
            )

        self._clock.callLater(delay_ms / 1000, run)
