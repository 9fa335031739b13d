"""The two clocks that constructors take.

Every interval, timer and timeout is measured by a `Clock`, which nobody can set: when an administrator sets
the time of day back by an hour, no timer may stop for an hour; when it is set forward, no session may end.
Only timestamps, which are stored or sent, come from `TimeOfDay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

TimeOfDay: TypeAlias = Callable[[], int]
"""Returns the time of day in ms since the epoch. An administrator may set it, forward and back."""


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
    """The part of Twisted's IReactorTime that is used here: the reactor, or the clock of a simulation."""

    def seconds(self) -> float:
        """Seconds since an arbitrary moment, never set back."""
        ...

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object) -> DelayedCall:
        """Call `callable(*args)` after `delay` seconds."""
        ...


def now_ms(clock: Clock) -> int:
    """The clock's time in ms since an arbitrary moment."""
    return int(clock.seconds() * 1000)
