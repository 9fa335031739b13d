"""The rates of both throttles of replication, as the broker's settings have them at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.replication.throttle import Throttle


class ThrottledRates:
    """Gives the throttles their rates. `settings` are the values in force; call `settings_changed` after each
    change."""

    def __init__(self, settings: Mapping[str, Any], leader: Throttle, follower: Throttle) -> None:
        self._settings = settings
        self._leader = leader
        self._follower = follower
        self.settings_changed()

    def settings_changed(self) -> None:
        self._leader.set_rate(self._settings["leader.replication.throttled.rate"])
        self._follower.set_rate(self._settings["follower.replication.throttled.rate"])
