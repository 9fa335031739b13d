"""How long a client waits before it tries again: twice as long after each failure, with jitter (KIP-580)."""

from __future__ import annotations

import random

_MAX_DOUBLINGS = 30


class Backoff:
    """Delays from `retry.backoff.ms` to `retry.backoff.max.ms`."""

    __slots__ = ("_max_ms", "_min_ms", "_rng")

    def __init__(self, min_ms: int, max_ms: int, rng: random.Random) -> None:
        self._min_ms = min_ms
        self._max_ms = max(min_ms, max_ms)
        self._rng = rng

    def after(self, failures: int) -> int:
        """The delay in ms after this many failures in a row. The first has no jitter: one refusal is usual,
        and no crowd of clients is in step yet."""
        if failures <= 1:
            return self._min_ms
        doubled = min(self._min_ms << min(failures - 1, _MAX_DOUBLINGS), self._max_ms)
        return max(self._min_ms, int(doubled * self._rng.uniform(0.8, 1.2)))


class RepeatPace:
    """Slows down what is done again and again without a failure that anybody sees.

    The first `free` steps in a row may follow each other at once. Each further one waits longer. Steps are in
    a row while less than twice the last delay, and less than a second, lies between them.
    """

    __slots__ = ("_backoff", "_free", "_last_ms", "_steps", "_wait_ms")

    def __init__(self, backoff: Backoff, free: int) -> None:
        self._backoff = backoff
        self._free = free
        self._steps = 0
        self._wait_ms = 0
        self._last_ms = -_ROW_GAP_MS

    def step(self, now_ms: int) -> int:
        """Count a step. Returns how long the next one should wait, in ms."""
        if now_ms - self._last_ms >= max(_ROW_GAP_MS, 2 * self._wait_ms):
            self._steps = 0
        self._steps += 1
        self._last_ms = now_ms
        self._wait_ms = self._backoff.after(self._steps - self._free) if self._steps > self._free else 0
        return self._wait_ms


_ROW_GAP_MS = 1000
