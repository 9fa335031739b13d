"""Holds answers about the cluster back until the controller's first UpdateMetadata has arrived.

A broker listens before it registers, so for a moment it knows no brokers, not even itself. A client that gets
an answer without brokers concludes that the cluster has none, and may wait long before it asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.coordinator.clock import Clock, DelayedCall

HELD_BACK_S_MAX = 10.0
"""Maximum waiting time in seconds, counted from the first request that waits. Then the broker answers all
waiting requests with what it knows."""

T = TypeVar("T")


class FirstUpdate:
    """Delays answers until the first update of `metadata`, or until `HELD_BACK_S_MAX` has passed."""

    def __init__(self, metadata: MetadataCache, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._waiting: list[Deferred[None]] = []
        self._timer: DelayedCall | None = None
        self._is_over = False

    def then(self, answer: Callable[[], T | Deferred[T]]) -> T | Deferred[T]:
        """Return `answer()`. Call it after the first update or when the time is up; immediately if either has
        happened."""
        if self._is_over or self._metadata.has_been_updated:
            return answer()
        if self._timer is None:
            self._timer = self._clock.callLater(HELD_BACK_S_MAX, self._end)
            self._metadata.next_update().addCallback(lambda _: self._end())
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting.addCallback(lambda _: answer())

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)
