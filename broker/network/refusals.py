"""What all refusals of a broker's connections share: the log lines, and the delayed close of a client that
connects again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.repeated_log import RepeatedLog


@dataclass(frozen=True, slots=True)
class RefusalPace:
    """An address may have `burst` connections refused at once, and `per_second` more each second; beyond that
    the close of a refused connection is delayed by up to `delay_max_s` seconds.

    At most `held_max` connections wait for their close at a time, and `addresses_max` addresses are
    remembered; beyond either a refused connection is closed at once.
    """

    burst: int = 100
    per_second: float = 2.0
    delay_max_s: float = 1.0
    held_max: int = 100
    addresses_max: int = 1000


class Refusals:
    """Logs refusals, each cause at most once per interval, and delays the close of connections from an
    address that has many refused. No other connection of that address waits.

    Kafka delays only the close after a failed authentication (`connection.failed.authentication.delay.ms`).
    """

    def __init__(self, clock: Clock, log: RepeatedLog, pace: RefusalPace) -> None:
        self.log = log
        self._clock = clock
        self._pace = pace
        self._paid_until_s: dict[str, float] = {}
        """For each address, the time until which its refusals use up its allowance."""
        self._held: dict[int, tuple[DelayedCall, Callable[[], None]]] = {}
        self._holdings = 0

    @property
    def held(self) -> int:
        """Number of refused connections that wait for their close."""
        return len(self._held)

    @property
    def addresses(self) -> int:
        """Number of addresses that are remembered."""
        return len(self._paid_until_s)

    def delay_s(self, host: str) -> float:
        """Count a refused connection of this address. Returns the time in seconds until its close."""
        if not self._pace.delay_max_s:
            return 0.0
        pace, now_s = self._pace, self._clock.seconds()
        paid_until_s = self._paid_until_s.get(host)
        if paid_until_s is None:
            if not self._has_room(now_s):
                return 0.0
            paid_until_s = now_s
        burst_s = pace.burst / pace.per_second
        paid_until_s = max(paid_until_s, now_s) + 1 / pace.per_second
        # An address owes at most the longest delay, so that it is free again soon after its loop ends.
        self._paid_until_s[host] = min(paid_until_s, now_s + burst_s + pace.delay_max_s)
        return max(0.0, self._paid_until_s[host] - now_s - burst_s)

    def end(self, host: str, close: Callable[[], None]) -> None:
        """Call `close` for a refused connection of this address: now, or after the address's delay."""
        delay_s = self.delay_s(host)
        if delay_s <= 0 or len(self._held) >= self._pace.held_max:
            close()
            return
        self._holdings += 1
        self._held[self._holdings] = (self._clock.callLater(delay_s, self._close, self._holdings), close)

    def end_all(self) -> None:
        """Close every connection that waits, because the broker stops."""
        for number in list(self._held):
            timer, _ = self._held[number]
            timer.cancel()
            self._close(number)

    def _close(self, number: int) -> None:
        _, close = self._held.pop(number)
        close()

    def _has_room(self, now_s: float) -> bool:
        """Whether one more address can be remembered. Forgets those whose whole allowance is available."""
        if len(self._paid_until_s) < self._pace.addresses_max:
            return True
        paid = self._paid_until_s
        self._paid_until_s = {host: until_s for host, until_s in paid.items() if until_s > now_s}
        return len(self._paid_until_s) < self._pace.addresses_max
