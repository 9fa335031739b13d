"""Waits of the application's threads for what the producer's thread does.

A process may stand still: it is stopped, or its machine sleeps. When it goes on, the time of a wait has
passed, and the producer's thread has not yet read what brokers have sent meanwhile, such as the end of its
ownership. The waiting thread must not give up before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

_STEP_S = 0.25
_STANDSTILL_S = 0.25
"""Lateness beyond which this process has stood still."""
_AFTER_STANDSTILL_S = 3.0
"""How long a wait lasts at least after a standstill: enough to connect again and ask for the ownership."""


def wait_while_awake(
    event: Event, timeout_ms: int | None, seconds: Callable[[], float] = time.monotonic
) -> bool:
    """Wait until an event is set, at most `timeout_ms` (None: without limit) and, if this process stood still
    meanwhile, at least 3 s after that. Returns whether the event is set."""
    if timeout_ms is None:
        return event.wait()
    left_s = timeout_ms / 1000
    while True:
        step_s, since_s = min(left_s, _STEP_S), seconds()
        if event.wait(step_s):
            return True
        taken_s = seconds() - since_s
        left_s -= max(step_s, min(taken_s, step_s + _STANDSTILL_S))
        if taken_s > step_s + _STANDSTILL_S:
            left_s = max(left_s, _AFTER_STANDSTILL_S)
        if left_s <= 0:
            return False
