"""Sensors: they measure what a client uses, and compute the delay that brings it back under a limit. Pure.

All times are in seconds of a clock that never runs backward.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Sensor(Protocol):
    """Measures one client's use of something that has a limit per second."""

    def record(self, amount: float, limit: float, now_s: float) -> None:
        """Count an amount that was used."""
        ...

    def delay_s(self, limit: float, now_s: float) -> float:
        """Time in seconds without any use after which the client is within the limit; 0 if it is now."""
        ...

    def is_idle(self, now_s: float) -> bool:
        """Whether a new sensor would give the same delays."""
        ...


class RateSensor:
    """A rate over many small windows: an excess expires window by window instead of all at once.

    The rate is the amount in the windows divided by the time since the first of them began, at least one
    window. Kafka divides by all windows but one from the start on, so that a client without a past may use
    the quota of all windows at once; here it may use that of one window.
    """

    __slots__ = ("_sum", "_window_s", "_windows", "_windows_max")

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows_max = windows
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()
        """[begin in s, amount], the oldest first. A window begins with the first use after the one before."""
        self._sum = 0.0

    def record(self, amount: float, limit: float, now_s: float) -> None:
        self._forget(now_s)
        windows = self._windows
        if not windows or now_s >= windows[-1][0] + self._window_s:
            windows.append([now_s, 0.0])
        windows[-1][1] += amount
        self._sum += amount

    def delay_s(self, limit: float, now_s: float) -> float:
        self._forget(now_s)
        needed_s = self._sum / limit
        if needed_s <= self._window_s:
            return 0.0
        return max(0.0, needed_s - (now_s - self._windows[0][0]))

    def per_second(self, now_s: float) -> float:
        """The present rate."""
        self._forget(now_s)
        if not self._windows:
            return 0.0
        return self._sum / max(now_s - self._windows[0][0], self._window_s)

    def is_idle(self, now_s: float) -> bool:
        self._forget(now_s)
        return not self._windows

    def _forget(self, now_s: float) -> None:
        """Drop the windows that began too long ago."""
        windows, oldest_s = self._windows, now_s - self._windows_max * self._window_s
        while windows and windows[0][0] <= oldest_s:
            self._sum -= windows.popleft()[1]
        if not windows:
            self._sum = 0.0  # Sums of fractions leave a small rest.


class TokenBucket:
    """An allowance that refills at the limit's rate, up to what `burst_s` seconds bring (KIP-599).

    A use may overdraw it; the delay is the time until it is refilled to nothing owed. A new bucket is full.
    """

    __slots__ = ("_at_s", "_burst_s", "_limit", "_spent")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._spent = 0.0
        """Amount by which the bucket is less than full."""
        self._limit = 1.0
        self._at_s = 0.0

    def record(self, amount: float, limit: float, now_s: float) -> None:
        self._refill(limit, now_s)
        self._spent += amount

    def delay_s(self, limit: float, now_s: float) -> float:
        self._refill(limit, now_s)
        return max(0.0, self._spent / limit - self._burst_s)

    def is_idle(self, now_s: float) -> bool:
        return self._spent <= (now_s - self._at_s) * self._limit

    def _refill(self, limit: float, now_s: float) -> None:
        self._spent = max(0.0, self._spent - (now_s - self._at_s) * self._limit)
        if limit != self._limit:
            # What is owed stays owed; what is left stays left, up to the new burst.
            left = self._limit * self._burst_s - self._spent
            self._limit = limit
            self._spent = max(0.0, limit * self._burst_s - left) if self._spent else 0.0
        self._at_s = now_s
