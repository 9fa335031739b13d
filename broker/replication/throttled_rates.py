"""The current rates of both replication throttles, from the broker's settings."""

from __future__ import annotations

from holdfast_log.broker.replication.settings import ThrottleRates
from holdfast_log.broker.replication.throttle import Throttle
from holdfast_log.broker.setting_groups import Live


class ThrottledRates:
    """Sets the throttles' rates. Call `settings_changed` after each change of the broker's settings."""

    def __init__(self, rates: Live[ThrottleRates], leader: Throttle, follower: Throttle) -> None:
        self._rates = rates
        self._leader = leader
        self._follower = follower
        self.settings_changed()

    def settings_changed(self) -> None:
        rates = self._rates.current()
        self._leader.set_rate(rates.leader)
        self._follower.set_rate(rates.follower)
