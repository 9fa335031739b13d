"""When Python looks for reference cycles: often among new objects, rarely among those that have lived long.

The hot paths leave no cycles, so nearly all garbage is freed without a collection. Collections find the rest,
and every client waits for them. Python's own schedule walks all objects whenever a quarter of them is new,
which any client can bring about with a few long requests. Here only the youngest are walked on Python's
schedule. Each period walks those that have come since the last one, and freezes what it leaves. Where very
many come, as with a topic of thousands of partitions, they are frozen earlier, once each has been walked as
one of the youngest, so that no walk goes over very many of them. All are walked only when twice as much is
allocated as after the last time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
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

MIDDLE = 1
"""The generation of those that are no longer the youngest. To walk it is to walk the youngest, too."""

THRESHOLDS = (20_000, 5, 1_000_000)
"""As `gc.set_threshold` takes them. A walk over 20,000 objects takes one or two milliseconds. One in five
also walks those that the other four have left. Python walks no more than these by itself."""

_ALWAYS_KEPT = 2_000_000
"""With fewer blocks, frozen objects are never walked again: they are about 160 MB, and a third of them are
objects that Python walks. A broker without partitions has less than a quarter of that."""


class Collector(Protocol):
    """What is used of Python's module `gc`. To count what is frozen is not: it walks all of it."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None: ...
    def collect(self, generation: int = 2) -> int: ...
    def get_count(self) -> tuple[int, int, int]: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...


class Collecting:
    """Collects the garbage of the process until it ends. `count_blocks` returns how many pieces of memory are
    allocated for objects; it must take no time."""

    def __init__(
        self,
        clock: Clock,
        collector: Collector = gc,
        count_blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._periodic = Periodic(clock)
        self._collector = collector
        self._count_blocks = count_blocks
        self._blocks = 0  # after all objects were walked the last time

    def begin(self) -> None:
        """The objects built so far live as long as the process: exclude them. Collect from now on."""
        self._walk_all()
        self._collector.set_threshold(*THRESHOLDS)
        self._periodic.add(PERIOD_MS, self._period)
        self._periodic.add(LOOK_MS, self._look)

    def _period(self) -> None:
        if self._count_blocks() > max(2 * self._blocks, _ALWAYS_KEPT):
            self._walk_all()
        else:
            self._walk_new()

    def _look(self) -> None:
        if self._collector.get_count()[2] >= MIDDLE_WALKS_MAX:
            self._collector.collect(MIDDLE)
            self._collector.freeze()

    def _walk_all(self) -> None:
        self._collector.unfreeze()
        self._walk_new()
        self._blocks = self._count_blocks()

    def _walk_new(self) -> None:
        self._collector.collect()
        self._collector.freeze()
