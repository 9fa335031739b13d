"""Checks again what clients have been allowed, after what decides about it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock

DELAY_S = 1.0
"""Time in seconds from a change to the check; changes in between are checked together."""


class Recheck:
    """A check that begins within `DELAY_S` of a change and goes on in turns of the reactor, so that clients
    are served in between.

    `check` returns the steps of a new check; a turn takes `per_turn` of them. A change during a check begins
    the check anew.
    """

    def __init__(self, check: Callable[[], Iterator[None]], per_turn: int, clock: Clock) -> None:
        self._check = check
        self._per_turn = per_turn
        self._alarm = Alarm(clock, self._begin)
        self._turn = Alarm(clock, self._go_on)
        self._steps: Iterator[None] = iter(())

    def changed(self) -> None:
        """Check soon."""
        if not self._alarm.is_set:
            self._alarm.set(DELAY_S)

    def stop(self) -> None:
        """Check nothing any more, because the broker stops."""
        self._alarm.cancel()
        self._turn.cancel()

    def _begin(self) -> None:
        self._steps = self._check()
        self._go_on()

    def _go_on(self) -> None:
        if sum(1 for _ in islice(self._steps, self._per_turn)) == self._per_turn:
            self._turn.set(0)
