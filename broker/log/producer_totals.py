"""Limits on what all logs of a broker together remember of producers: their ids and their append ids.

A log has limits of its own (`producer_state`, `append_ids`), but a client may write to all partitions. Where
a total is exceeded, the log that has the most gives something up, and in it the source or producer that has
the most. So what a stranger fills is taken from the stranger, as long as honest producers have less.

Additions are counted, removals are not: when a count reaches its limit, what there really is is counted, and
a part is removed so that the next count is far away.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

_PART = 400
"""A limit that is reached makes room for this part of it."""
_SOURCES_MAX = 10_000
"""Maximum number of sources that are counted before those without producers are looked for."""


@dataclass(frozen=True, slots=True)
class TotalLimits:
    """How many producers and append ids all logs together remember, counted once for each partition, and how
    many producers that one source has introduced."""

    producers: int = 400_000
    producers_per_source: int = 100_000
    append_ids: int = 200_000


class RemembersProducers(Protocol):
    """The state of the producers of one log."""

    @property
    def producer_count(self) -> int:
        """Number of producers."""

    @property
    def id_count(self) -> int:
        """Number of append ids."""

    def count_of(self, source: str) -> int:
        """Number of producers that a source has introduced."""

    def sources(self) -> Iterable[str]:
        """The sources of the producers."""

    def forget_producers(self, count: int, source: str | None) -> None:
        """Forget so many producers of a source, the longest unused first; of the source with the most if
        `source` is None."""

    def forget_ids(self, count: int) -> None:
        """Forget so many append ids, the oldest of the producer with the most first."""


class ProducerTotals:
    """Keeps what all logs remember of producers within limits. `unlimited_source` has no limit of its own."""

    def __init__(self, limits: TotalLimits, unlimited_source: str) -> None:
        self._limits = limits
        self._unlimited_source = unlimited_source
        # Not a set: its order would differ from run to run, and with it which log gives something up.
        self._states: weakref.WeakKeyDictionary[RemembersProducers, None] = weakref.WeakKeyDictionary()
        self._producers = 0
        """At least as many as there are, as the other counts."""
        self._of_source: dict[str, int] = {}
        self._append_ids = 0

    def adopt(self, state: RemembersProducers) -> None:
        """Count a log from now on, as long as it exists."""
        self._states[state] = None
        self._producers += state.producer_count
        self._append_ids += state.id_count
        # Not for every log: a start or a new topic has thousands, and all would be counted each time.
        if self._producers > self._limits.producers:
            self._keep_producers()
        if self._append_ids > self._limits.append_ids:
            self._keep_append_ids()

    def producer_comes(self, source: str) -> None:
        """Make room for a producer of a source, just before it is added to a log."""
        self._producers += 1
        count = self._of_source.get(source, 0) + 1
        self._of_source[source] = count
        if count > self._limits.producers_per_source and source != self._unlimited_source:
            self._keep_source(source)
        if self._producers > self._limits.producers:
            self._keep_producers()
        if len(self._of_source) > _SOURCES_MAX:
            self._count_sources()

    def append_id_comes(self) -> None:
        """Make room for an append id, just before it is added to a log."""
        self._append_ids += 1
        if self._append_ids > self._limits.append_ids:
            self._keep_append_ids()

    def _keep_source(self, source: str) -> None:
        def forget(state: RemembersProducers, count: int) -> None:
            state.forget_producers(count, source)

        limit = self._limits.producers_per_source
        self._of_source[source] = 1 + self._kept(lambda state: state.count_of(source), forget, limit)

    def _keep_producers(self) -> None:
        def forget(state: RemembersProducers, count: int) -> None:
            state.forget_producers(count, None)

        self._producers = 1 + self._kept(lambda state: state.producer_count, forget, self._limits.producers)

    def _keep_append_ids(self) -> None:
        def forget(state: RemembersProducers, count: int) -> None:
            state.forget_ids(count)

        self._append_ids = 1 + self._kept(lambda state: state.id_count, forget, self._limits.append_ids)

    def _kept(
        self,
        count_in: Callable[[RemembersProducers], int],
        forget: Callable[[RemembersProducers, int], None],
        limit: int,
    ) -> int:
        """Have the states that have the most forget what is too much. Returns how many there are then."""
        counts = {state: count for state in self._states if (count := count_in(state))}
        total = sum(counts.values())
        room = max(1, limit // _PART)
        if total <= limit - room:
            return total
        excess = total - (limit - room)
        while excess > 0 and counts:
            largest = max(counts, key=counts.__getitem__)
            taken = min(excess, max(1, counts[largest] // 2))
            forget(largest, taken)
            excess -= taken
            total -= taken
            counts[largest] -= taken
            if not counts[largest]:
                del counts[largest]
        return total

    def _count_sources(self) -> None:
        found: dict[str, int] = {}
        for state in self._states:
            for source in state.sources():
                found[source] = found.get(source, 0) + state.count_of(source)
        self._of_source = found
