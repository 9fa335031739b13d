"""Bounds the TLS handshakes of clients: how many are under way, for how long, and their share of the time.

The expensive step of a handshake, in which this side signs, takes 0.2 to 1 ms, and the peer need not have
proved anything for it. So a crowd of them must not delay the requests of others. A step never happens while
sockets are read, but in a slice of the rotation in which all work that can wait takes its turns: there is one
slice for the handshakes of a listener between two looks at the sockets. It ends after `TURN_S`, so it has one
expensive step, or several cheap ones. One that has waited for the peer longest gives way to a new one.

A handshake begins with the peer's first whole message. A peer that has not sent it occupies a plain socket,
so it displaces nobody: if it did, a crowd that never sends one would connect again and again.

Those under way have a line of their own, of which `CONTINUED` take a step for each one that begins. So a peer
that answers at once is done before so many have begun that its handshake would give way, and peers that send
a byte at a time keep nobody from beginning.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.tls.settings import HandshakeLimits
from holdfast_log.coordinator.clock import Clock, DelayedCall

TURN_S = 0.0002
"""Time in seconds after which no further step is begun before the next look at the sockets."""

CONTINUED = 2
"""How many handshakes under way take a step for each one that begins, while there are both."""


class Handshaking(Protocol):
    """A connection whose handshake goes on."""

    def shake(self) -> None:
        """Continue the handshake until the peer has to send something. No effect afterwards."""
        ...

    def wait_in_line(self) -> None:
        """Be not ready: `shake` will be called soon, but not now."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection, because its handshake may not go on. It calls `Handshakes.end`."""
        ...


class Handshakes:
    """The handshakes under way, oldest first, and the peers of which one is expected.

    `rotation` is shared with all other work that can wait; without it handshakes have their own.
    """

    def __init__(self, clock: Clock, limits: HandshakeLimits, rotation: Rotation | None = None) -> None:
        self._clock = clock
        self._limits = limits
        self._rotation = rotation or Rotation(clock)
        # The first of an ordinary dictionary is found slowly where many were first before it.
        self._since_s: OrderedDict[Handshaking, float] = OrderedDict()  # of all, as they were expected
        self._under_way: OrderedDict[Handshaking, None] = OrderedDict()  # as they began
        self._beginning: deque[Handshaking] = deque()  # wait for their first step
        self._continuing: deque[Handshaking] = deque()  # wait for a further one
        self._continued = 0  # since one began
        self._has_slice = False  # is in the rotation
        self._check: DelayedCall | None = None
        self.ended = 0
        """Handshakes that took too long, or gave way to others."""
        self.succeeded_kernel = 0
        """Handshakes after which the system encrypts what is sent."""
        self.succeeded_openssl = 0
        """Handshakes after which OpenSSL does."""

    def __len__(self) -> int:
        """How many handshakes are under way."""
        return len(self._under_way)

    def expect(self, one: Handshaking) -> None:
        """Give a peer its time for the handshake, from now on."""
        self._since_s[one] = self._clock.seconds()
        if self._check is None:
            self._check = self._clock.callLater(self._limits.timeout_ms / 1000, self._end_late)

    def begin(self, one: Handshaking) -> None:
        """Count a handshake that was expected. The oldest ends if there are too many."""
        while len(self._under_way) >= self._limits.open_max:
            oldest = next(iter(self._under_way))
            self.ended += 1
            oldest.give_up(f"{self._limits.open_max} handshakes (ssl.handshakes.max) began after it")
            self.end(oldest)
        self._under_way[one] = None

    def end(self, one: Handshaking) -> None:
        """Expect and count a handshake no longer; no effect if it is not expected."""
        self._under_way.pop(one, None)
        self._since_s.pop(one, None)
        if not self._since_s and self._check is not None:
            self._check.cancel()
            self._check = None

    def succeeded(self, *, by_kernel: bool) -> None:
        """Count a handshake that is done, by who encrypts what is sent on its connection."""
        if by_kernel:
            self.succeeded_kernel += 1
        else:
            self.succeeded_openssl += 1

    def step(self, one: Handshaking) -> None:
        """Call `one.shake` when its turn has come, before the next look at the sockets at the earliest."""
        one.wait_in_line()
        line = self._continuing if one in self._under_way else self._beginning
        line.append(one)
        self._expect_slice()

    def call(self, function: Callable[[], None]) -> None:
        """Call the function, which does one step, in rotation with all other work that can wait."""
        self._rotation.call(function)

    def take_slice(self, ends_s: float) -> bool:
        """Take steps until `ends_s` or for `TURN_S`: one at least. The rest waits for another look at the
        sockets, however little time has passed. Called by the rotation."""
        self._has_slice = False
        now_s = self._clock.seconds()
        ends_s = min(ends_s, now_s + TURN_S)
        try:
            while now_s < ends_s and (one := self._next()) is not None:
                one.shake()
                now_s = self._clock.seconds()
        finally:
            if self._beginning or self._continuing:
                self._expect_slice()
        return False

    def _expect_slice(self) -> None:
        if not self._has_slice:
            self._has_slice = True
            self._rotation.enqueue_next(self)

    def _next(self) -> Handshaking | None:
        """The next one in the lines that has not ended meanwhile; None if there is none."""
        while self._beginning or self._continuing:
            if self._continuing and (self._continued < CONTINUED or not self._beginning):
                self._continued += 1
                one = self._continuing.popleft()
            else:
                self._continued = 0
                one = self._beginning.popleft()
            if one in self._since_s:
                return one
        return None

    def _end_late(self) -> None:
        """End what is late; those of a crowd in several turns, because closing takes time too."""
        self._check = None
        timeout_s = self._limits.timeout_ms / 1000
        began_s = now_s = self._clock.seconds()
        while self._since_s:
            one, since_s = next(iter(self._since_s.items()))
            left_s = since_s + timeout_s - now_s
            if left_s > 0 or now_s - began_s >= TURN_S:
                self._check = self._clock.callLater(max(0.0, left_s), self._end_late)
                return
            self.ended += 1
            one.give_up(f"it took more than {self._limits.timeout_ms} ms (ssl.handshake.timeout.ms)")
            self.end(one)
            now_s = self._clock.seconds()
