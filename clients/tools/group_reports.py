"""The tables of consumer-groups.sh --describe, with the column titles of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from holdfast_log.clients.admin import LATEST, Admin
from holdfast_log.clients.admin.consumer_groups import ConsumerGroupDescription, ConsumerMemberDescription
from holdfast_log.clients.admin.groups import GroupDescription, MemberDescription
from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.message import by_topic
from holdfast_log.protocol.topic_partition import TopicPartition

_MEMBER_COLUMNS = (
    ("GROUP", "group"),
    ("CONSUMER-ID", "consumerId"),
    ("HOST", "host"),
    ("CLIENT-ID", "clientId"),
    ("#PARTITIONS", "partitions"),
)
_TARGET_COLUMNS = (
    ("CURRENT-EPOCH", "currentEpoch"),
    ("TARGET-EPOCH", "targetEpoch"),
    ("TARGET-ASSIGNMENT", "targetAssignment"),
)
"""Titles, and keys in JSON; the latter three only where a group of KIP-848 is shown, as in Kafka 4."""


@dataclass(frozen=True, slots=True)
class Report:
    """A table. `keys` are the names of the columns in JSON; None is an unknown value."""

    titles: tuple[str, ...]
    keys: tuple[str, ...]
    rows: list[tuple[object, ...]]

    def objects(self) -> list[dict[str, object]]:
        """The rows as JSON objects."""
        return [dict(zip(self.keys, row, strict=True)) for row in self.rows]


def offsets_report(admin: Admin, groups: Iterable[GroupDescription]) -> Report:
    """Committed offset, lag and member for each partition that a group has committed or is assigned."""
    rows: list[tuple[object, ...]] = []
    for group in groups:
        committed = admin.list_group_offsets(group.group_id)
        owners = {partition: member for member in group.members for partition in member.partitions}
        partitions = sorted({*committed, *owners})
        ends = _ends(admin, partitions)
        for partition in partitions:
            stored = committed.get(partition)
            end = ends.get(partition)
            lag = None if stored is None or end is None else max(0, end - stored.offset)
            rows.append(
                (
                    group.group_id,
                    partition.topic,
                    partition.partition,
                    None if stored is None else stored.offset,
                    end,
                    lag,
                    *_reader(owners.get(partition)),
                )
            )
    return Report(
        (
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
            "CLIENT-ID",
        ),
        (
            "group", "topic", "partition", "currentOffset", "logEndOffset", "lag", "consumerId", "host",
            "clientId",
        ),
        rows,
    )  # fmt: skip


def _reader(member: MemberDescription | None) -> tuple[object, object, object]:
    return (None, None, None) if member is None else (member.member_id, member.host, member.client_id)


def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of the partitions that exist and have leaders."""
    existing = set(admin.list_topics(include_internal=True))
    topics = {partition.topic for partition in partitions} & existing
    led = {
        TopicPartition(topic.name, row.partition)
        for topic in (admin.describe_topics(sorted(topics)) if topics else ())
        for row in topic.partitions
        if row.leader != NO_NODE
    }
    asked = [partition for partition in partitions if partition in led]
    found = admin.list_offsets(dict.fromkeys(asked, LATEST))
    return {partition: answer.offset for partition, answer in found.items()}


def members_report(
    groups: Iterable[GroupDescription],
    verbose: bool,
    details: Mapping[str, ConsumerGroupDescription] = MappingProxyType({}),
) -> Report:
    """The members of each group, with the number of partitions assigned; with `verbose`, which ones.

    `details` are those of groups of KIP-848: epochs of their members, and what these are to read in the end.
    """
    chosen = list(groups)
    has_static = any(member.instance_id is not None for group in chosen for member in group.members)
    columns = [*_MEMBER_COLUMNS]
    if has_static:
        columns.insert(2, ("GROUP-INSTANCE-ID", "groupInstanceId"))
    if verbose:
        columns.append(("ASSIGNMENT", "assignment"))
    if details:
        columns += _TARGET_COLUMNS
    rows = []
    for group in chosen:
        detail = details.get(group.group_id)
        targets = {} if detail is None else {each.member_id: each for each in detail.members}
        for member in group.members:
            row: list[object] = [group.group_id, member.member_id, member.host, member.client_id]
            if has_static:
                row.insert(2, member.instance_id)
            row.append(len(member.partitions))
            if verbose:
                row.append(_assignment(member.partitions))
            if details:
                row += _target(detail, targets.get(member.member_id))
            rows.append(tuple(row))
    return Report(tuple(title for title, _ in columns), tuple(key for _, key in columns), rows)


def _target(
    group: ConsumerGroupDescription | None, member: ConsumerMemberDescription | None
) -> tuple[object, ...]:
    """The columns of a member of a group of KIP-848; unknown for other groups."""
    if group is None or member is None:
        return (None, None, None)
    return member.epoch, group.assignment_epoch, _assignment(member.target)


def _assignment(partitions: Iterable[TopicPartition]) -> str | None:
    topics = by_topic(sorted(partitions))
    text = ", ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in topics.items())
    return text or None


def state_report(
    groups: Iterable[GroupDescription],
    details: Mapping[str, ConsumerGroupDescription] = MappingProxyType({}),
) -> Report:
    """Coordinator, assignment strategy and state of each group; with `details` also the epochs of groups of
    KIP-848."""
    rows: list[tuple[object, ...]] = []
    for group in groups:
        detail = details.get(group.group_id)
        epochs = (None, None) if detail is None else (detail.epoch, detail.assignment_epoch)
        rows.append(
            (
                group.group_id,
                f"{group.coordinator} ({group.coordinator.id})",
                group.assignor or None,
                group.state,
                *(epochs if details else ()),
                len(group.members),
            )
        )
    epoch_titles = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if details else ()
    epoch_keys = ("groupEpoch", "targetAssignmentEpoch") if details else ()
    return Report(
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epoch_titles, "#MEMBERS"),
        ("group", "coordinator", "assignmentStrategy", "state", *epoch_keys, "members"),
        rows,
    )
