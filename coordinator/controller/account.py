"""What the controller says in its log of a broker that came or went: what that took, and how long."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from coordinator.clock import Clock
from coordinator.controller.effects import BrokerRequest

_log = logging.getLogger(__name__)


class EventAccount:
    """Counts what is done about one event, from now on; `close` has it logged once the last broker has
    answered, or has gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.seconds()
        self._states = 0
        self._written_ms = 0
        self._requests: Counter[str] = Counter()
        self._unanswered = 0
        self._said: str | None = None

    def wrote(self, states: int) -> None:
        """So many partition states have just been written."""
        self._states += states
        self._written_ms = self._elapsed_ms()

    def sent(self, request: BrokerRequest, answered: Deferred[bool]) -> None:
        """A request is on its way; `answered` comes whatever becomes of it."""
        self._requests[request.api.name] += 1
        self._unanswered += 1
        answered.addCallback(self._answered)

    def close(self, brokers: Sequence[int]) -> None:
        """No more will be done; these are the brokers that live."""
        self._said = ", ".join(map(str, brokers))
        self._say()

    def _answered(self, done: bool) -> bool:
        self._unanswered -= 1
        self._say()
        return done

    def _say(self) -> None:
        if self._said is None or self._unanswered:
            return
        requests = ", ".join(f"{count} {name}" for name, count in sorted(self._requests.items()))
        _log.info(
            "brokers are now [%s]: %d partition states written within %d ms, %s answered within %d ms",
            self._said,
            self._states,
            self._written_ms,
            requests or "no requests",
            self._elapsed_ms(),
        )

    def _elapsed_ms(self) -> int:
        return round((self._clock.seconds() - self._began) * 1000)
