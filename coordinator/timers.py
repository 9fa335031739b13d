"""Deadlines of a machine that has no clock.

A machine sets and cancels deadlines by key; whoever drives it asks for the next one, waits, and comes back
with the time. Moving a deadline further away, as every heartbeat does, costs one dictionary write: the queue
learns of it when the old deadline comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_SLACK = 64


class Timers(Generic[K]):
    """Deadlines by key, popped in order of time, those of the same time in the order they were queued."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the time of each key's one live entry in the heap
        self._heap: list[tuple[int, int, K]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, at_ms: int) -> None:
        """Let `key` fall due at `at_ms` instead of whenever it did before."""
        self._deadlines[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._rebuild()

    def cancel(self, key: K) -> None:
        """Forget `key`; nothing happens where it has no deadline."""
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None where there is none."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if self._queued.get(key) != at_ms:
                heapq.heappop(self._heap)  # a nearer deadline was set later, and has an entry of its own
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
        """The next key whose deadline has come, forgotten as it is returned; None where there is none."""
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
        """Drop the entries of cancelled keys, so that memory follows the number of live deadlines."""
        self._heap.clear()
        self._queued.clear()
        for key, at_ms in self._deadlines.items():
            self._push(key, at_ms)
