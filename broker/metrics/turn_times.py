"""How long the reactor's turns take, and the collections of garbage among them.

While a turn lasts, no client is served. Its time is from the return of the wait for events to the next wait.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

SLOW_S = 0.05
"""Time in seconds from which on a turn counts as slow."""
WINDOW_S = 60.0
"""The longest turn is remembered for this time at least, and at most for twice as long: any number of
observers that look more often than that see it."""


class TurnTimes:
    """Counts the turns of one reactor. Times in seconds, by a clock that nobody sets."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.clock_s = clock_s
        self.count = 0
        self.busy_s = 0.0
        """The time of all turns together."""
        self.slow = 0
        self.noted_s = 0.0
        """`note` must be called with turns longer than this."""
        self._longest_s = 0.0
        self._earlier_s = 0.0
        self._window_ends_s = clock_s() + WINDOW_S
        self.collections = 0
        self.collecting_s = 0.0
        self._collection_began_s = 0.0

    def note(self, turn_s: float) -> None:
        """A turn was longer than `noted_s`."""
        self._roll()
        self.slow += turn_s >= SLOW_S
        self._longest_s = max(self._longest_s, turn_s)
        self.noted_s = min(self._longest_s, SLOW_S)

    @property
    def longest_s(self) -> float:
        """The longest turn of the last one to two minutes."""
        self._roll()
        return max(self._longest_s, self._earlier_s)

    def _roll(self) -> None:
        now_s = self.clock_s()
        if now_s >= self._window_ends_s:
            is_recent = now_s < self._window_ends_s + WINDOW_S
            self._earlier_s = self._longest_s if is_recent else 0.0
            self._longest_s = self.noted_s = 0.0
            self._window_ends_s = now_s + WINDOW_S

    def watch_collections(self) -> None:
        """Time the collections of garbage from now on."""
        gc.callbacks.append(self._collection)

    def _collection(self, phase: str, _: dict[str, Any]) -> None:
        now_s = self.clock_s()
        if phase == "start":
            self._collection_began_s = now_s
        elif self._collection_began_s:
            self.collections += 1
            self.collecting_s += now_s - self._collection_began_s
            self._collection_began_s = 0.0
