"""Turns of work that can wait: all of it together gets a little time between two looks at the sockets.

Most connections have one request at a time, which is handled as soon as it has been received. A client that
sends many at once, or long ones, could keep the broker from everybody else. So whatever can wait shares
`TURN_S` between two looks at the sockets: requests that were sent ahead, the decoding of long ones, the rows
of long answers, requests that are handled in parts, the end of connections whose peers have gone and what
they leave, the steps of TLS handshakes. Each piece of work gets `SLICE_S` before it is the next one's turn: a
client with one request waits for `TURN_S` and one step of such work at most, however many clients have sent
how much of which kind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock

T = TypeVar("T")

TURN_S = 0.0005
"""Time in seconds that all work which can wait may take before everybody else is looked after."""

SLICE_S = 0.00025
"""Time in seconds that one piece of it may take, before others that wait."""


class SlicedWork(Protocol):
    """Work that can wait, such as a connection with several requests."""

    def take_slice(self, ends_s: float) -> bool:
        """Work until `ends_s` by the clock: do one step at least, if any may be done. Returns whether
        something is left that may be done before the next look at the sockets."""
        ...


class Rotation:
    """Whose turn it is among the work of a broker that can wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line: deque[SlicedWork] = deque()
        self._next_line: deque[SlicedWork] = deque()  # after the next look at the sockets
        self._is_due = False  # A turn is expected, or being taken.
        self._is_in_turn = False
        self._spent_s = 0.0  # without waiting for a turn, since the last one
        self._ends_s = math.inf  # of the slice that is being taken

    @property
    def waiting(self) -> int:
        """Number of connections, and of other pieces of work, that wait for their turn."""
        return len(self._line) + len(self._next_line)

    @property
    def is_over(self) -> bool:
        """Whether the slice that is being taken has ended: what was begun in it goes on in another one."""
        return self._clock.seconds() >= self._ends_s

    def at_once_s(self, now_s: float) -> float:
        """Until when a connection may go on now, without waiting for its turn; 0 if it has to wait."""
        if self._is_due or self._spent_s >= TURN_S:
            return 0.0
        self._ends_s = now_s + min(SLICE_S, TURN_S - self._spent_s)
        return self._ends_s

    def spent(self, seconds: float) -> None:
        """Count what a connection has taken that did not wait for its turn."""
        self._spent_s += seconds
        self._ends_s = math.inf

    def enqueue(self, work: SlicedWork) -> None:
        """Give the work a slice after those that wait already."""
        self._line.append(work)
        if self._is_due:
            return
        if self._spent_s >= TURN_S:
            # The time between these two looks at the sockets is used up. The next call comes before the
            # next look, and the one after it behind.
            self._is_due = True
            self._clock.callLater(0, self._expect_turn)
        else:
            self._expect_turn()

    def enqueue_next(self, work: SlicedWork) -> None:
        """Give the work a slice after the next look at the sockets, after those that wait already."""
        if self._is_in_turn:
            self._next_line.append(work)
        else:
            self.enqueue(work)

    def call(self, function: Callable[[], None]) -> None:
        """Call the function, which does one step, in a slice of its own after the next look at the
        sockets."""
        self.enqueue_next(_Step(function))

    def take_steps(self, steps: Generator[None, None, T]) -> Deferred[T]:
        """Take the steps in slices, the first after the next look at the sockets. Fires with what they
        return, or fails with what they raise."""
        taken: Deferred[T] = Deferred()
        self.enqueue_next(_Steps(steps, self._clock.seconds, taken))
        return taken

    def _expect_turn(self) -> None:
        self._is_due = True
        self._clock.callLater(0, self._take_turn)

    def _take_turn(self) -> None:
        line, clock_s = self._line, self._clock.seconds
        began_s = now_s = clock_s()
        ends_s = began_s + TURN_S
        self._is_in_turn = True
        try:
            while line and now_s < ends_s:
                work = line.popleft()
                self._ends_s = min(now_s + SLICE_S, ends_s) if line else ends_s
                if work.take_slice(self._ends_s):
                    line.append(work)
                now_s = clock_s()
        finally:
            # The next one waits for a look at the sockets if this turn was used up.
            self._spent_s = now_s - began_s
            self._ends_s = math.inf
            self._is_in_turn = self._is_due = False
            line.extend(self._next_line)
            self._next_line.clear()
            if line:
                self._expect_turn()


@dataclass(frozen=True, slots=True)
class _Steps(Generic[T]):
    """Work of many steps."""

    steps: Generator[None, None, T]
    clock_s: Callable[[], float]
    taken: Deferred[T]

    def take_slice(self, ends_s: float) -> bool:
        try:
            next(self.steps)
            while self.clock_s() < ends_s:
                next(self.steps)
        except StopIteration as end:
            self.taken.callback(end.value)
            return False
        except Exception:
            self.taken.errback(Failure())
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Step:
    """Work of one step."""

    function: Callable[[], None]

    def take_slice(self, ends_s: float) -> bool:
        self.function()
        return False
