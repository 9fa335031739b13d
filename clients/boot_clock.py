"""The clock that times intervals: nobody can set it, and on Linux it also counts while the machine sleeps.

A client whose machine sleeps must not believe afterwards that it still owns what its broker has given to
another, as it would by a clock that stands still meanwhile. On systems other than Linux, whether a sleep
counts depends on the system's monotonic clock.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

boot_s: Callable[[], float]
"""Seconds since an arbitrary moment. Read several times for each request: no function in Python."""

if hasattr(time, "CLOCK_BOOTTIME"):
    boot_s = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)

    def boot_ms() -> int:
        """Whole ms since an arbitrary moment."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

else:
    boot_s = time.monotonic

    def boot_ms() -> int:
        """Whole ms since an arbitrary moment."""
        return time.monotonic_ns() // 1_000_000
