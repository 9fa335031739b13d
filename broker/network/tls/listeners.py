"""The listeners that speak TLS: the network of each, and what it is made of at present.

Certificates are replaced while the broker runs: when a setting is altered, and when a file has changed. What
cannot be read replaces nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.endpoints import Endpoints
from holdfast_log.broker.network.interfaces import Network
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.tls.handshakes import Handshakes
from holdfast_log.broker.network.tls.identity import TlsIdentity, TlsMaterial, load_material, stamp_of
from holdfast_log.broker.network.tls.network import TlsNetwork
from holdfast_log.broker.network.tls.settings import TLS_PROTOCOLS, HandshakeLimits, ListenerSettings
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.workers import Workers
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.tls.contexts import TlsError

_log = logging.getLogger(__name__)

_NO_LIMIT = 2**31 - 1
_DAY_S = 24 * 60 * 60
_SOON_DAYS = 14
"""Days before a certificate expires from which on the log warns of it."""


class TlsListeners:
    """The listeners with TLS, iterated as their identities. Raises `SettingError` if one cannot work.

    In `rotation` handshakes take turns with all other work that can wait."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        endpoints: Endpoints,
        tcp: TcpNetwork,
        clock: Clock,
        workers: Workers,
        date_ms: TimeOfDay,
        rotation: Rotation | None = None,
    ) -> None:
        limits = read_group(HandshakeLimits, settings)
        self.accepting: dict[str, Handshakes] = {}
        """The handshakes under way that others have begun, by listener: a crowd at one
        ends none at another."""
        connecting = Handshakes(clock, HandshakeLimits(limits.timeout_ms, _NO_LIMIT), rotation)
        self._settings = settings
        self._workers = workers
        self._date_ms = date_ms
        self._repeated = RepeatedLog(clock)
        self._is_looking = False
        self._looks_again = False
        self._identities: dict[str, TlsIdentity] = {}
        networks: dict[str, Network] = {}
        for endpoint in endpoints.listeners:
            if endpoint.protocol in TLS_PROTOCOLS:
                identity = TlsIdentity(endpoint.name, _material(settings, endpoint.name))
                self._identities[endpoint.name] = identity
                accepting = self.accepting[endpoint.name] = Handshakes(clock, limits, rotation)
                networks[endpoint.name] = TlsNetwork(tcp, identity, accepting, connecting)
                self._announce(identity)
        self.networks: Mapping[str, Network] = networks
        """The networks by the listeners' names."""

    def __iter__(self) -> Iterator[TlsIdentity]:
        return iter(self._identities.values())

    def days_left(self, identity: TlsIdentity) -> float:
        """Days until the first of a listener's own certificates expires; negative once it has."""
        return (identity.current.expires_s - self._date_ms() / 1000) / _DAY_S

    def follow(self, settings: Mapping[str, Any]) -> None:
        """From now on use `settings`, those in force."""
        self._settings = settings

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raises `SettingError` if a listener could not work with these settings."""
        for name in self._identities:
            _material(settings, name)

    def look(self) -> Deferred[None] | None:
        """Use what has changed in settings and files; None if a look is under way, which is then repeated."""
        if self._is_looking:
            self._looks_again = True
            return None
        if not self._identities:
            return None
        self._is_looking = True
        asked = [
            (identity, dict(ListenerSettings(self._settings, identity.listener)), identity.current)
            for identity in self
        ]
        return self._workers.run(_changed, asked).addCallbacks(self._use, self._look_failed)

    def _use(self, changed: list[tuple[TlsIdentity, TlsMaterial | TlsError]]) -> None:
        for identity, found in changed:
            if isinstance(found, TlsError):
                cause = "key stores and trust stores that cannot be used"
                text = "The listener %s keeps its present certificate, because the new one cannot be used: %s"
                self._repeated.error(_log, cause, text, identity.listener, found)
            else:
                identity.current = found
                self._announce(identity)
        self._looked()

    def _look_failed(self, failure: Failure) -> None:
        _log.error("Looking at key stores and trust stores failed: %s", failure.value)
        self._looked()

    def _looked(self) -> None:
        self._is_looking = False
        again, self._looks_again = self._looks_again, False
        if again:
            self.look()

    def _announce(self, identity: TlsIdentity) -> None:
        days = self.days_left(identity)
        level = logging.INFO if days > _SOON_DAYS else logging.WARNING
        end = f"expires in {days:.0f} days" if days >= 0 else f"expired {-days:.0f} days ago: replace it"
        text = "New connections to the listener %s see the certificate %r, which %s"
        _log.log(level, text, identity.listener, identity.current.name, end)
        _log.info(
            "What is sent on the listener %s is encrypted by %s",
            identity.listener,
            identity.current.encryption,
        )


def _material(settings: Mapping[str, Any], name: str) -> TlsMaterial:
    try:
        return load_material(ListenerSettings(settings, name))
    except TlsError as error:
        raise SettingError(f"the listener {name} cannot speak TLS: {error}") from None


def _changed(
    asked: list[tuple[TlsIdentity, dict[str, Any], TlsMaterial]],
) -> list[tuple[TlsIdentity, TlsMaterial | TlsError]]:
    """The new material of the listeners for which something has changed. Called in a worker."""
    found: list[tuple[TlsIdentity, TlsMaterial | TlsError]] = []
    for identity, settings, current in asked:
        if stamp_of(settings) == current.stamp:
            continue
        try:
            found.append((identity, load_material(settings)))
        except TlsError as error:
            found.append((identity, error))
    return found
