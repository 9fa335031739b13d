"""When Python looks for reference cycles: often among new objects, rarely among those that have lived long.

The hot paths leave no cycles, so nearly all garbage is freed without a collection. Collections find the rest,
and every client waits for them. Python's own schedule walks all objects whenever a quarter of them is new,
which any client can bring about with a few long requests. Here only the youngest are walked on Python's
schedule. Each period walks those that have come since the last one, and freezes what it leaves; where very
many come, as with a topic of thousands of partitions, that is done earlier, since it takes a turn of the
reactor. All are walked only when twice as many are frozen as after the last time.
"""

from __future__ import annotations

import gc
from typing import Protocol

from holdfast_log.broker.process.periodic import Periodic
from holdfast_log.coordinator.clock import Clock

PERIOD_MS = 5_000
"""Time in ms after which a cycle of objects that are no longer the youngest is found."""

LOOK_MS = 50
"""Time in ms between two looks at whether very many objects have come."""

MIDDLE_WALKS_MAX = 1
"""So many of Python's own walks over those that are no longer the youngest mean that very many have come:
100,000 or more since the last look."""

THRESHOLDS = (20_000, 5, 1_000_000)
"""As `gc.set_threshold` takes them. A walk over 20,000 objects takes one or two milliseconds. One in five
also walks those that the other four have left. Python walks no more than these by itself."""

_ALWAYS_KEPT = 200_000
"""Fewer frozen objects are never walked again: an idle broker has about as many."""


class Collector(Protocol):
    """What is used of Python's module `gc`."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None: ...
    def collect(self) -> int: ...
    def get_count(self) -> tuple[int, int, int]: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...
    def get_freeze_count(self) -> int: ...


class Collecting:
    """Collects the garbage of the process until it ends."""

    def __init__(self, clock: Clock, collector: Collector = gc) -> None:
        self._periodic = Periodic(clock)
        self._collector = collector
        self._frozen = 0  # objects, after all were walked the last time

    def begin(self) -> None:
        """The objects built so far live as long as the process: exclude them. Collect from now on."""
        self._walk_all()
        self._collector.set_threshold(*THRESHOLDS)
        self._periodic.add(PERIOD_MS, self._period)
        self._periodic.add(LOOK_MS, self._look)

    def _period(self) -> None:
        if self._collector.get_freeze_count() > max(2 * self._frozen, _ALWAYS_KEPT):
            self._walk_all()
        else:
            self._walk_new()

    def _look(self) -> None:
        """Begin the next period now if a walk would take long at its end."""
        if self._collector.get_count()[2] >= MIDDLE_WALKS_MAX:
            self._period()

    def _walk_all(self) -> None:
        self._collector.unfreeze()
        self._walk_new()
        self._frozen = self._collector.get_freeze_count()

    def _walk_new(self) -> None:
        self._collector.collect()
        self._collector.freeze()
