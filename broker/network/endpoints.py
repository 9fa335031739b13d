"""Where a broker listens, and what it advertises: `listeners` and related settings, parsed and checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast_log.clients.settings import SettingError

SPOKEN = "PLAINTEXT"
BROKERS = "INTERNAL"
"""Name of the brokers' own listener in Holdfast's properties files."""
SECURITY_PROTOCOLS = (SPOKEN, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/,]*)):(?P<port>\d+)"
)
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: its name, protocol and address. An empty host means every interface."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """All listeners of a broker, in the order given, and the addresses that it advertises for them."""

    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    brokers_have_own: bool = False
    """Whether `inter_broker` is for brokers alone: it is named in the settings, and there is another one."""

    def with_real_ports(self, ports: Mapping[str, int]) -> Endpoints:
        """These endpoints once the listeners are bound to `ports` (by listener name): the real port replaces
        port 0 in listeners and advertised endpoints."""
        return replace(
            self,
            listeners=tuple(_with_port(endpoint, ports) for endpoint in self.listeners),
            advertised=tuple(_with_port(endpoint, ports) for endpoint in self.advertised),
        )


def parse_endpoints(settings: Mapping[str, Any], machine_name: str) -> Endpoints:
    """The endpoints that the network's settings describe.

    `machine_name` is advertised for a listener without a host. Raises `SettingError`, whose message names
    the key, the value and what is allowed.
    """
    protocols = _protocol_map(settings["listener.security.protocol.map"])
    listeners = _parse_all("listeners", settings["listeners"], protocols)
    name = settings["inter.broker.listener.name"]
    if name is not None and name.upper() == BROKERS:
        listeners = _with_brokers_own(listeners, protocols)
    if not listeners:
        raise SettingError("listeners is empty: expected at least one NAME://host:port")
    _refuse_shared_ports(listeners)
    if settings["advertised.listeners"]:
        advertised = _parse_all("advertised.listeners", settings["advertised.listeners"], protocols)
        _check_advertised(advertised, listeners)
        advertised += _missing_for_brokers(name, listeners, advertised, machine_name)
    else:
        advertised = tuple(_advertised_by_default(endpoint, machine_name) for endpoint in listeners)
    _check_names("cluster.alter.listeners", settings["cluster.alter.listeners"], listeners)
    inter_broker = _inter_broker_name(name, listeners, advertised)
    return Endpoints(listeners, advertised, inter_broker, _is_own(name, inter_broker, listeners))


def _is_own(name: str | None, inter_broker: str, listeners: Sequence[Endpoint]) -> bool:
    return name is not None and name.upper() == inter_broker and len(listeners) > 1


def _with_brokers_own(listeners: tuple[Endpoint, ...], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """`listeners` with one for brokers alone, on a free port, if all others are on loopback and it is
    missing.

    So a program that overrides only `listeners` gets one. Elsewhere brokers and clients share the first:
    other machines could not reach loopback, and a free port on every interface would be open to them unasked.
    """
    is_local = bool(listeners) and all(is_loopback(endpoint.host) for endpoint in listeners)
    if not is_local or any(endpoint.name == BROKERS for endpoint in listeners):
        return listeners
    return (*listeners, Endpoint(BROKERS, protocols.get(BROKERS, SPOKEN), listeners[0].host, 0))


def _missing_for_brokers(
    name: str | None, listeners: Sequence[Endpoint], advertised: Sequence[Endpoint], machine_name: str
) -> tuple[Endpoint, ...]:
    """The brokers' listener, where `advertised.listeners` has only those of clients."""
    if any(endpoint.name == (name or "").upper() for endpoint in advertised):
        return ()
    return tuple(
        _advertised_by_default(endpoint, machine_name)
        for endpoint in listeners
        if endpoint.name == (name or "").upper()
    )


def _advertised_by_default(endpoint: Endpoint, machine_name: str) -> Endpoint:
    return replace(endpoint, host=machine_name) if endpoint.host in _EVERY_INTERFACE else endpoint


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can connect to a listener at this host."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _protocol_map(pairs: Sequence[str]) -> dict[str, str]:
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for pair in pairs:
        name, separator, protocol = (text.strip() for text in pair.partition(":"))
        name, protocol = name.upper(), protocol.upper()
        if not separator or not name or protocol not in SECURITY_PROTOCOLS:
            allowed = ", ".join(SECURITY_PROTOCOLS)
            raise SettingError(
                f"{key}={pair!r} is not allowed: expected NAME:PROTOCOL, PROTOCOL one of {allowed}"
            )
        if name in protocols:
            raise SettingError(f"{key}={','.join(pairs)!r} is not allowed: {name} is given twice")
        protocols[name] = protocol
    return protocols


def _parse_all(key: str, texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in texts:
        endpoint = _parse(key, text, protocols)
        if any(endpoint.name == other.name for other in endpoints):
            raise SettingError(f"{key}={','.join(texts)!r} is not allowed: {endpoint.name} is given twice")
        endpoints.append(endpoint)
    return tuple(endpoints)


def _parse(key: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise SettingError(f"{key}={text!r} is not allowed: expected NAME://host:port, port from 0 to 65535")
    name = match["name"].upper()
    if name not in protocols:
        known = ", ".join(protocols)
        raise SettingError(
            f"{key}={text!r} is not allowed: expected a name from listener.security.protocol.map ({known})"
        )
    return Endpoint(name, protocols[name], match["v6"] or match["host"] or "", int(match["port"]))


def _refuse_shared_ports(listeners: Sequence[Endpoint]) -> None:
    for position, endpoint in enumerate(listeners):
        for other in listeners[:position]:
            # Two hosts may share a port number; with port 0 each gets one of its own.
            overlap = endpoint.host == other.host or {"", "0.0.0.0"} & {endpoint.host, other.host}
            if endpoint.port and endpoint.port == other.port and overlap:
                raise SettingError(
                    f"listeners={str(endpoint)!r} is not allowed: {other.name} already has that port; "
                    "expected a port of its own for each listener"
                )


def _check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    names = [endpoint.name for endpoint in listeners]
    for endpoint in advertised:
        if endpoint.name not in names:
            raise SettingError(
                f"advertised.listeners={str(endpoint)!r} is not allowed: expected a name that listeners has "
                f"({', '.join(names)})"
            )
        if endpoint.host in _EVERY_INTERFACE:
            raise SettingError(
                f"advertised.listeners={str(endpoint)!r} is not allowed: "
                "expected a host that clients can reach"
            )


def _check_names(key: str, names: Sequence[str], listeners: Sequence[Endpoint]) -> None:
    known = [endpoint.name for endpoint in listeners]
    for name in names:
        if name.upper() not in known:
            raise SettingError(
                f"{key}={name!r} is not allowed: expected names that listeners has ({', '.join(known)})"
            )


def _inter_broker_name(
    name: str | None, listeners: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> str:
    names = [endpoint.name for endpoint in advertised]
    if not name:
        return names[0]
    if name.upper() in names:
        return name.upper()
    if name.upper() == BROKERS:
        return names[0]  # Brokers and clients share it; the broker says so when it starts.
    known = ", ".join(endpoint.name for endpoint in listeners)
    raise SettingError(
        f"inter.broker.listener.name={name!r} is not allowed: expected a name that listeners has ({known})"
    )


def _with_port(endpoint: Endpoint, ports: Mapping[str, int]) -> Endpoint:
    return replace(endpoint, port=ports[endpoint.name]) if endpoint.port == 0 else endpoint
