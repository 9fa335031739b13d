"""Consumer groups of KIP-848: their epochs, and how far each member is on its way to what it is to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedAssignment,
    DescribedConsumer,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_CLASSIC_PROTOCOL = 0
_NONE_OF_THEM = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""The errors of a group of another protocol; the second is that of Kafka's brokers where this one is off."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """A member of a consumer group. `partitions` are what it may read now, `target` what it is to read in the
    end; it is there once they are equal and `epoch` is that of the group's assignment.

    `topics` and `regex` are its subscription. `is_classic`: it speaks the classic protocol, in a group that
    migrates; False also where the broker does not say.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int
    topics: tuple[str, ...]
    regex: str | None
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A consumer group (KIP-848). `epoch` rises with each change of members, subscriptions or topics, and
    `assignment_epoch` is the one for which the coordinator has assigned partitions last."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
    coordinator: Node


def describe_consumer_groups(asking: Asking, group_ids: Iterable[str]) -> dict[str, ConsumerGroupDescription]:
    """The groups with these names. Those that are none of KIP-848, or do not exist, are left out, and all
    are where the brokers do not serve that protocol."""
    described = {each: _described(asking, each) for each in dict.fromkeys(group_ids)}
    return {group_id: found for group_id, found in described.items() if found is not None}


def _described(asking: Asking, group_id: str) -> ConsumerGroupDescription | None:
    try:
        response, coordinator = asking.ask_coordinator(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
            lambda answer: [row.error_code for row in answer.groups],
        )
    except UnsupportedRequestError:
        return None
    (row,) = response.groups
    if row.error_code in _NONE_OF_THEM:
        return None
    raise_first([(f"group {group_id}", row.error_code, row.error_message)])
    return ConsumerGroupDescription(
        group_id,
        row.group_state,
        row.group_epoch,
        row.assignment_epoch,
        row.assignor_name,
        tuple(map(_member, row.members)),
        asking.connection.metadata.nodes[coordinator],
    )


def _member(row: DescribedConsumer) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        row.member_id,
        row.instance_id,
        row.client_id,
        row.client_host,
        row.rack_id,
        row.member_epoch,
        tuple(row.subscribed_topic_names),
        row.subscribed_topic_regex,
        _partitions(row.assignment),
        _partitions(row.target_assignment),
        row.member_type == _CLASSIC_PROTOCOL,
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(row.topic_name, number)
            for row in assignment.topic_partitions
            for number in row.partitions
        )
    )
