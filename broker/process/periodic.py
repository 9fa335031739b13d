"""Calls functions at fixed intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast_log.coordinator.clock import Clock, DelayedCall

_log = logging.getLogger(__name__)


class Periodic:
    """Calls functions at fixed intervals until `stop`. The first call comes one interval after `add`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next: dict[Callable[[], object], DelayedCall] = {}

    def add(self, interval_ms: int, function: Callable[[], object]) -> None:
        """Call `function` every `interval_ms`. Its result is ignored; its exceptions are logged."""
        self._next[function] = self._clock.callLater(interval_ms / 1000, self._run, interval_ms, function)

    def stop(self) -> None:
        pending, self._next = self._next, {}
        for call in pending.values():
            call.cancel()

    def _run(self, interval_ms: int, function: Callable[[], object]) -> None:
        del self._next[function]
        try:
            function()
        except Exception:
            _log.exception(
                "Periodic call of %s failed; it is called again at the next interval",
                getattr(function, "__qualname__", function),
            )
        self.add(interval_ms, function)
