"""Quota entities: a user, a client id, both together, or an IP address, and their names in ZooKeeper. Pure.

Kafka's znodes: /config/users/<user>, /config/users/<user>/clients/<client id>, /config/clients/<client id>
and /config/ips/<address>, with percent-encoded names; `<default>` is the entity of all without one.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote

from holdfast_log.coordinator.cluster.dynamic_configs import DEFAULT_ENTITY
from holdfast_log.protocol.errors import BrokerError, ErrorCode

USERS = "users"
CLIENTS = "clients"
IPS = "ips"
KINDS = (USERS, CLIENTS, IPS)
"""The folders of /config that hold quotas."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
"""The entity types of KIP-546."""

ANONYMOUS = "ANONYMOUS"
"""The user of all clients that are not authenticated."""

NAME_CHARACTERS_MAX = 255
"""Of a longer client id only the first characters count, so that hostile ids take little memory."""


class Unnamed(enum.Enum):
    """What a quota entity has in place of a name."""

    ABSENT = "absent"
    """The entity does not depend on this component."""
    DEFAULT = "default"
    """The entity stands for all names without an entity of their own."""


ABSENT, DEFAULT = Unnamed.ABSENT, Unnamed.DEFAULT
Name: TypeAlias = "str | Unnamed"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Who a quota is for: a user, a client id or both, or else an IP address."""

    user: Name = ABSENT
    client_id: Name = ABSENT
    ip: Name = ABSENT

    def components(self) -> list[tuple[str, str | None]]:
        """(entity type, name) as KIP-546 has them; None stands for the default."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, None if name is DEFAULT else str(name)) for kind, name in named if name is not ABSENT]

    @property
    def is_of_everybody(self) -> bool:
        """Whether quotas of this entity hold for clients that nobody has named: for all without quotas of
        their own, or for the user of all clients that are not authenticated."""
        if self.user == ANONYMOUS:
            return self.client_id is ABSENT or self.client_id is DEFAULT
        return DEFAULT in (self.user, self.client_id, self.ip) and not isinstance(self.user, str)

    def __str__(self) -> str:
        shown = (f"{kind} {'(default)' if name is None else repr(name)}" for kind, name in self.components())
        return ", ".join(shown)


def entity_of(components: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity with these (entity type, name) pairs; a name of None is the default.

    Raises BrokerError INVALID_REQUEST for a combination that Kafka does not have.
    """
    names: dict[str, Name] = {}
    for kind, name in components:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"unknown entity type {kind!r}: expected {USER}, {CLIENT_ID} or {IP}")
        if kind in names:
            raise _invalid(f"the entity has two components of type {kind}")
        names[kind] = DEFAULT if name is None else _checked(kind, name)
    if not names:
        raise _invalid("the entity has no component")
    if IP in names and len(names) > 1:
        raise _invalid(f"an entity of type {IP} cannot be combined with {USER} or {CLIENT_ID}")
    return QuotaEntity(names.get(USER, ABSENT), names.get(CLIENT_ID, ABSENT), names.get(IP, ABSENT))


def _checked(kind: str, name: str) -> str:
    if not name:
        raise _invalid(f"the name of the {kind} is empty")
    if name in (".", ".."):
        raise _invalid(f"ZooKeeper cannot store the {kind} {name!r}")
    if len(name) > NAME_CHARACTERS_MAX:
        raise _invalid(f"the {kind} has {len(name)} characters; at most {NAME_CHARACTERS_MAX} are allowed")
    if kind == IP:
        return normal_address(name) or _raise(_invalid(f"{name!r} is not an IP address"))
    return name


def normal_address(text: str) -> str | None:
    """An IP address in its shortest form, an IPv4 address in IPv6 as IPv4; None if `text` is no address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _raise(error: Exception) -> str:
    raise error


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


# -- names in ZooKeeper ------------------------------------------------------------------------------------


def sanitized(name: Name) -> str:
    """The name of a znode for a user, client id or address, as Kafka's `Sanitizer` encodes it."""
    if name is DEFAULT:
        return DEFAULT_ENTITY
    return quote(str(name), safe="").replace("~", "%7E")


def config_name(entity: QuotaEntity) -> tuple[str, str]:
    """(kind, name) of the entity's dynamic configs: the path of its znode below /config."""
    if entity.ip is not ABSENT:
        return IPS, sanitized(entity.ip)
    if entity.user is ABSENT:
        return CLIENTS, sanitized(entity.client_id)
    if entity.client_id is ABSENT:
        return USERS, sanitized(entity.user)
    return USERS, f"{sanitized(entity.user)}/{CLIENTS}/{sanitized(entity.client_id)}"


def entity_at(kind: str, name: str) -> QuotaEntity | None:
    """The entity whose znode is /config/<kind>/<name>; None if that path is none of an entity."""
    parts = name.split("/")
    if kind == CLIENTS and len(parts) == 1:
        return QuotaEntity(client_id=_plain(name))
    if kind == USERS and len(parts) == 1:
        return QuotaEntity(user=_plain(name))
    if kind == USERS and len(parts) == 3 and parts[1] == CLIENTS:
        return QuotaEntity(user=_plain(parts[0]), client_id=_plain(parts[2]))
    if kind == IPS and len(parts) == 1:
        plain = _plain(name)
        address = plain if isinstance(plain, Unnamed) else normal_address(plain)
        return None if address is None else QuotaEntity(ip=address)
    return None


def _plain(sanitized_name: str) -> Name:
    return DEFAULT if sanitized_name == DEFAULT_ENTITY else unquote(sanitized_name)
