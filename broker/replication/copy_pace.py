"""How fast replicas are copied from one log directory to another (KIP-113): at most so many bytes per second.

What has been copied is a debt that the rate pays off; while there is one, nothing is copied. At most one
part is paid in advance, which makes up for a pause that became longer than asked for. So in no stretch of
time more is copied than the rate allows and two parts.
"""

from __future__ import annotations

from holdfast_log.broker.replication.throttle import UNLIMITED
from holdfast_log.coordinator.clock import Clock

PART_BYTES = 4 << 20
"""Maximum bytes that are copied before the pace is asked again."""
_PART_BYTES_MIN = 4 << 10
_PARTS_PER_S = 10
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.001, 1.0
"""The shortest pause in seconds is one that the clock notices. After the longest the caller may have other
reasons not to go on, and the rate may be another."""


class CopyPace:
    """The pace of all copies of a broker together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_s = UNLIMITED
        self._debt_bytes = 0.0
        self._counted_s = clock.seconds()

    def set_rate(self, bytes_per_s: int) -> None:
        """Change the rate; 0 stops all copies. It applies from now on, also to what has been copied."""
        self._pay()
        self._bytes_per_s = bytes_per_s
        self._pay()

    @property
    def part_bytes(self) -> int:
        """How many bytes to copy before `pause_s` is asked."""
        return max(_PART_BYTES_MIN, min(PART_BYTES, self._bytes_per_s // _PARTS_PER_S))

    def copied(self, size: int) -> None:
        """Count bytes that were copied."""
        self._pay()
        self._debt_bytes += size

    def pause_s(self) -> float:
        """For how many seconds to copy nothing, and then to ask again; 0 if the next part may be copied."""
        self._pay()
        if self._bytes_per_s <= 0:
            return _PAUSE_MAX_S
        if self._debt_bytes < 1 or self._bytes_per_s >= UNLIMITED:
            return 0.0
        return max(_PAUSE_MIN_S, min(self._debt_bytes / self._bytes_per_s, _PAUSE_MAX_S))

    def _pay(self) -> None:
        now_s = self._clock.seconds()
        paid = self._bytes_per_s * (now_s - self._counted_s)
        self._debt_bytes = max(-float(self.part_bytes), self._debt_bytes - paid)
        self._counted_s = now_s
