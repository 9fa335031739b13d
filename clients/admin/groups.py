"""Consumer groups: listing, describing and deleting them, and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.cluster import describe_cluster
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.groups.committed_offsets import (
    commit_request,
    committed_in,
    fetch_request,
    fetched_in,
)
from holdfast_log.clients.groups.membership import GroupIdentity
from holdfast_log.clients.message import OffsetAndMetadata, by_topic
from holdfast_log.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast_log.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from holdfast_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchResponse
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.protocol.topic_partition import TopicPartition

DEAD = "Dead"
"""The state of a group that does not exist."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a listing. `state` and `type` are empty if the broker does not report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member, and the partitions assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `state` is one of Kafka's, such as Stable; Dead if the group does not exist."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node


def list_groups(asking: Asking, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
    """The groups in these states and of these types, sorted by name; empty filters match all groups."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    nodes = [node.id for node in describe_cluster(asking).nodes]
    asking.know_nodes(nodes)
    found = []
    for node in nodes:
        response = asking.ask(node, request, lambda answer: [answer.error_code])
        raise_first([(f"the groups of broker {node}", response.error_code, None)])
        found += [
            GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
            for row in response.groups
        ]
    return sorted(found, key=lambda group: group.group_id)


def describe_groups(asking: Asking, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    """State and members of groups."""
    found = {}
    for group_id in group_ids:
        response, coordinator = asking.ask_coordinator(
            group_id,
            DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False),
            lambda answer: [row.error_code for row in answer.groups],
        )
        found[group_id] = _described_group(asking, group_id, response, coordinator)
    return found


def _described_group(
    asking: Asking, group_id: str, response: DescribeGroupsResponse, coordinator: int
) -> GroupDescription:
    (row,) = response.groups
    node = asking.connection.metadata.nodes[coordinator]
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, DEAD, "", "", (), node)
    raise_first([(f"group {group_id}", row.error_code, None)])
    members = tuple(_described_member(row, member) for member in row.members)
    return GroupDescription(group_id, row.group_state, row.protocol_type, row.protocol_data, members, node)


def delete_groups(asking: Asking, group_ids: Iterable[str]) -> None:
    """Delete groups that have no members, and their offsets."""
    codes = []
    for group_id in group_ids:
        response, _ = asking.ask_coordinator(
            group_id,
            DeleteGroupsRequest(groups_names=[group_id]),
            lambda answer: [row.error_code for row in answer.results],
        )
        codes += [(f"group {row.group_id}", row.error_code, None) for row in response.results]
    raise_first(codes)


def list_group_offsets(
    asking: Asking, group_id: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """A group's committed offsets, for these partitions or for all."""
    request = fetch_request(group_id, partitions)
    response, _ = asking.ask_coordinator(group_id, request, _codes_of_fetch)
    return fetched_in(response)


def alter_group_offsets(
    asking: Asking, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> None:
    """Set the committed offsets of a group without members. Creates the group if it does not exist."""
    rows = {
        partition: OffsetAndMetadata(stored) if isinstance(stored, int) else stored
        for partition, stored in offsets.items()
    }
    response, _ = asking.ask_coordinator(
        group_id,
        commit_request(GroupIdentity(group_id), rows),
        lambda answer: committed_in(answer).values(),
    )
    codes = committed_in(response)
    if ErrorCode.UNKNOWN_MEMBER_ID in codes.values():
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id} has members, whose commits would overwrite this: stop the members first",
        )
    raise_first((str(partition), code, None) for partition, code in codes.items())


def delete_group_offsets(asking: Asking, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete a group's committed offsets of partitions whose topics no member subscribes to."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    response, _ = asking.ask_coordinator(
        group_id,
        OffsetDeleteRequest(group_id=group_id, topics=topics),
        lambda answer: [answer.error_code],
    )
    raise_first([(f"group {group_id}", response.error_code, None)])
    raise_first(
        (f"{topic.name}-{row.partition_index}", row.error_code, None)
        for topic in response.topics
        for row in topic.partitions
    )


def _described_member(group: DescribedGroup, member: DescribedGroupMember) -> MemberDescription:
    partitions: tuple[TopicPartition, ...] = ()
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        try:
            partitions = tuple(TopicPartition(*each) for each in decode_assignment(member.member_assignment))
        except MalformedMessage:
            partitions = ()  # An assignor's own format.
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, partitions
    )


def _codes_of_fetch(response: OffsetFetchResponse) -> list[int]:
    return [response.error_code, *(group.error_code for group in response.groups)]
