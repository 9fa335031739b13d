"""When Python looks for reference cycles: among new objects only, some hundred at a time.

The hot paths leave no cycles, so nearly all garbage is freed without a collection. Collections find the rest,
and every client waits for them: a walk takes 0.1 µs for an object in the processor's caches, and up to 3 µs
for one that is not. Short walks that come often delay nobody by more than a millisecond or two, and take no
longer together than a few long ones. Python's own schedule walks all objects whenever a quarter of them is
new, which any client can bring about with a few long requests.

Here no client can bring about a walk over more than `WALKED_MAX` objects. Python walks the youngest, and
those that have survived one such walk. What is left then is frozen at the next look. So a cycle that lives
for longer than some thousand new objects, or for `PERIOD_MS`, is not found soon once it is garbage.
docs/costliest-requests.md says how many such cycles requests of all APIs leave; what lives long (connections,
sessions, groups, logs) has to break its own (`tests/broker/test_reference_cycles.py`). Everything is walked
once in `WHOLE_MS`, so that a cycle that nobody has thought of costs a day's garbage at most, and not a growth
over months: that is the only walk for which clients wait longer, 0.1 to 0.3 s for a million objects.
"""

from __future__ import annotations

import gc
from typing import Protocol

from holdfast_log.broker.process.periodic import Periodic
from holdfast_log.coordinator.clock import Clock

PERIOD_MS = 5_000
"""Time in ms after which a cycle of new objects is found, however few come."""

WHOLE_MS = 86_400_000
"""Time in ms between two walks over everything."""

LOOK_MS = 50
"""Time in ms between two looks at whether many objects have come."""

MIDDLE = 1
"""The generation of those that have survived one walk. To walk it is to walk the youngest, too."""

THRESHOLDS = (400, 1, 1_000_000)
"""As `gc.set_threshold` takes them. Every third walk also goes over what the two before it have left. Python
walks no more than these by itself."""

WALKED_MAX = 3 * (THRESHOLDS[0] + 1)
"""Objects that are walked at most: the youngest, and those that two walks have left."""


class Collector(Protocol):
    """What is used of Python's module `gc`. To count what is frozen is not: it walks all of it."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None: ...
    def collect(self, generation: int = 2) -> int: ...
    def get_count(self) -> tuple[int, int, int]: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...


class Collecting:
    """Collects the garbage of the process until it ends."""

    def __init__(self, clock: Clock, collector: Collector = gc) -> None:
        self._periodic = Periodic(clock)
        self._collector = collector

    def begin(self) -> None:
        """The objects built so far live as long as the process: walk them once, and exclude them. Collect
        from now on."""
        self._collector.collect()
        self._collector.freeze()
        self._collector.set_threshold(*THRESHOLDS)
        self._periodic.add(PERIOD_MS, self._walk_new)
        self._periodic.add(LOOK_MS, self._look)
        self._periodic.add(WHOLE_MS, self._walk_all)

    def _look(self) -> None:
        """Freeze what two walks have left, before there is more of it than one walk may go over."""
        _, _, middle_walks = self._collector.get_count()
        if middle_walks:
            self._walk_new()

    def _walk_new(self) -> None:
        self._collector.collect(MIDDLE)
        self._collector.freeze()

    def _walk_all(self) -> None:
        self._collector.unfreeze()
        self._collector.collect()
        self._collector.freeze()
