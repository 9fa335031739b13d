"""Poll for a condition, with a deadline long enough for a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 120.0


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Return once the condition holds. Raises AssertionError after `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
