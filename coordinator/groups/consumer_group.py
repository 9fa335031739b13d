"""A consumer group: the state of a group of KIP-848 and of its members.

Nothing here answers a request, writes a record or sets a timer: consumer_rebalance.py handles the events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_log.coordinator.groups.consumer_assignment import (
    NO_PARTITIONS,
    CurrentAssignment,
    IdPartition,
    MemberState,
    Partitions,
)
from holdfast_log.coordinator.groups.consumer_records import (
    ConsumerGroupValue,
    ConsumerMemberValue,
    ConsumerMeta,
    TopicOfGroup,
)
from holdfast_log.coordinator.groups.consumer_topics import RegexRefused, compiled
from holdfast_log.coordinator.groups.states import GroupState, GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

JOINS = 0
LEAVES = -1
LEAVES_FOR_NOW = -2


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request. A field that is None, or a timeout of -1, has not changed.

    `may_see(topic)` tells whether the client may know that a topic exists, for topics that it does not name.
    """

    request: RequestToken
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str
    may_see: Callable[[str], bool]
    names_itself: bool = False
    """Whether the member has to choose its id (version 1 and up)."""

    @property
    def is_full(self) -> bool:
        """Whether it has all fields, as after a lost answer: the answer then has the whole assignment."""
        has_subscription = self.topics is not None or self.regex is not None
        is_complete = self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        return self.epoch == JOINS or is_complete


@dataclass(slots=True)
class ConsumerMember:
    """One member. `seen` are the topics that its regular expression matches."""

    member_id: str
    meta: ConsumerMeta
    target: Partitions = NO_PARTITIONS
    current: CurrentAssignment = field(default_factory=CurrentAssignment)
    seen: frozenset[str] = frozenset()

    def subscribed(self) -> frozenset[str]:
        return self.seen.union(self.meta.topics) if self.meta.regex else frozenset(self.meta.topics)


@dataclass(slots=True)
class ConsumerGroup:
    """A group of KIP-848. `epoch` rises with every change of members, subscriptions and topics;
    `assignment_epoch` is that of the members' targets."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    topics: tuple[TopicOfGroup, ...] = ()
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id → member id."""
    holders: dict[IdPartition, str] = field(default_factory=dict)
    """Which member holds a partition (`CurrentAssignment.held`)."""
    unmatched: set[str] = field(default_factory=set)
    """Members whose regular expressions are to be matched again at their next heartbeats."""
    is_restored: bool = False
    """Whether its topics may have changed since its last record, unseen by this coordinator."""
    empty_since_ms: int | None = None
    is_dead: bool = False
    durable: ConsumerGroupValue | None = None
    """What the log has of the group, to which it returns after a refused append."""

    type = GroupType.CONSUMER

    @classmethod
    def from_value(cls, group_id: str, value: ConsumerGroupValue) -> ConsumerGroup:
        """The group as a new coordinator restores it from its records."""
        group = cls(
            group_id, value.epoch, value.assignment_epoch, value.topics, is_restored=True, durable=value
        )
        for member_id, (meta, target, current) in value.members.items():
            member = ConsumerMember(member_id, meta, target)
            if meta.regex:
                member.seen = _seen_before(value, member)
                group.unmatched.add(member_id)
            group.add(member)
            group.give(member, current)
        return group

    def to_value(self) -> ConsumerGroupValue:
        members = {
            member.member_id: ConsumerMemberValue(member.meta, member.target, member.current)
            for member in self.members.values()
        }
        return ConsumerGroupValue(self.epoch, self.assignment_epoch, self.topics, members)

    @property
    def state(self) -> GroupState:
        """The group's state for tools, which follows from its members."""
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        is_settled = all(
            member.current.state is MemberState.AWAY
            or (member.current.state is MemberState.STABLE and member.current.epoch == self.assignment_epoch)
            for member in self.members.values()
        )
        return GroupState.STABLE if is_settled else GroupState.RECONCILING

    def add(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        self.empty_since_ms = None
        if member.meta.instance_id is not None:
            self.static_members[member.meta.instance_id] = member.member_id

    def remove(self, member_id: str, now_ms: int) -> ConsumerMember:
        """Remove a member. Its partitions are free."""
        member = self.members[member_id]
        self.give(member, CurrentAssignment())
        del self.members[member_id]
        self.unmatched.discard(member_id)
        instance_id = member.meta.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if not self.members:
            self.empty_since_ms = now_ms
        return member

    def give(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """Set what a member has. Every change of it goes this way: it keeps `holders`."""
        before, after = member.current.held, current.held
        member.current = current
        if before is after:
            return
        for partition in before - after:
            if self.holders.get(partition) == member.member_id:
                del self.holders[partition]
        for partition in after - before:
            self.holders[partition] = member.member_id

    def is_free_for(self, member: ConsumerMember, partition: IdPartition) -> bool:
        """Whether no other member holds a partition."""
        return self.holders.get(partition, member.member_id) == member.member_id

    def named(self, partitions: Partitions) -> list[TopicPartition]:
        """The partitions, sorted, by the names of their topics; without those of topics that are gone."""
        names = {topic.topic_id: topic.name for topic in self.topics}
        found = [(names.get(topic_id), number) for topic_id, number in sorted(partitions)]
        return [TopicPartition(name, number) for name, number in found if name is not None]

    def subscribed(self) -> frozenset[str]:
        """The topics to which members subscribe."""
        names: set[str] = set()
        for member in self.members.values():
            names |= member.subscribed()
        return frozenset(names)

    def check_member(self, member_id: str, epoch: int) -> ErrorCode:
        """NONE if this is a member in its current epoch, or if a caller that is none asks for a group without
        members; else the error."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.current.epoch and member.current.state is not MemberState.AWAY:
            return ErrorCode.NONE
        # To a member of the classic protocol its epoch is the generation
        is_consumer = member.meta.classic is None
        return ErrorCode.STALE_MEMBER_EPOCH if is_consumer else ErrorCode.ILLEGAL_GENERATION

    def check_commit(self, epoch: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this member may commit offsets in `epoch` now, else the error."""
        return self.check_member(member_id, epoch)


def _seen_before(value: ConsumerGroupValue, member: ConsumerMember) -> frozenset[str]:
    """What a restored member's regular expression matches, of the topics that the group had; until the
    member's next heartbeat, in whose name all topics can be looked at."""
    try:
        pattern = compiled(member.meta.regex)
    except RegexRefused:
        of_target = {topic_id for topic_id, _ in member.target}
        return frozenset(topic.name for topic in value.topics if topic.topic_id in of_target)
    return frozenset(topic.name for topic in value.topics if pattern.fullmatch(topic.name))
