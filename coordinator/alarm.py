"""A timer that is set, moved and cancelled, and then set again, for as long as its owner lives."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.coordinator.clock import Clock, DelayedCall


class Alarm:
    """Calls `ring` once, after the delay that was set last."""

    __slots__ = ("_call", "_clock", "_ring")

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._call: DelayedCall | None = None

    @property
    def is_set(self) -> bool:
        """Whether `ring` will be called; not any more while it runs."""
        return self._call is not None

    @property
    def due_s(self) -> float | None:
        """The time, by the clock, at which `ring` will be called; None if the alarm is not set."""
        return None if self._call is None else self._call.getTime()

    def set(self, delay_s: float) -> None:
        """Call `ring` in so many seconds, instead of when it was due before; 0: after this reactor turn."""
        if self._call is not None:
            self._call.cancel()
        self._call = self._clock.callLater(delay_s, self._ended)

    def cancel(self) -> None:
        """Do not call `ring`, unless the alarm is set again."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def end(self) -> None:
        """Never call `ring`, and forget it: the alarm of an owner that has ended would keep it in a cycle."""
        self.cancel()
        self._ring = _nothing

    def _ended(self) -> None:
        self._call = None
        self._ring()


def _nothing() -> None:
    """What an alarm that has ended would call."""
