"""Closes the connections of users whose SCRAM credentials were removed or changed, within a bound.

Kafka lets such connections go on until they have to authenticate again. Here nobody stays by a password that
is no longer the user's.
"""

from __future__ import annotations

from holdfast_log.broker.rechecks import Recheck
from holdfast_log.broker.security.sasl.gates import SaslGates
from holdfast_log.coordinator.clock import Clock

PER_TURN = 1000
"""Maximum number of connections checked before clients are served."""


class LoginRevocation:
    """Checks all connections within `rechecks.DELAY_S` of a change. Call `credentials_changed` after each
    change."""

    def __init__(self, gates: SaslGates, clock: Clock) -> None:
        self._recheck = Recheck(gates.judged_again, PER_TURN, clock)

    def credentials_changed(self) -> None:
        """Check soon which connections are still those of known users."""
        self._recheck.changed()

    def stop(self) -> None:
        """Check nothing any more, because the broker stops."""
        self._recheck.stop()
