"""Time, as it comes in through constructors: Twisted's reactor, or the clock of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class DelayedCall(Protocol):
    """A call that is to come."""

    def active(self) -> bool:
        """Whether it is still to come: neither made nor cancelled."""
        ...

    def cancel(self) -> None: ...

    def getTime(self) -> float:
        """When it is to be made, in the clock's seconds."""
        ...

    def reset(self, secondsFromNow: float) -> None:
        """Make it so many seconds from now instead."""
        ...


class Clock(Protocol):
    """What is used of Twisted's IReactorTime."""

    def seconds(self) -> float:
        """Seconds since the epoch."""
        ...

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object) -> DelayedCall:
        """Call after `delay` seconds."""
        ...


def now_ms(clock: Clock) -> int:
    """The time in milliseconds since the epoch."""
    return int(clock.seconds() * 1000)
