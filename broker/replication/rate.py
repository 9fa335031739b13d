"""A rate over sliding windows of time, as Kafka's quotas compute it. Pure.

Many small windows make a limit smooth: an excess expires window by window instead of all at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Rate:
    """An amount per second over the last `windows` windows of `window_ms` each.

    A time earlier than the latest one passed in counts as the latest one.
    """

    windows: int = 11
    window_ms: int = 1000
    _sums: deque[list[float]] = field(init=False, default_factory=deque)
    """[begin in ms, amount], the oldest first."""
    _latest_ms: int = field(init=False, default=0)

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount at this time."""
        now_ms = self._move_on(now_ms)
        if not self._sums or now_ms >= self._sums[-1][0] + self.window_ms:
            self._sums.append([now_ms, 0])
        self._sums[-1][1] += amount

    def per_second(self, now_ms: int) -> float:
        """The amount per second. The sum is divided by the length of at least all windows but one, so that a
        first burst does not count as a lasting rate."""
        now_ms = self._move_on(now_ms)
        if not self._sums:
            return 0.0
        full_ms = (self.windows - 1) * self.window_ms
        elapsed_ms = max(now_ms - self._sums[0][0], full_ms, 1)
        return sum(amount for _, amount in self._sums) * 1000 / elapsed_ms

    def _move_on(self, now_ms: int) -> int:
        self._latest_ms = max(self._latest_ms, now_ms)
        oldest_ms = self._latest_ms - self.windows * self.window_ms
        while self._sums and self._sums[0][0] <= oldest_ms:
            self._sums.popleft()
        return self._latest_ms
