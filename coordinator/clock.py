"""The clock that constructors take: Twisted's reactor, or the clock of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class DelayedCall(Protocol):
    """A scheduled call."""

    def active(self) -> bool:
        """Whether the call is still pending: neither made nor cancelled."""
        ...

    def cancel(self) -> None: ...

    def getTime(self) -> float:
        """The time at which the call is due, in seconds of the clock."""
        ...

    def reset(self, secondsFromNow: float) -> None:
        """Reschedule the call to `secondsFromNow`."""
        ...


class Clock(Protocol):
    """The part of Twisted's IReactorTime that is used here."""

    def seconds(self) -> float:
        """Seconds since the epoch."""
        ...

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object) -> DelayedCall:
        """Call `callable(*args)` after `delay` seconds."""
        ...


def now_ms(clock: Clock) -> int:
    """The clock's time in milliseconds since the epoch."""
    return int(clock.seconds() * 1000)
