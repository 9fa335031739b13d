"""Warnings about connections, through the module `logging`: on by default, and few.

The first failure of an address is logged at once. While it lasts, one line in each interval says how many
failures were left out. When the connection is established again, one line says that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.protocol.one_line import one_line

INTERVAL_MS = 30_000
"""Shortest time between two warnings about the same address."""
_LONG_THROTTLE_MS = 1000


@dataclass(slots=True)
class _Trouble:
    """What was seen of one address since its first failure."""

    since_ms: int
    next_line_ms: int
    is_down: bool = True
    is_reported: bool = False
    """Whether a line about the present failure was logged."""
    left_out: int = 0


class ConnectionLog:
    """Logs the failures and recoveries of one client's connections to the logger `name`.

    `now_ms` is the client's clock. All calls come from the thread that runs the client's loop.
    """

    def __init__(self, name: str, now_ms: Callable[[], int]) -> None:
        self.name = name
        self._now_ms = now_ms
        self._troubles: dict[str, _Trouble] = {}
        self._next_throttle_line_ms: dict[str, int] = {}

    def failed(self, address: str, error: Exception) -> None:
        """A connection to this address broke, or could not be established."""
        now_ms = self._now_ms()
        trouble = self._troubles.get(address)
        if trouble is None:
            trouble = self._troubles[address] = _Trouble(now_ms, now_ms)
        if not trouble.is_down:
            trouble.is_down, trouble.since_ms = True, now_ms
        if now_ms < trouble.next_line_ms:
            trouble.left_out += 1
            return
        counted = f" ({trouble.left_out} more failures since the last warning)" if trouble.left_out else ""
        trouble.next_line_ms = now_ms + INTERVAL_MS
        trouble.left_out = 0
        trouble.is_reported = True
        self._warn(f"{error}. The client keeps trying{counted}.")

    def opened(self, address: str) -> None:
        """A connection to this address was established."""
        trouble = self._troubles.get(address)
        if trouble is None or not trouble.is_down:
            return
        trouble.is_down = False
        if trouble.is_reported:
            trouble.is_reported = False
            seconds = (self._now_ms() - trouble.since_ms) / 1000
            # A warning too: who saw the failure on a terminal, where only warnings appear, sees its end.
            self._warn(f"{address}: connected again, {seconds:.1f} s after the first failure.")

    def throttled(self, address: str, throttle_ms: int, asked_ms: int) -> None:
        """The broker at this address throttles the client. Short throttles are a quota at work, and are only
        counted."""
        now_ms = self._now_ms()
        if throttle_ms < _LONG_THROTTLE_MS or now_ms < self._next_throttle_line_ms.get(address, now_ms):
            return
        self._next_throttle_line_ms[address] = now_ms + max(INTERVAL_MS, throttle_ms)
        bounded = f" It has asked for {asked_ms} ms (see throttle.max.ms)." if asked_ms > throttle_ms else ""
        self._warn(
            f"{address}: the broker throttles this client, which sends it nothing for {throttle_ms} ms."
            f"{bounded}"
        )

    def _warn(self, line: str) -> None:
        warn(self.name, line)


def warn(name: str, line: str) -> None:
    """Log a warning to the logger `name`, as one line: the application's formatter may show it as it is, and
    texts of brokers are in it."""
    import logging  # Slow to import, and a client without trouble does not need it.

    logging.getLogger(name).warning("%s", one_line(line))
