"""Limits on what clients can make this broker keep: for one resource, for one connection, and in all.

A claim beyond a limit is refused with POLICY_VIOLATION and a message that names the limit.
"""

from __future__ import annotations

from holdfast_log.broker.ownership.record_sizes import source_of
from holdfast_log.broker.ownership.resources import Resource
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import (
    GRANT_BYTES_MAX,
    HISTORY_BYTES_MAX,
    NameKey,
    Owner,
    ResourceKey,
    grant_bytes,
    owner_bytes,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

OWNED_BYTES_MAX = 256 * 1024
"""Maximum size, in bytes, of one partition's grants in force in all groups: they share one znode."""

GROUP_LENGTH_MAX = 255
"""Maximum length of a group's name, in characters. Consumer groups can have longer names, groups of the own
API cannot."""
_ONE_GROUP_BYTES_MAX = GRANT_BYTES_MAX + 12 * GROUP_LENGTH_MAX
_GROUPS_THAT_ALWAYS_FIT = OWNED_BYTES_MAX // _ONE_GROUP_BYTES_MAX - 1
"""Below this number of groups there is room for another whatever their names are."""

CONNECTION_RESOURCES_MAX = 10_000
"""Maximum number of resources that one connection owns, shares or waits for, lost partitions included."""


def resource_limit(state: TableState, resource: Resource, group: str, owner: Owner) -> BrokerError | None:
    """The limit that a claim of `resource` in `group` for this owner meets; None if it meets none."""
    names, settings = state.names, state.settings
    limit = None
    if len(resource.entries) >= _GROUPS_THAT_ALWAYS_FIT:
        others = [entry for entry in resource.entries.values() if entry.group != group]
        taken = sum(grant_bytes(entry.grant, entry.group) for entry in others if entry.grant)
        if taken > OWNED_BYTES_MAX - _ONE_GROUP_BYTES_MAX:
            limit = f"{resource.key} is owned in so many groups that there is no room for another"
    elif isinstance(resource.key, NameKey) and group not in resource.entries:
        if names > settings.names_max:
            limit = (
                f"this broker keeps own.names.max={settings.names_max} names, none of them free for "
                f"own.names.retention.ms={settings.names_retention_ms}"
            )
    elif len(group) > GROUP_LENGTH_MAX:
        limit = f"the group's name has {len(group)} characters; at most {GROUP_LENGTH_MAX} are allowed"
    limit = limit or _room(state, resource, group, owner)
    return None if limit is None else error_for(ErrorCode.POLICY_VIOLATION, limit)


def _room(state: TableState, resource: Resource, group: str, owner: Owner) -> str | None:
    """Why the records of this broker have no room for a grant: ZooKeeper has all of them in memory.

    An owner whose names take no more than those of the last one needs no room: past grants are forgotten for
    it. So a client that fills the room keeps nobody from a resource that was owned before.
    """
    last, source, settings = resource.peek(group).last, source_of(owner), state.settings
    resource.history_bytes_max = HISTORY_BYTES_MAX if state.keeps_past(source) else 0
    if state.has_room(source) or (last is not None and owner_bytes(owner) <= owner_bytes(last.owner)):
        return None
    limit = f"own.records.total.bytes={settings.records_bytes_max}"
    if state.sizes.total + GRANT_BYTES_MAX > settings.records_bytes_max:
        taken = f"the records of what is owned at this broker have {limit}"
    else:
        share = f"own.records.per.source.percentage={settings.records_source_percentage}"
        taken = (
            f"the records of what {source} owns at this broker have {share} of what others leave of {limit}"
        )
    return (
        f"{taken}: release resources, use shorter names of owners, or raise the setting together with the "
        "heap of ZooKeeper"
    )


def connection_limit(state: TableState, connection: int, key: ResourceKey) -> BrokerError | None:
    """The limit that a connection, or all of them together, meet with one more resource; None if they meet
    none.

    All resources of a connection are freed at once when it closes, which has to stay quick.
    """
    holdings, total_max = state.connections.get(connection), state.settings.resources_total_max
    limit = None
    if holdings is None or key in holdings.keys:
        return None
    if len(holdings.keys) >= CONNECTION_RESOURCES_MAX:
        limit = f"this connection has {CONNECTION_RESOURCES_MAX} resources, the most that one may have"
    elif state.held >= total_max:
        limit = f"the connections of this broker have own.resources.total.max={total_max} resources"
    return None if limit is None else error_for(ErrorCode.POLICY_VIOLATION, limit)


def queue_limit(state: TableState, resource: Resource) -> BrokerError | None:
    """The limit that one more claim meets which would wait for `resource`; None if it meets none."""
    waiters_max, total_max = state.settings.waiters_max, state.settings.waiters_total_max
    if len(resource.waiters) >= waiters_max:
        limit = f"own.waiters.max={waiters_max} claims already wait for {resource.key}"
    elif state.waiters >= total_max:
        limit = f"own.waiters.total.max={total_max} claims already wait at this broker"
    else:
        return None
    return BrokerError(ErrorCode.RESOURCE_OWNED, limit)
