"""Reads that many may want at the same time, such as the listing of everything that ZooKeeper has of a kind.

A flood of requests that each read the same would keep ZooKeeper and its connection busy, which share the
processors with everybody else.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock

TOLD_AT_ONCE = 25
"""So many of those who wait go on in one turn of the reactor: each makes its answer."""


class SharedReads:
    """Carries out one read at a time. Those who ask while one is under way share the next one, so that
    nobody learns of anything older than the question.

    `read` begins a read; what it brings is where the caller looks for it.
    """

    def __init__(self, clock: Clock, read: Callable[[], Deferred[None]]) -> None:
        self._clock = clock
        self._read = read
        self._is_under_way = False
        self._waiting: list[Deferred[None]] = []
        """Those who have asked since the read under way has begun."""

    def ask(self) -> Deferred[None]:
        """Fires once a read that begins now or later has ended, or fails as it does."""
        asked: Deferred[None] = Deferred()
        self._waiting.append(asked)
        if not self._is_under_way:
            self._begin()
        return asked

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_under_way = True
        self._read().addBoth(self._ended, waiting)

    def _ended(self, outcome: Failure | None, waiting: list[Deferred[None]]) -> None:
        self._is_under_way = False
        if self._waiting:
            self._begin()
        self._tell(outcome, waiting)

    def _tell(self, outcome: Failure | None, waiting: list[Deferred[None]]) -> None:
        for asked in waiting[:TOLD_AT_ONCE]:
            asked.callback(outcome)  # A Failure fails it.
        if len(waiting) > TOLD_AT_ONCE:
            self._clock.callLater(0, self._tell, outcome, waiting[TOLD_AT_ONCE:])
