"""Memory for requests, shared by all connections (`queued.max.request.bytes`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast_log.coordinator.clock import Clock

NO_LIMIT = -1

_SWEEP_S = 1.0

_PATIENCE_S = 2.0
"""Time in seconds after which an incomplete request loses its memory to others that wait for some."""


class RequestMemory:
    """Lends a number of bytes out of `bytes_max`; callers queue while too few are left.

    A connection borrows for the bytes of a request that it has received, not for those that were announced.
    Callers are served in order of arrival: if small ones could overtake a large one, it might never be
    served. A request larger than the limit passes alone. `bytes_max` of -1 means no limit.
    """

    def __init__(self, bytes_max: int = NO_LIMIT) -> None:
        self._bytes_max = bytes_max
        self._lent_bytes = 0
        self._line: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_limited(self) -> bool:
        """Whether a caller may have to wait."""
        return self._bytes_max != NO_LIMIT

    @property
    def lent_bytes(self) -> int:
        return self._lent_bytes

    @property
    def left_bytes(self) -> float:
        """Bytes that can be lent; infinite without a limit, negative after loans over the limit."""
        return self._bytes_max - self._lent_bytes if self.is_limited else float("inf")

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._line)

    def borrow(self, size: int, granted: Callable[[], None]) -> bool:
        """Borrow `size` bytes. Returns False if there is no room yet; `granted` is called when there is."""
        if self._line or not self._fits(size):
            self._line.append((size, granted))
            return False
        self._lent_bytes += size
        return True

    def borrow_at_once(self, size: int) -> None:
        """Borrow `size` bytes, even over the limit."""
        self._lent_bytes += size

    def give_back(self, size: int) -> None:
        """Return `size` bytes that were lent."""
        self._lent_bytes -= size
        while self._line and self._fits(self._line[0][0]):
            wanted, granted = self._line.popleft()
            self._lent_bytes += wanted
            granted()

    def leave(self, granted: Callable[[], None]) -> None:
        """Remove the waiter that has this `granted` callback from the queue, if it is there."""
        self._line = deque(entry for entry in self._line if entry[1] != granted)
        self.give_back(0)

    def _fits(self, size: int) -> bool:
        return (
            self._bytes_max == NO_LIMIT or not self._lent_bytes or self._lent_bytes + size <= self._bytes_max
        )


class LateFrame(Protocol):
    """A large request of which only a part has been received."""

    borrowed: int
    is_held: bool

    def hurry(self) -> None:
        """Borrow what it waits for, even over the limit."""
        ...

    def give_up(self, reason: str) -> None:
        """Close its connection."""
        ...


class IncompleteFrames:
    """The large requests that are being received, each with a deadline.

    A request that is not complete after `timeout_ms` ends with its connection. While others wait for
    memory, so does the incomplete request that holds the most of it, if it began more than two
    seconds ago: nobody waits for bytes that another client only promised. Time in which it waits
    for memory itself does not count. The oldest one never waits, since otherwise all might wait for
    one another. Costs a dictionary's entry for each request, and one timer for all.
    """

    def __init__(self, clock: Clock, memory: RequestMemory, timeout_ms: int) -> None:
        self._clock = clock
        self._memory = memory
        self._timeout_ms = timeout_ms
        self._began_s: dict[LateFrame, float] = {}
        self._has_timer = False

    def __len__(self) -> int:
        return len(self._began_s)

    def begin(self, frame: LateFrame) -> None:
        self._began_s[frame] = self._clock.seconds()
        if not self._has_timer:
            self._has_timer = True
            self._clock.callLater(_SWEEP_S, self._sweep)

    def is_oldest(self, frame: LateFrame) -> bool:
        return next(iter(self._began_s), None) is frame

    def end(self, frame: LateFrame) -> None:
        """The request is complete, or its connection has closed."""
        was_oldest = self.is_oldest(frame)
        self._began_s.pop(frame, None)
        if was_oldest and self._began_s:
            next(iter(self._began_s)).hurry()

    def _sweep(self) -> None:
        self._has_timer = False
        now_s = self._clock.seconds()
        for frame, began_s in list(self._began_s.items()):
            if frame.is_held:
                self._began_s[frame] = now_s
            elif now_s - began_s > self._timeout_ms / 1000:
                self._end(frame, f"a request was not complete after {self._timeout_ms} ms")
        while self._memory.waiting:
            slow = [each for each, began_s in self._began_s.items() if now_s - began_s > _PATIENCE_S]
            worst = max(slow, key=lambda each: each.borrowed, default=None)
            if worst is None:
                break
            reason = f"{worst.borrowed} bytes of an incomplete request, for which others wait"
            self._end(worst, reason)
        if self._began_s:
            self._has_timer = True
            self._clock.callLater(_SWEEP_S, self._sweep)

    def _end(self, frame: LateFrame, reason: str) -> None:
        self.end(frame)
        frame.give_up(reason)


class RequestMemories:
    """The memory for clients' requests, and that of the listener through which brokers connect, so that they
    do not wait behind clients."""

    def __init__(
        self,
        clock: Clock,
        memory: RequestMemory,
        timeout_ms: int,
        brokers_listener: str = "",
        brokers: RequestMemory | None = None,
    ) -> None:
        self._clients = memory, IncompleteFrames(clock, memory, timeout_ms)
        self._brokers_listener = brokers_listener
        self._brokers = None
        if brokers is not None:
            self._brokers = brokers, IncompleteFrames(clock, brokers, timeout_ms)

    def of(self, listener: str) -> tuple[RequestMemory, IncompleteFrames]:
        """The memory of a listener's connections, and the requests that are being received into it."""
        if self._brokers is not None and listener == self._brokers_listener:
            return self._brokers
        return self._clients
