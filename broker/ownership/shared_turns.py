"""Shares the turns of the reactor among pieces of work that are too long for one."""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.clock import Clock


class SharedTurns:
    """Lets all pieces of work together do `steps_max` steps in one turn of the reactor.

    A piece asks with `take` for as many steps as it still needs, does those that it gets, and asks again.
    Pieces that have to wait get the next turns in the order in which they asked.
    """

    def __init__(self, clock: Clock, steps_max: int) -> None:
        self._clock = clock
        self._steps_max = steps_max
        self._left = steps_max
        self._waiting: deque[Deferred[None]] = deque()
        self._is_next_due = False

    async def take(self, wanted: int) -> int:
        """How many of the `wanted` steps, one or more, may be done now. It may be a later turn by then."""
        while self._left <= 0:
            turn: Deferred[None] = Deferred()
            self._waiting.append(turn)
            await turn
        taken = min(wanted, self._left)
        self._left -= taken
        self._expect_next()
        return taken

    def _expect_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._clock.callLater(0, self._begin)

    def _begin(self) -> None:
        self._is_next_due = False
        self._left = self._steps_max
        while self._waiting and self._left > 0:
            self._waiting.popleft().callback(None)
