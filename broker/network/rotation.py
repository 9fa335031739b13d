"""Turns of connections of which several requests wait: each gets a little time, one after the other.

Most connections have one request at a time, which is handled as soon as it has been received. A client that
sends many at once could keep the broker from everybody else. So all such requests together get `TURN_S`
between two looks at the sockets, and a connection gets `SLICE_S` before it is the next one's turn: a client
with one request waits for `TURN_S` and one request at most, however many clients have sent how many.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from holdfast_log.coordinator.clock import Clock

TURN_S = 0.001
"""Time in seconds that requests which were sent ahead may take before everybody else is looked after."""

SLICE_S = 0.0005
"""Time in seconds that one connection may take of it, before others that wait."""


class Crowded(Protocol):
    """A connection of which several requests wait."""

    def take_slice(self, ends_s: float) -> bool:
        """Work until `ends_s` by the clock: on one request at least, if any may be handled. Returns whether
        something is left that may be done."""
        ...


class Rotation:
    """Whose turn it is among the connections of a broker of which several requests wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line: deque[Crowded] = deque()
        self._is_due = False  # A turn is expected, or being taken.
        self._spent_s = 0.0  # without waiting for a turn, since the last one

    @property
    def waiting(self) -> int:
        """Number of connections that wait for their turn."""
        return len(self._line)

    def at_once_s(self, now_s: float) -> float:
        """Until when a connection may go on now, without waiting for its turn; 0 if it has to wait."""
        if self._is_due or self._spent_s >= TURN_S:
            return 0.0
        return now_s + min(SLICE_S, TURN_S - self._spent_s)

    def spent(self, seconds: float) -> None:
        """Count what a connection has taken that did not wait for its turn."""
        self._spent_s += seconds

    def enqueue(self, connection: Crowded) -> None:
        """Give the connection a slice after those that wait already."""
        self._line.append(connection)
        if self._is_due:
            return
        if self._spent_s >= TURN_S:
            # The time between these two looks at the sockets is used up. The next call comes before the
            # next look, and the one after it behind.
            self._is_due = True
            self._clock.callLater(0, self._expect_turn)
        else:
            self._expect_turn()

    def _expect_turn(self) -> None:
        self._is_due = True
        self._clock.callLater(0, self._take_turn)

    def _take_turn(self) -> None:
        line, clock_s = self._line, self._clock.seconds
        began_s = now_s = clock_s()
        ends_s = began_s + TURN_S
        try:
            while line and now_s < ends_s:
                connection = line.popleft()
                if connection.take_slice(min(now_s + SLICE_S, ends_s)):
                    line.append(connection)
                now_s = clock_s()
        finally:
            # The next one waits for a look at the sockets if this turn was used up.
            self._spent_s = now_s - began_s
            self._is_due = False
            if line:
                self._expect_turn()
