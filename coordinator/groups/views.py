"""Lists of groups, for tools. Nothing here changes a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.effects import HostedGroup, ManagedGroupInfo
from holdfast_log.coordinator.groups.managed_group import ManagedGroup

Group: TypeAlias = ClassicGroup | ManagedGroup | ConsumerGroup


def listed(
    groups: Iterable[Group],
    states: Collection[str],
    types: Collection[str],
    protocol_type: Callable[[Group], str],
) -> list[HostedGroup]:
    """The groups that match both filters. An empty filter matches all; filters ignore case."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    return [
        HostedGroup(group.group_id, protocol_type(group), group.state.value, group.type.value)
        for group in groups
        if (not wanted_states or group.state.value.lower() in wanted_states)
        and (not wanted_types or group.type.value in wanted_types)
    ]


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
