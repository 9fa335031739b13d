"""Flushes logs by the age of their unflushed records (`flush.ms`), and writes their indexes' new entries.

Each check covers only the logs that have unflushed records and `flush.ms` set. Most brokers leave the fsync
to the operating system and keep thousands of idle logs.

New entries of indexes are kept in memory first, because a write for each would double the system calls of an
append. They are written at the next check, so that tools find an index of the active segment that is at most
seconds behind its log.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from holdfast_log.broker.log.log import Log

NEVER_MS = 2**63 - 1
"""Value of `flush.ms` that disables flushes by age."""
_INDEXES_WRITTEN_TOGETHER = 100
"""Logs whose indexes one check writes: about 4 ms of the reactor's time."""


class FlushSchedule:
    """Calls `flush` with each log that has been unflushed for its `flush.ms`."""

    def __init__(self, flush: Callable[[Log], None]) -> None:
        self._flush = flush
        self._waiting: dict[Log, None] = {}
        self._indexed: dict[Log, None] = {}

    def note(self, log: Log) -> None:
        """Record that the log may have something to flush, or a changed `flush.ms`."""
        if log.settings.flush_ms < NEVER_MS and log.recovery_point < log.log_end_offset:
            self._waiting[log] = None

    def note_indexed(self, log: Log) -> None:
        """Record that the indexes of the log's active segment have entries that are only in memory."""
        self._indexed[log] = None

    def forget(self, log: Log) -> None:
        """Stop flushing the log by age. An unknown log is ignored."""
        self._waiting.pop(log, None)
        self._indexed.pop(log, None)

    def run(self, now_ms: int) -> None:
        """Start to flush the logs that have been unflushed for their `flush.ms`, and write indexes."""
        for log in list(islice(self._indexed, _INDEXES_WRITTEN_TOGETHER)):
            self._indexed.pop(log, None)
            log.write_indexes()
        for log in list(self._waiting):
            if log.recovery_point >= log.log_end_offset or log.settings.flush_ms >= NEVER_MS:
                del self._waiting[log]
            elif now_ms - log.last_flush_ms >= log.settings.flush_ms:
                self._flush(log)
