"""What fits: how much a broker keeps of owners for one resource, for one connection, and in all.

Whatever somebody else makes the broker keep or write has a bound. Who meets one is refused with
POLICY_VIOLATION, and told which.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.ownership.resources import Resource
from broker.ownership.settings import OwnershipSettings
from coordinator.ownership.records import GRANT_BYTES_MAX, NameKey, ResourceKey, grant_bytes
from protocol.errors import BrokerError, ErrorCode, error_for

OWNED_BYTES_MAX = 256 * 1024
"""What the grants in force of one partition may take: those of all its groups are in one znode."""

GROUP_LENGTH_MAX = 255
"""Characters. Those of the own API have no more; consumer groups may."""
_OF_ONE_BYTES_MAX = GRANT_BYTES_MAX + 12 * GROUP_LENGTH_MAX
_CROWD = OWNED_BYTES_MAX // _OF_ONE_BYTES_MAX - 1
"""With fewer groups there always is room for one more."""

CONNECTION_RESOURCES_MAX = 10_000
"""Of one connection: those that it owns, shares and waits for, and partitions that it has owned."""
_NAMED_GROUPS_MAX = 1000


@dataclass(slots=True)
class Holdings:
    """What a connection has to do with: the groups that it has named, and the resources that it owns, shares,
    waits for or has lost."""

    groups: dict[str, None] = field(default_factory=dict)
    keys: dict[ResourceKey, None] = field(default_factory=dict)

    def name(self, group: str) -> None:
        """Remember a group; of very many the last ones."""
        self.groups.pop(group, None)
        self.groups[group] = None
        if len(self.groups) > _NAMED_GROUPS_MAX:
            del self.groups[next(iter(self.groups))]


def room_for(resource: Resource, group: str, names: int, settings: OwnershipSettings) -> BrokerError | None:
    """Why there is no room for one more resource, beside `names` that are known, or for one more group of a
    resource; None: there is."""
    limit = None
    if len(resource.entries) >= _CROWD:
        others = [entry for entry in resource.entries.values() if entry.group != group]
        taken = sum(grant_bytes(entry.grant, entry.group) for entry in others if entry.grant)
        if taken > OWNED_BYTES_MAX - _OF_ONE_BYTES_MAX:
            limit = f"{resource.key} is owned in so many groups that there is no room for more"
    elif isinstance(resource.key, NameKey) and group not in resource.entries:
        if names > settings.names_max:
            limit = f"own.names.max={settings.names_max} names are known here"
    elif len(group) > GROUP_LENGTH_MAX:
        limit = f"the group's name has {len(group)} characters, of {GROUP_LENGTH_MAX} that it may have"
    return None if limit is None else error_for(ErrorCode.POLICY_VIOLATION, limit)


def room_on(holdings: Holdings | None, key: ResourceKey) -> BrokerError | None:
    """Why a connection can have no more to do with another resource; None: it can. What it has ends with it,
    all at once."""
    if holdings is None or key in holdings.keys or len(holdings.keys) < CONNECTION_RESOURCES_MAX:
        return None
    return error_for(
        ErrorCode.POLICY_VIOLATION,
        f"this connection has {CONNECTION_RESOURCES_MAX} resources, which are as many as one may have",
    )
