"""Bounds the TLS handshakes of clients: how many are under way, for how long, and their share of each turn.

A handshake costs a millisecond of computing, and the peer need not have proved anything for it. So a crowd
of them must not delay the requests of others: in each turn of the reactor handshakes have `TURN_S`, and
those beyond wait in line for the next. One that has waited for the peer longest gives way to a new one.

A handshake begins with the peer's first whole message. A peer that has not sent it occupies a plain socket,
so it displaces nobody: if it did, a crowd that never sends one would connect again and again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Protocol

from holdfast_log.broker.network.tls.settings import HandshakeLimits
from holdfast_log.coordinator.clock import Clock, DelayedCall

TURN_S = 0.0005
"""Time in seconds of a turn of the reactor after which further handshakes wait for the next turn."""


class Handshaking(Protocol):
    """A connection whose handshake goes on."""

    def shake(self) -> None:
        """Continue the handshake until the peer has to send something. No effect afterwards."""
        ...

    def wait_in_line(self) -> None:
        """Be not ready: `shake` will be called in a later turn."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection, because its handshake may not go on. It calls `Handshakes.end`."""
        ...


class Handshakes:
    """The handshakes under way, oldest first, and the peers of which one is expected."""

    def __init__(self, clock: Clock, limits: HandshakeLimits) -> None:
        self._clock = clock
        self._limits = limits
        # The first of an ordinary dictionary is found slowly where many were first before it.
        self._since_s: OrderedDict[Handshaking, float] = OrderedDict()  # of all, as they were expected
        self._under_way: OrderedDict[Handshaking, None] = OrderedDict()  # as they began
        self._line: deque[Handshaking] = deque()
        self._spent_s = 0.0
        self._next_turn: DelayedCall | None = None
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
        """Call `one.shake` now, or in a later turn if this one's share is spent."""
        if self._line or self._spent_s >= TURN_S:
            one.wait_in_line()
            self._line.append(one)
            return
        self._shake(one)

    def _shake(self, one: Handshaking) -> None:
        began_s = self._clock.seconds()
        one.shake()
        self._spent_s += self._clock.seconds() - began_s
        if self._next_turn is None:
            self._next_turn = self._clock.callLater(0, self._begin_turn)

    def _begin_turn(self) -> None:
        self._next_turn = None
        self._spent_s = 0.0
        while self._line and self._spent_s < TURN_S:
            one = self._line.popleft()
            if one in self._since_s:
                self._shake(one)
        if self._line and self._next_turn is None:
            self._next_turn = self._clock.callLater(0, self._begin_turn)

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
