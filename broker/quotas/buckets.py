"""The sensors of all clients for one key, in bounded memory. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast_log.broker.quotas.sensors import Sensor

SENSORS_MAX = 5_000
"""Maximum number of sensors for each key: about 20 MB if all clients are busy."""
_SWEEP_S = 30.0
"""Time in seconds between two removals of idle sensors."""

BucketKey: TypeAlias = "tuple[str | None, str | None]"
"""(user, client id) whose use is counted together; None for the client id: whatever it is. Addresses have no
user."""


class Buckets:
    """Sensors by (user, client id), each made by `new_sensor`.

    Idle sensors are removed: a new one gives the same delays. Clients beyond `sensors_max` busy ones share
    one sensor, so that a client that invents ids neither fills the memory nor gets a quota for each.
    """

    def __init__(self, new_sensor: Callable[[], Sensor], sensors_max: int = SENSORS_MAX) -> None:
        self._new_sensor = new_sensor
        self._sensors_max = sensors_max
        self._sensors: dict[BucketKey, Sensor] = {}
        self._shared = new_sensor()
        self._sweep_at_s = 0.0

    def __len__(self) -> int:
        """Number of sensors."""
        return len(self._sensors)

    def sensor(self, key: BucketKey, now_s: float) -> Sensor:
        """The sensor that counts the use of a client."""
        found = self._sensors.get(key)
        if found is not None:
            return found
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + _SWEEP_S
            self._sensors = {each: known for each, known in self._sensors.items() if not known.is_idle(now_s)}
        if len(self._sensors) >= self._sensors_max:
            return self._shared
        found = self._sensors[key] = self._new_sensor()
        return found

    def clear(self) -> None:
        """Forget all use."""
        self._sensors.clear()
        self._shared = self._new_sensor()
