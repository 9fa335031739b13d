"""The current rates of both replication throttles and of moves between directories, from the broker's
settings."""

from __future__ import annotations

from holdfast_log.broker.replication.copy_pace import CopyPace
from holdfast_log.broker.replication.settings import ThrottleRates
from holdfast_log.broker.replication.throttle import Throttle
from holdfast_log.broker.setting_groups import Live


class ThrottledRates:
    """Sets the rates. Call `settings_changed` after each change of the broker's settings."""

    def __init__(
        self, rates: Live[ThrottleRates], leader: Throttle, follower: Throttle, moves: CopyPace
    ) -> None:
        self._rates = rates
        self._leader = leader
        self._follower = follower
        self._moves = moves
        self.settings_changed()

    def settings_changed(self) -> None:
        rates = self._rates.current()
        self._leader.set_rate(rates.leader)
        self._follower.set_rate(rates.follower)
        self._moves.set_rate(rates.moves_bytes)
