"""Deadlines of a machine that has no clock.

The machine sets and cancels deadlines by key; its driver asks for the next one, waits, and calls back with
the time. Moving a deadline further away, as every heartbeat does, costs one dictionary write; the heap entry
is moved when the old deadline is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_SLACK = 64


class Timers(Generic[K]):
    """Deadlines by key, popped in order of time; those at the same time in the order of queueing."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the time of each key's valid entry in the heap
        self._heap: list[tuple[int, int, K]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, at_ms: int) -> None:
        """Set the deadline of `key`, replacing any earlier one."""
        self._deadlines[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._rebuild()

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it has one."""
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if self._queued.get(key) != at_ms:
                heapq.heappop(self._heap)  # an earlier deadline was set since, with its own entry
                continue
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == at_ms:
                return at_ms
            heapq.heappop(self._heap)
            del self._queued[key]
            if deadline_ms is not None:
                self._push(key, deadline_ms)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key of the earliest deadline that is due at `now_ms`, or None."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def _push(self, key: K, at_ms: int) -> None:
        self._pushes += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._pushes, key))

    def _rebuild(self) -> None:
        """Drop entries of cancelled keys, so that memory stays proportional to the number of deadlines."""
        self._heap.clear()
        self._queued.clear()
        for key, at_ms in self._deadlines.items():
            self._push(key, at_ms)
