"""One consumer group: members, committed offsets, lag. It blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin import (
    LATEST,
    Admin,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    GroupDescription,
    MemberDescription,
)
from holdfast_log.protocol.errors import AuthorizationError
from holdfast_log.protocol.topic_partition import TopicPartition

DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group has committed or reads. What is unknown is None."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member: MemberDescription | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its partitions. `lag` is the sum of the known lags, None if none is known. `consumers` is
    what only groups of KIP-848 have: epochs, and what each member is to read in the end."""

    description: GroupDescription
    partitions: tuple[GroupPartition, ...]
    lag: int | None
    consumers: ConsumerGroupDescription | None = None

    @property
    def exists(self) -> bool:
        return self.description.state != DEAD

    @property
    def by_member_id(self) -> Mapping[str, ConsumerMemberDescription]:
        """The members of a group of KIP-848; none of other groups."""
        return {} if self.consumers is None else {each.member_id: each for each in self.consumers.members}


def group_detail(admin: Admin, group_id: str) -> GroupDetail:
    """Ask for a group. Raises BrokerError and ClientError."""
    description = admin.describe_groups([group_id])[group_id]
    if description.state == DEAD:
        return GroupDetail(description, (), None)
    committed = {key: stored.offset for key, stored in admin.list_group_offsets(group_id).items()}
    readers = {partition: member for member in description.members for partition in member.partitions}
    wanted = sorted({*committed, *readers})
    ends = _ends(admin, wanted)
    rows = tuple(
        GroupPartition(
            each,
            committed.get(each),
            ends.get(each),
            _lag(committed.get(each), ends.get(each)),
            readers.get(each),
        )
        for each in wanted
    )
    lags = [row.lag for row in rows if row.lag is not None]
    return GroupDetail(description, rows, sum(lags) if lags else None, _consumers(admin, group_id))


def _consumers(admin: Admin, group_id: str) -> ConsumerGroupDescription | None:
    """None also where the console may not describe all topics of the group: brokers then refuse the whole."""
    try:
        return admin.describe_consumer_groups([group_id]).get(group_id)
    except AuthorizationError:
        return None


def _lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


def _ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of those partitions that exist and have leaders."""
    wanted = set(partitions)
    if not wanted:
        return {}
    names = {each.topic for each in wanted} & set(admin.list_topics(include_internal=True))
    led = {
        TopicPartition(topic.name, row.partition)
        for topic in (admin.describe_topics(sorted(names)) if names else ())
        for row in topic.partitions
        if row.leader >= 0
    }
    asked = dict.fromkeys(sorted(wanted & led), LATEST)
    return {key: found.offset for key, found in admin.list_offsets(asked).items()} if asked else {}
