"""Groups whose coordinator assigns the partitions: the membership protocol of the client rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.clients.groups.managed_requests import new_offsets
from holdfast_log.protocol.messages.group_membership import (
    CreateGroupRequest,
    DeleteGroupRequest,
    ListConsumerGroupsRequest,
    RewindConsumerRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ManagedGroupListing:
    """A managed group: its consumers' ids, its topics, and the broker that coordinates it.

    With `single_reader`, brokers let only the member to which a partition is assigned read it.
    """

    group_id: str
    members: tuple[str, ...]
    topics: tuple[str, ...]
    controller: Node
    session_timeout_ms: int
    single_reader: bool = False


def create_managed_group(
    asking: Asking,
    group_id: str,
    topics: Iterable[str],
    *,
    session_timeout_ms: int = 45_000,
    ephemeral: bool = False,
    assignor: str = "",
    single_reader: bool = False,
) -> None:
    """Create a managed group. If it exists with the same other properties, add the topics to it."""
    request = CreateGroupRequest(
        consumer_group=group_id,
        session_timeout=session_timeout_ms,
        topics=list(topics),
        ephemeral=ephemeral,
        assignment_strategy=assignor,
        single_reader=single_reader,
    )
    response = asking.ask(ANY_NODE, request, lambda answer: [answer.error_code])
    raise_first([(f"group {group_id}", response.error_code, None)])


def delete_managed_groups(asking: Asking, group_ids: Iterable[str]) -> None:
    """Delete groups that have no members and are not ephemeral."""
    codes = []
    for group_id in group_ids:
        request = DeleteGroupRequest(consumer_group=[group_id])
        response, _ = asking.ask_coordinator(group_id, request, lambda answer: [answer.error_code])
        codes.append((f"group {group_id}", response.error_code, None))
    raise_first(codes)


def list_managed_groups(asking: Asking, group_ids: Iterable[str] = ()) -> list[ManagedGroupListing]:
    """The managed groups of these names, or all, sorted by name."""
    request = ListConsumerGroupsRequest(consumer_groups=list(group_ids))
    response = asking.ask(ANY_NODE, request, lambda answer: [answer.error_code])
    raise_first([("groups", response.error_code, None)])
    found = [
        ManagedGroupListing(
            row.group_name,
            tuple(row.group_members),
            tuple(row.topics),
            Node(row.controller_broker.broker_id, row.controller_broker.host, row.controller_broker.port),
            row.session_timeout,
            row.single_reader,
        )
        for row in response.groups_info
    ]
    return sorted(found, key=lambda group: group.group_id)


def rewind_group(
    asking: Asking, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Move a managed group to these offsets while it works; returns the partitions' new offsets."""
    request = RewindConsumerRequest(consumer_group=group_id, new_offsets=new_offsets(offsets))
    response, _ = asking.ask_coordinator(
        group_id, request, lambda answer: [row.error_code for row in answer.actual_offsets]
    )
    raise_first(
        (f"group {group_id}: {row.topic}-{row.partition}", row.error_code, None)
        for row in response.actual_offsets
    )
    return {TopicPartition(row.topic, row.partition): row.offset for row in response.actual_offsets}
