"""Waits for a time, or for other turns of the reactor, in coroutines and chains of callbacks."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.clock import Clock


def pause(clock: Clock, seconds: float = 0.0) -> Deferred[None]:
    """Fires after so many seconds; without them, in a later turn of the reactor."""
    over: Deferred[None] = Deferred()
    clock.callLater(seconds, over.callback, None)
    return over
