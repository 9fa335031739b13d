"""Lists of groups, for tools. Nothing here changes a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.effects import HostedGroup, ManagedGroupInfo
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.states import GroupState, GroupType

Group: TypeAlias = ClassicGroup | ManagedGroup | ConsumerGroup

_LONGEST_STATE = max(len(state.value) for state in GroupState)
_LONGEST_TYPE = max(len(group_type.value) for group_type in GroupType)


def listed(
    groups: Iterable[Group],
    states: Collection[str],
    types: Collection[str],
    protocol_type: Callable[[Group], str],
) -> list[HostedGroup]:
    """The groups that match both filters. An empty filter matches all; filters ignore case."""
    wanted_states, wanted_types = _lower(states, _LONGEST_STATE), _lower(types, _LONGEST_TYPE)
    return [
        HostedGroup(group.group_id, protocol_type(group), group.state.value, group.type.value)
        for group in groups
        if (not states or group.state.value.lower() in wanted_states)
        and (not types or group.type.value in wanted_types)
    ]


def _lower(names: Iterable[str], longest: int) -> set[str]:
    """The names in small letters, without those that are longer than any that there is: a client may send
    megabytes, and each shard would copy them."""
    return {name.lower() for name in names if len(name) <= longest}


def managed_info(group: ManagedGroup) -> ManagedGroupInfo:
    """A group's entry in the client rewrite's ListGroups."""
    return ManagedGroupInfo(
        group.group_id,
        tuple(group.members),
        tuple(group.partitions),
        group.session_timeout_ms,
        group.ephemeral,
        group.single_reader,
    )
