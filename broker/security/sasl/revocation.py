"""Closes the connections of users whose SCRAM credentials were removed or changed, within a bound.

Kafka lets such connections go on until they have to authenticate again. Here nobody stays by a password that
is no longer the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast_log.broker.security.sasl.gates import SaslGates
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock

DELAY_S = 1.0
"""Time in seconds from a change to the check; changes in between are checked together."""

PER_TURN = 1000
"""Maximum number of connections checked before clients are served."""


class LoginRevocation:
    """Checks all connections within `DELAY_S` of a change, and in turns of the reactor.

    Call `credentials_changed` after each change. A change during a check begins the check anew.
    """

    def __init__(self, gates: SaslGates, clock: Clock) -> None:
        self._gates = gates
        self._alarm = Alarm(clock, self._begin)
        self._turn = Alarm(clock, self._go_on)
        self._work: Iterator[None] = iter(())

    def credentials_changed(self) -> None:
        """Check soon which connections are still those of known users."""
        if not self._alarm.is_set:
            self._alarm.set(DELAY_S)

    def stop(self) -> None:
        """Check nothing any more, because the broker stops."""
        self._alarm.cancel()
        self._turn.cancel()

    def _begin(self) -> None:
        self._work = self._gates.judged_again()
        self._go_on()

    def _go_on(self) -> None:
        if sum(1 for _ in islice(self._work, PER_TURN)) == PER_TURN:
            self._turn.set(0)
