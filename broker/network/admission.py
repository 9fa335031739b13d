"""Which connections count as another broker's: those to a listener for brokers, or with the cluster's secret.

What a client says of itself never counts: neither its client id nor a replica id in a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_log.broker.network.endpoints import Endpoint, Endpoints, is_loopback
from holdfast_log.clients.settings import SettingError


@dataclass(frozen=True, slots=True)
class BrokerAdmission:
    """`trusted` are the listeners on which every connection counts as a broker's. `own` is the listener that
    only brokers use, None if they share one with clients. At the listeners in `by_user` a connection counts
    as a broker's once it has authenticated as a user of brokers (SASL)."""

    trusted: frozenset[str]
    own: str | None
    has_secret: bool
    by_user: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether clients that use their own listener count as brokers, because both share one."""
        return any(name != self.own for name in self.trusted)


def admission_of(settings: Mapping[str, Any], endpoints: Endpoints) -> BrokerAdmission:
    """The admission that the settings describe. Raises `SettingError`."""
    has_secret = settings["cluster.secret.file"] is not None
    own = endpoints.inter_broker if endpoints.brokers_have_own else None
    given = settings["broker.listeners.trusted"]
    if given is None:
        trusted = frozenset() if has_secret else frozenset((endpoints.inter_broker,))
        return _admission(trusted, own, has_secret, endpoints)
    names = [endpoint.name for endpoint in endpoints.listeners]
    for name in given:
        if name.upper() not in names:
            raise SettingError(
                f"broker.listeners.trusted={name!r} is not allowed: expected names that listeners has "
                f"({', '.join(names)})"
            )
    return _admission(frozenset(name.upper() for name in given), own, has_secret, endpoints)


def _admission(
    listeners: frozenset[str], own: str | None, has_secret: bool, endpoints: Endpoints
) -> BrokerAdmission:
    wants_sasl = {each.name for each in endpoints.listeners if each.protocol.startswith("SASL_")}
    return BrokerAdmission(listeners - wants_sasl, own, has_secret, listeners & wants_sasl)


@dataclass(frozen=True, slots=True)
class ListenerNotice:
    """What the operator should know of the listeners, for the log."""

    is_warning: bool
    text: str


def notices(admission: BrokerAdmission, endpoints: Endpoints) -> list[ListenerNotice]:
    """What the settings of the listeners mean for the cluster's safety, and what to do; empty if there is
    nothing to say."""
    found = []
    for endpoint in endpoints.listeners:
        if endpoint.name not in admission.trusted:
            continue
        if endpoint.name != admission.own:
            found.append(ListenerNotice(True, _shared(endpoint)))
        elif not is_loopback(endpoint.host):
            found.append(ListenerNotice(True, _reachable(endpoint)))
    own = _find(endpoints.listeners, admission.own)
    others = [endpoint for endpoint in endpoints.listeners if endpoint.name != admission.own]
    if own is not None and is_loopback(own.host) and not all(is_loopback(other.host) for other in others):
        found.append(ListenerNotice(False, _on_one_machine(own)))
    return found


def _find(endpoints: Sequence[Endpoint], name: str | None) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.name == name), None)


def _shared(endpoint: Endpoint) -> str:
    return (
        f"Clients and brokers share the listener {endpoint}, so this broker takes everybody who connects to "
        "it for a broker of its cluster: they can delete logs, send clients to other addresses and pose as "
        "replicas. Give brokers a listener of their own (add INTERNAL://127.0.0.1:19092 to listeners, with "
        "an address that the other brokers reach, and set inter.broker.listener.name=INTERNAL), or set "
        "cluster.secret.file"
    )


def _reachable(endpoint: Endpoint) -> str:
    return (
        f"Other machines can connect to the brokers' listener {endpoint}, and this broker takes everybody "
        "who does for a broker of its cluster. Set cluster.secret.file on all brokers, or let a firewall "
        "admit brokers alone"
    )


def _on_one_machine(endpoint: Endpoint) -> str:
    return (
        f"Brokers on other machines cannot join this broker: the listener for brokers is {endpoint}. In a "
        "cluster of several machines give it an address that they reach, and set cluster.secret.file"
    )
