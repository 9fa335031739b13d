"""Consumer groups: which there are, who is in them, how far they have read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clients.admin.asking import R, raise_first
from clients.admin.cluster import ClusterAdmin
from clients.connection.connection import ANY_NODE
from clients.connection.metadata import Node
from clients.errors import is_retriable
from clients.fetching.offsets import wait_for_metadata
from clients.groups.committed_offsets import (
    commit_request,
    committed_in,
    fetch_request,
    fetched_in,
)
from clients.groups.coordinator import COORDINATOR_MOVED, coordinator_in, find_coordinator_request
from clients.groups.membership import GroupIdentity
from clients.message import OffsetAndMetadata, by_topic
from protocol.api import Request
from protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment
from protocol.errors import ErrorCode, error_for
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.schema import MalformedMessage
from protocol.topic_partition import TopicPartition

DEAD = "Dead"
"""The state of a group that does not exist."""
_PASSES = (*COORDINATOR_MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as the list has it. `state` and `type` are empty where the broker does not tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member, and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `state` is one of Kafka's, such as Stable; Dead where there is no such group."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node


class GroupAdmin(ClusterAdmin):
    """Lists, describes and deletes groups; reads, sets and deletes their offsets."""

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """The groups in these states and of these types, or all, sorted by their names."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        nodes = [node.id for node in self.describe_cluster().nodes]
        self._know_nodes(nodes)
        found = []
        for node in nodes:
            response = self._ask(node, request, lambda answer: [answer.error_code])
            raise_first([(f"the groups of broker {node}", response.error_code, None)])
            found += [
                GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
                for row in response.groups
            ]
        return sorted(found, key=lambda group: group.group_id)

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups."""
        found = {}
        for group_id in group_ids:
            response, coordinator = self._ask_coordinator(
                group_id,
                DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False),
                lambda answer: [row.error_code for row in answer.groups],
            )
            found[group_id] = self._described_group(group_id, response, coordinator)
        return found

    def _described_group(
        self, group_id: str, response: DescribeGroupsResponse, coordinator: int
    ) -> GroupDescription:
        (row,) = response.groups
        node = self._connection.metadata.nodes[coordinator]
        if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupDescription(group_id, DEAD, "", "", (), node)
        raise_first([(f"group {group_id}", row.error_code, None)])
        members = tuple(_described_member(row, member) for member in row.members)
        return GroupDescription(
            group_id, row.group_state, row.protocol_type, row.protocol_data, members, node
        )

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, and their offsets.

        Raises GroupNotEmptyError, GroupNotFoundError and others.
        """
        codes = []
        for group_id in group_ids:
            response, _ = self._ask_coordinator(
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                lambda answer: [row.error_code for row in answer.results],
            )
            codes += [(f"group {row.group_id}", row.error_code, None) for row in response.results]
        raise_first(codes)

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, for these partitions or for all; the others are left out."""
        request = fetch_request(group_id, partitions)
        response, _ = self._ask_coordinator(group_id, request, _codes_of_fetch)
        return fetched_in(response)

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Set how far a group has read; it must have no members. Makes the group where there is none.

        Raises GroupNotEmptyError and others.
        """
        rows = {
            partition: OffsetAndMetadata(stored) if isinstance(stored, int) else stored
            for partition, stored in offsets.items()
        }
        response, _ = self._ask_coordinator(
            group_id,
            commit_request(GroupIdentity(group_id), rows),
            lambda answer: committed_in(answer).values(),
        )
        codes = committed_in(response)
        if ErrorCode.UNKNOWN_MEMBER_ID in codes.values():
            raise error_for(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group_id} has members: their commits would undo this; stop them first",
            )
        raise_first((str(partition), code, None) for partition, code in codes.items())

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget how far a group has read partitions of topics that none of its members reads now."""
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        response, _ = self._ask_coordinator(
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

    # How the coordinator is asked ---------------------------------------------------------------------

    def _ask_coordinator(
        self, group_id: str, request: Request[R], codes: Callable[[R], Iterable[int]]
    ) -> tuple[R, int]:
        """The response of the broker that looks after a group, and that broker's id.

        Asked for again where the coordinator was not to be found, had moved, or is not ready.
        """
        now_ms = self._connection.network.now_ms
        deadline_ms = now_ms() + self._timeout_ms
        while True:
            left_ms = max(0, deadline_ms - now_ms())
            try:
                search = find_coordinator_request(group_id)
                place = coordinator_in(self._connection.ask(ANY_NODE, search, left_ms))
                self._know_nodes([place.node])
                response = self._connection.ask(place.node, request, left_ms)
                refusal = next((code for code in codes(response) if code in _PASSES), None)
                if refusal is None:
                    return response, place.node
                raise error_for(refusal, f"group {group_id}: {error_for(refusal).message}")
            except Exception as error:
                if not is_retriable(error) or now_ms() + self._backoff_ms >= deadline_ms:
                    raise
            wait_for_metadata(self._connection, min(self._backoff_ms, max(0, deadline_ms - now_ms())))


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
