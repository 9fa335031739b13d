"""Flushes logs by the age of their unflushed records (`flush.ms`).

Each check covers only the logs that have unflushed records and `flush.ms` set. Most brokers leave the fsync
to the operating system and keep thousands of idle logs.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.log.log import Log

NEVER_MS = 2**63 - 1
"""Value of `flush.ms` that disables flushes by age."""


class FlushSchedule:
    """Calls `flush` with each log that has been unflushed for its `flush.ms`."""

    def __init__(self, flush: Callable[[Log], None]) -> None:
        self._flush = flush
        self._waiting: dict[Log, None] = {}

    def note(self, log: Log) -> None:
        """Record that the log may have something to flush, or a changed `flush.ms`."""
        if log.settings.flush_ms < NEVER_MS and log.recovery_point < log.log_end_offset:
            self._waiting[log] = None

    def forget(self, log: Log) -> None:
        """Stop flushing the log by age. An unknown log is ignored."""
        self._waiting.pop(log, None)

    def run(self, now_ms: int) -> None:
        """Start to flush the logs that have been unflushed for their `flush.ms`."""
        for log in list(self._waiting):
            if log.recovery_point >= log.log_end_offset or log.settings.flush_ms >= NEVER_MS:
                del self._waiting[log]
            elif now_ms - log.last_flush_ms >= log.settings.flush_ms:
                self._flush(log)
