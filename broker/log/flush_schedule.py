"""Logs flushed by age: `flush.ms`.

Looked at from time to time are only the logs that hold something not yet durable and have such an age set:
most brokers leave the fsync to the system, and keep thousands of logs that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.log.log import Log

NEVER_MS = 2**63 - 1
"""The `flush.ms` that stands for no age at all."""


class FlushSchedule:
    """Calls `flush` with the logs whose time has come."""

    def __init__(self, flush: Callable[[Log], None]) -> None:
        self._flush = flush
        self._waiting: dict[Log, None] = {}

    def note(self, log: Log) -> None:
        """The log may have something to flush, or another `flush.ms`."""
        if log.settings.flush_ms < NEVER_MS and log.recovery_point < log.log_end_offset:
            self._waiting[log] = None

    def forget(self, log: Log) -> None:
        """The log is not flushed by age any more. Harmless for one that is not known."""
        self._waiting.pop(log, None)

    def run(self, now_ms: int) -> None:
        """Begin to flush what has waited for its `flush.ms`."""
        for log in list(self._waiting):
            if log.recovery_point >= log.log_end_offset or log.settings.flush_ms >= NEVER_MS:
                del self._waiting[log]
            elif now_ms - log.last_flush_ms >= log.settings.flush_ms:
                self._flush(log)
