"""How fast clients may open connections (KIP-612): on the whole broker, on a listener, from an IP address.

A connection that comes too fast is accepted, and nothing is read from it until it is due. Kafka closes such a
connection from an address over its quota after the delay, and accepts the others late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_log.broker.network.settings import CREATION_RATE, listener_creation_rate
from holdfast_log.broker.quotas.buckets import Buckets
from holdfast_log.broker.quotas.entities import normal_address
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.sensors import Sensor, TokenBucket
from holdfast_log.coordinator.clock import Clock

BURST_S = 1.0
"""The connections of this time in seconds may come at once."""
DELAY_S_MAX = 30.0
"""Clients give up after about that time in seconds."""


class ConnectionRates:
    """A `ConnectionPace`. `settings` are the values in force, which may change.

    `brokers` is the listener for brokers alone, None if there is none; it has no limit but its own.
    """

    def __init__(
        self, limits: QuotaLimits, settings: Mapping[str, Any], brokers: str | None, clock: Clock
    ) -> None:
        self.delayed = 0
        self.refused = 0
        self._limits = limits
        self._settings = settings
        self._brokers = brokers
        self._clock = clock
        self._all = TokenBucket(BURST_S)
        self._listeners: dict[str, TokenBucket] = {}
        self._addresses = Buckets(lambda: TokenBucket(BURST_S))

    def delay_s(self, listener: str, host: str) -> float | None:
        """Count a new connection. Returns the time in seconds until it is due; None if that is too long."""
        now_s = self._clock.seconds()
        limited = self._limited(listener, host, now_s)
        if not limited:
            return 0.0
        for sensor, limit in limited:
            sensor.record(1, limit, now_s)
        delay_s = max(sensor.delay_s(limit, now_s) for sensor, limit in limited)
        if delay_s > DELAY_S_MAX:
            for sensor, limit in limited:
                sensor.record(-1, limit, now_s)
            self.refused += 1
            return None
        if delay_s:
            self.delayed += 1
        return delay_s

    def _limited(self, listener: str, host: str, now_s: float) -> list[tuple[Sensor, float]]:
        """The sensors that count the connection, with their limits."""
        limited: list[tuple[Sensor, float]] = []
        own = self._settings.get(listener_creation_rate(listener))
        if own is not None:
            limited.append((self._listeners.setdefault(listener, TokenBucket(BURST_S)), own))
        if listener == self._brokers:
            return limited
        rate, unlimited = self._settings[CREATION_RATE.name], CREATION_RATE.default
        if rate < unlimited:
            limited.append((self._all, rate))
        if self._limits.has_addresses:
            address = normal_address(host) or host
            limit = self._limits.of_address(address)
            if limit is not None:
                limited.append((self._addresses.sensor((None, address), now_s), limit))
        return limited
