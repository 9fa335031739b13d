"""The deadlines of requests that wait: many of them, of which nearly all end before their time.

A timer of its own for each request costs more than the rest of its wait. Here all requests of one kind share
one timer, which is set for the earliest deadline. A request that has ended stays in the list until its
deadline, unless half of those in the list have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

from holdfast_log.coordinator.clock import Clock, DelayedCall

_ENDED_MIN = 64
"""Fewer ended requests than this are not worth a search for them."""
_TOLERANCE_S = 1e-6
"""A timer is set for a delay, and so may ring this much before the deadline."""


class TimedWait(Protocol):
    """A request that waits."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        ...

    def run_out(self) -> None:
        """End the wait, since its deadline has passed."""
        ...


class Deadlines:
    """Calls `run_out` of each waiter at its deadline, unless it has ended: the earliest first, and of equal
    deadlines the one that was added first."""

    __slots__ = ("_clock", "_ended", "_heap", "_number", "_ring_s", "_seconds", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: Callable[[], float] = clock.seconds
        self._heap: list[tuple[float, int, TimedWait]] = []
        self._number = 0
        self._ended = 0
        """How many of the waiters in the list have ended, at least; more are found when their time comes."""
        self._timer: DelayedCall | None = None
        self._ring_s = 0.0

    def __len__(self) -> int:
        """How many waiters are in the list, ended ones included."""
        return len(self._heap)

    def add(self, waiter: TimedWait, delay_s: float) -> None:
        """Have a waiter run out after this delay."""
        due_s = self._seconds() + delay_s
        self._number += 1
        heapq.heappush(self._heap, (due_s, self._number, waiter))
        if self._timer is None or due_s < self._ring_s:
            self._set(due_s)

    def ended(self) -> None:
        """Call when a waiter has ended before its time."""
        self._ended += 1
        heap = self._heap
        if self._ended < _ENDED_MIN or 2 * self._ended < len(heap):
            return
        heap[:] = [entry for entry in heap if not entry[2].is_over]
        heapq.heapify(heap)
        self._ended = 0

    def cancel(self) -> None:
        """Stop the timer: nobody waits any more."""
        self._heap.clear()
        self._ended = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ring_s = due_s
        self._timer = self._clock.callLater(max(0.0, due_s - self._seconds()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        heap, now_s = self._heap, self._seconds() + _TOLERANCE_S
        try:
            while heap and (heap[0][0] <= now_s or heap[0][2].is_over):
                waiter = heapq.heappop(heap)[2]
                if waiter.is_over:
                    self._ended = max(0, self._ended - 1)
                else:
                    waiter.run_out()
        finally:
            if heap and self._timer is None:
                self._set(heap[0][0])
