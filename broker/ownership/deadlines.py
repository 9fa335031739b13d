"""When to look after whom: a heap of times, so that the cost is that of those whose time has come."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TypeAlias

from broker.ownership.resources import Waiter
from coordinator.ownership.records import ResourceKey


@dataclass(frozen=True, slots=True)
class OfOwner:
    """The session, or the grace, of the owner that holds this incarnation."""

    key: ResourceKey
    group: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class OfWaiter:
    """The session and the patience of one that waits."""

    key: ResourceKey
    waiter: Waiter


@dataclass(frozen=True, slots=True)
class OfSharer:
    """The session of a producer with shared access."""

    key: ResourceKey
    connection: int


Watched: TypeAlias = OfOwner | OfWaiter | OfSharer


_STALE_MIN = 64
"""So many are not worth clearing away."""


class Deadlines:
    """Who is to be looked after when: each once, at the earliest of the times given. Whoever looks says when
    to look again. What is not to be looked after any more is cleared away when it is the greater part."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Watched]] = []
        self._due: dict[Watched, int] = {}
        self._count = 0

    def __len__(self) -> int:
        """What is kept, whether it still counts or not."""
        return len(self._heap)

    def add(self, at_ms: int, watched: Watched) -> None:
        due_ms = self._due.get(watched)
        if due_ms is not None and due_ms <= at_ms:
            return
        self._due[watched] = at_ms
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, watched))
        if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
            self._heap = [item for item in self._heap if self._counts(item)]
            heapq.heapify(self._heap)

    def discard(self, watched: Watched) -> None:
        """It need not be looked after any more."""
        self._due.pop(watched, None)

    def _counts(self, item: tuple[int, int, Watched]) -> bool:
        at_ms, _, watched = item
        return self._due.get(watched) == at_ms

    @property
    def next_ms(self) -> int | None:
        """When the next one is due; None where nobody is watched."""
        heap = self._heap
        while heap and not self._counts(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Watched | None:
        """One that is due now."""
        next_ms = self.next_ms
        if next_ms is None or next_ms > now_ms:
            return None
        watched = heapq.heappop(self._heap)[2]
        del self._due[watched]
        return watched
