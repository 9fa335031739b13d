"""Descriptions and lists of groups, for tools. Nothing here changes a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    encode_assignment,
    encode_subscription,
)
from holdfast_log.coordinator.groups.effects import (
    DescribeAnswer,
    DescribedMember,
    HostedGroup,
    ManagedGroupInfo,
)
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.states import GroupState

Group: TypeAlias = ClassicGroup | ManagedGroup


def describe(group_id: str, group: Group | None) -> DescribeAnswer:
    """Describe a group; a managed group is shown as one of the consumer protocol, so that tools can read
    it."""
    match group:
        case None:
            return DescribeAnswer(group_id, GroupState.DEAD.value)
        case ClassicGroup():
            return _describe_classic(group)
        case ManagedGroup():
            return _describe_managed(group)


def listed(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> list[HostedGroup]:
    """The groups that match both filters. An empty filter matches all; filters ignore case."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    return [
        HostedGroup(group.group_id, _protocol_type(group), group.state.value, group.type.value)
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


def _describe_classic(group: ClassicGroup) -> DescribeAnswer:
    # During a rebalance the protocol and the members' metadata for it are not valid
    is_stable = group.state is GroupState.STABLE
    return DescribeAnswer(
        group.group_id,
        group.state.value,
        _protocol_type(group),
        (group.protocol_name or "") if is_stable else "",
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def _describe_managed(group: ManagedGroup) -> DescribeAnswer:
    subscription = encode_subscription(group.partitions)
    return DescribeAnswer(
        group.group_id,
        group.state.value,
        _protocol_type(group),
        group.assignment_strategy,
        tuple(
            DescribedMember(
                member.consumer_id,
                None,
                member.client_id,
                member.client_host,
                subscription,
                encode_assignment(member.owned),
            )
            for member in group.members.values()
        ),
    )


def _protocol_type(group: Group) -> str:
    return CONSUMER_PROTOCOL_TYPE if isinstance(group, ManagedGroup) else group.protocol_type or ""
