"""The log line that sums up the controller's work after the set of live brokers has changed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.controller.effects import BrokerRequest

_log = logging.getLogger(__name__)


class EventSummary:
    """Counts the writes and requests that one event causes, from construction on.

    After `finish`, one line is logged as soon as every request is answered or its broker has gone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.seconds()
        self._states = 0
        self._written_ms = 0
        self._requests: Counter[str] = Counter()
        self._unanswered = 0
        self._brokers: str | None = None

    def count_states(self, states: int) -> None:
        """`states` partition states have just been written."""
        self._states += states
        self._written_ms = self._elapsed_ms()

    def count_request(self, request: BrokerRequest, answered: Deferred[bool]) -> None:
        """A request was sent; `answered` fires when it is answered, or will never be."""
        self._requests[request.api.name] += 1
        self._unanswered += 1
        answered.addCallback(self._answered)

    def finish(self, brokers: Sequence[int]) -> None:
        """The event is handled; `brokers` are the live brokers now."""
        self._brokers = ", ".join(map(str, brokers))
        self._log_if_done()

    def _answered(self, done: bool) -> bool:
        self._unanswered -= 1
        self._log_if_done()
        return done

    def _log_if_done(self) -> None:
        if self._brokers is None or self._unanswered:
            return
        requests = ", ".join(f"{count} {name}" for name, count in sorted(self._requests.items()))
        _log.info(
            "brokers are now [%s]: %d partition states written within %d ms, %s answered within %d ms",
            self._brokers,
            self._states,
            self._written_ms,
            requests or "no requests",
            self._elapsed_ms(),
        )

    def _elapsed_ms(self) -> int:
        return round((self._clock.seconds() - self._began) * 1000)
