"""When to look after whom: a heap of times, so that the cost is that of those whose time has come."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TypeAlias

from broker.ownership.resources import Waiter
from coordinator.ownership_records import ResourceKey


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


class Deadlines:
    """Who is to be looked after when. What has become needless meanwhile is noticed when its time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Watched]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_ms: int, watched: Watched) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, watched))

    @property
    def next_ms(self) -> int | None:
        """When the next one is due; None where nobody is watched."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Watched | None:
        """One that is due now."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        return heapq.heappop(self._heap)[2]
