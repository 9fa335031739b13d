"""The lines of the audit log, a limited number at a time.

A connection may have ten thousand resources, and each has a line when the connection closes. To write them
all takes longer than others may have to wait. None is left out.
"""

from __future__ import annotations

import logging
from collections import deque

from holdfast_log.coordinator.clock import Clock

LINES_AT_ONCE = 100
"""They take two to three ms. The others follow in later turns of the reactor."""

_audit = logging.getLogger("holdfast_log.broker.ownership.audit")


class AuditLines:
    """Writes lines in their order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._left = LINES_AT_ONCE
        """Lines that may be written at once."""

    def begin(self) -> None:
        """Lines of another event follow."""
        self._left = LINES_AT_ONCE

    def write(self, line: str) -> None:
        """Write a line, now or in one of the next turns."""
        if not self._waiting and self._left:
            self._left -= 1
            _audit.info("%s", line)
            return
        if not self._waiting:
            self._clock.callLater(0, self._go_on)
        self._waiting.append(line)

    def _go_on(self) -> None:
        for _ in range(min(LINES_AT_ONCE, len(self._waiting))):
            _audit.info("%s", self._waiting.popleft())
        if self._waiting:
            self._clock.callLater(0, self._go_on)

    def stop(self) -> None:
        """Write all that waits: the broker stops."""
        while self._waiting:
            _audit.info("%s", self._waiting.popleft())
