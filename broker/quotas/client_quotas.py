"""Throttles clients: charges what each request used, and mutes connections of clients over a quota (KIP-219).

A client over its quota gets no error. Its response says how long it is throttled (`throttle_time_ms`) and is
sent at once; the broker reads nothing from the connection for that time, so that a client that ignores the
response is held as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.quotas.buckets import Buckets
from holdfast_log.broker.quotas.keys import CLIENT_KEYS, QuotaKey
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.sensors import RateSensor, TokenBucket
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.repeated_log import RepeatedLog

_log = logging.getLogger(__name__)

_MS_MAX = 2**31 - 1
_LOG_INTERVAL_S = 600.0
_PRINCIPAL_PREFIX = "User:"


@dataclass(slots=True)
class ThrottleCount:
    """How often clients were throttled by the quotas of one key, and for how many ms in all."""

    times: int = 0
    total_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Mute:
    """A connection that is muted for a client, until a time in seconds of the clock."""

    user: str
    client_id: str
    until_s: float


class ClientQuotas:
    """Charges requests to the quotas of their clients.

    `is_enforced` is whether any client has a quota: callers test it, so that a request costs nothing more
    while there is none. `is_exempt` says which connections, those of other brokers, are never charged. Call
    `limits_changed` after each change of `limits`.
    """

    def __init__(
        self,
        limits: QuotaLimits,
        settings: QuotaSettings,
        clock: Clock,
        is_exempt: Callable[[ServerConnection], bool],
    ) -> None:
        self.is_enforced = False
        self.limits_mutations = False
        """Whether any client has a quota of created and deleted partitions."""
        self.measures_time = False
        """Whether any client has a quota of reactor time."""
        self.throttled = {key: ThrottleCount() for key in CLIENT_KEYS}
        self.seconds = clock.seconds
        """The time in seconds by which reactor time is measured."""
        self._limits = limits
        self._clock = clock
        self._is_exempt = is_exempt
        self._log = RepeatedLog(clock, _LOG_INTERVAL_S)
        self._muted: dict[ServerConnection, _Mute] = {}
        window_s = float(settings.window_size_seconds)
        self._window_s = window_s
        burst_s = float(settings.controller_windows * settings.controller_window_size_seconds)
        self._buckets = {
            QuotaKey.PRODUCE: Buckets(lambda: RateSensor(settings.windows, window_s)),
            QuotaKey.FETCH: Buckets(lambda: RateSensor(settings.windows, window_s)),
            QuotaKey.REQUEST: Buckets(lambda: RateSensor(settings.windows, window_s)),
            QuotaKey.MUTATION: Buckets(lambda: TokenBucket(burst_s)),
        }
        self._refresh()

    @property
    def muted(self) -> int:
        """Number of connections that are muted at present."""
        now_s = self._clock.seconds()
        return sum(mute.until_s > now_s for mute in self._muted.values())

    # -- charging ----------------------------------------------------------------------------------------

    def charge(self, key: QuotaKey, connection: ServerConnection, client_id: str, amount: float) -> int:
        """Charge a use of the client. Returns the time in ms without further use after which it is within
        its quota; 0 if it is now, or has none."""
        user = _user(connection)
        found = self._limits.find(key, user, client_id)
        if found is None or self._is_exempt(connection):
            return 0
        now_s = self._clock.seconds()
        sensor = self._buckets[key].sensor(found.bucket, now_s)
        sensor.record(amount, found.limit, now_s)
        return _ms(self._delay_s(key, sensor.delay_s(found.limit, now_s)))

    def due_ms(self, key: QuotaKey, connection: ServerConnection, client_id: str) -> int:
        """Time in ms without further use after which the client is within its quota; 0 if it is now."""
        found = self._limits.find(key, _user(connection), client_id)
        if found is None or self._is_exempt(connection):
            return 0
        now_s = self._clock.seconds()
        sensor = self._buckets[key].sensor(found.bucket, now_s)
        return _ms(self._delay_s(key, sensor.delay_s(found.limit, now_s)))

    def fetch_bytes_max(self, connection: ServerConnection, client_id: str) -> int | None:
        """Maximum bytes of one Fetch response: the quota of one window, so that no response is followed by a
        long delay. None if the client has no quota."""
        found = self._limits.find(QuotaKey.FETCH, _user(connection), client_id)
        if found is None or self._is_exempt(connection):
            return None
        return max(1, int(found.limit * self._window_s))

    def charge_time(self, connection: ServerConnection, client_id: str, seconds: float) -> int:
        """Charge reactor time. Returns the throttle time in ms, at most one window, as in Kafka."""
        return self.charge(QuotaKey.REQUEST, connection, client_id, seconds * 100)

    def _delay_s(self, key: QuotaKey, delay_s: float) -> float:
        return min(delay_s, self._window_s) if key is QuotaKey.REQUEST else delay_s

    # -- throttling --------------------------------------------------------------------------------------

    def throttle(self, key: QuotaKey, connection: ServerConnection, client_id: str, throttle_ms: int) -> None:
        """Mute the connection for this time, and remember whose quota requires it."""
        if connection.is_closed:
            return
        counted = self.throttled[key]
        counted.times += 1
        counted.total_ms += throttle_ms
        self._log.warning(
            _log,
            f"requests throttled by {key}",
            "Throttling %s for %d ms: its client is over its %s; scripts/configs.sh shows and changes quotas",
            connection, throttle_ms, key,
        )  # fmt: skip
        until_s = self._clock.seconds() + throttle_ms / 1000
        known = self._muted.get(connection)
        if known is None:
            connection.add_close_callback(self._closed)
        if known is None or known.until_s < until_s:
            self._muted[connection] = _Mute(_user(connection), client_id, until_s)
        connection.mute(throttle_ms)

    def _closed(self, connection: ServerConnection) -> None:
        self._muted.pop(connection, None)

    # -- changes of limits -------------------------------------------------------------------------------

    def limits_changed(self) -> None:
        """Shorten the mutes that the new limits do not require any longer."""
        self._refresh()
        now_s = self._clock.seconds()
        for connection, mute in list(self._muted.items()):
            if mute.until_s <= now_s:
                continue  # Stays until the connection is muted again or closes.
            due_ms = max(self.due_ms(key, connection, mute.client_id) for key in CLIENT_KEYS)
            if now_s + due_ms / 1000 < mute.until_s:
                self._muted[connection] = _Mute(mute.user, mute.client_id, now_s + due_ms / 1000)
                connection.shorten_mute(due_ms)

    def _refresh(self) -> None:
        limits = self._limits
        self.measures_time = limits.has_any(QuotaKey.REQUEST)
        # Only the requests that create and delete topics are charged for partitions: the default for them
        # must not cost any other request something.
        self.limits_mutations = limits.has_any(QuotaKey.MUTATION)
        self.is_enforced = limits.is_configured(QuotaKey.MUTATION) or any(
            limits.has_any(key) for key in CLIENT_KEYS if key is not QuotaKey.MUTATION
        )


def _user(connection: ServerConnection) -> str:
    return connection.principal.removeprefix(_PRINCIPAL_PREFIX)


def _ms(seconds: float) -> int:
    """Whole ms, at least 1 for any delay."""
    return min(-int(-seconds * 1000 // 1), _MS_MAX)
