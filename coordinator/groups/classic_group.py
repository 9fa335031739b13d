"""The state of a classic group and its members.

Nothing here answers a request, writes a record or sets a timer: classic_join.py and classic_rebalance.py
handle the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_log.coordinator.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from holdfast_log.coordinator.groups.effects import JoinedMember
from holdfast_log.coordinator.groups.records import GroupValue, MemberValue
from holdfast_log.coordinator.groups.states import CAME_FROM, GroupState, GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode


class ClassicCaller(NamedTuple):
    """Who sends a request as a member of a group, in which generation by its own account."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(slots=True)
class ClassicMember:
    """One member. `joining` and `syncing` are the tokens of its waiting JoinGroup and SyncGroup.

    `is_new` is true until its first JoinGroup is answered. Until then it does not know its member id, so it
    cannot send heartbeats, and after a reconnect it joins under another id. Only
    `GroupSettings.new_member_join_timeout_ms` bounds its wait.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: RequestToken = None
    syncing: RequestToken = None
    is_new: bool = False

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for `protocol_name`; empty if it does not support that protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


@dataclass(slots=True)
class ClassicGroup:
    """A group of Kafka's classic protocol, or one that only keeps offsets (`protocol_type` is None)."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since_ms: int | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader_id: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id → current member id."""
    pending_members: dict[str, None] = field(default_factory=dict)
    """Member ids handed out with MEMBER_ID_REQUIRED, with which no member has joined yet."""
    unsynced_members: dict[str, None] = field(default_factory=dict)
    """Members of the generation that have not sent SyncGroup."""
    joining_count: int = 0
    """Number of members whose JoinGroup waits."""
    protocol_counts: dict[str, int] = field(default_factory=dict)
    """Number of members that support each protocol."""
    held_bytes: int | None = None
    """At least the bytes of the members' subscriptions and assignments; None if they were not counted."""
    new_member_added: bool = False
    initial_delay_left_ms: int | None = None
    """While the first join phase of an empty group is delayed: its maximum further delay in ms."""
    topics: frozenset[str] | None = None
    """The topics to which the consumers of the group subscribe; None if unknown."""
    durable: GroupValue | None = None
    """The value of the group's last record, to which it returns after a refused append."""

    type = GroupType.CLASSIC

    @classmethod
    def from_value(cls, group_id: str, value: GroupValue) -> ClassicGroup:
        """The group as a new coordinator restores it from its record: Stable if it has members."""
        group = cls(
            group_id,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            state_since_ms=value.state_since_ms,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol_name,
            generation=value.generation,
            leader_id=value.leader_id,
            durable=value,
        )
        for member in value.members:
            group.add(
                ClassicMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    value.protocol_type,
                    ((value.protocol_name or "", member.subscription),),
                    assignment=member.assignment,
                )
            )
        group.topics = group.subscribed_topics()
        return group

    def to_value(self) -> GroupValue:
        """The value of the group's record."""
        return GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            self.state_since_ms,
            tuple(
                MemberValue(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol_name),
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in CAME_FROM[state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in CAME_FROM[GroupState.PREPARING_REBALANCE]

    @property
    def is_simple(self) -> bool:
        """Whether it only stores offsets: it has never had a member."""
        return self.protocol_type is None and not self.pending_members

    def all_have_joined(self) -> bool:
        return not self.pending_members and self.joining_count == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """Maximum duration of the join phase: the largest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member; UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID for any other caller."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one sets the protocol type and becomes leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self._count_protocols(member, +1)
        self.pending_members.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member that joins again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, +1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: ClassicMember, request: RequestToken) -> None:
        """Keep a JoinGroup waiting for the end of the join phase."""
        self.joining_count += member.joining is None
        member.joining = request

    def unpark_join(self, member: ClassicMember) -> RequestToken:
        """Remove and return the member's waiting JoinGroup, or None."""
        request, member.joining = member.joining, None
        self.joining_count -= request is not None
        return request

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member, whose waiting requests have been answered."""
        member = self.members.pop(member_id)
        assert member.joining is None and member.syncing is None, "a request would wait for ever"
        self._count_protocols(member, -1)
        self.unsynced_members.pop(member_id, None)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, member: ClassicMember, member_id: str) -> None:
        """Give the static `member` a new id; requests with the old one are fenced from now on."""
        assert member.instance_id is not None
        was_leader = self.leader_id == member.member_id
        if member.member_id in self.unsynced_members:
            del self.unsynced_members[member.member_id]
            self.unsynced_members[member_id] = None
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.instance_id] = member_id
        if was_leader:
            self.leader_id = member_id

    def supports(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all members must support one of them."""
        names = tuple(protocol_names)
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(self._is_common(name) for name in names)

    def choose_protocol(self) -> str:
        """The protocol of the next generation: each member votes for its favourite that all members support.

        On a tie the protocol that was voted for first, in joining order, wins.
        """
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(name for name, _ in member.protocols if self._is_common(name))
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is a member that has joined; False if none has joined."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.joining is not None:
            return True
        joined = next((m for m in self.members.values() if m.joining is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def joined_members(self) -> list[JoinedMember]:
        """The members for the leader's JoinGroup answer, in joining order."""
        return [
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        ]

    def subscribed_topics(self) -> frozenset[str] | None:
        """The union of the members' subscriptions; None if the members are not consumers or one is
        unreadable."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or not self.protocol_name:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def check_commit(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this member may commit offsets under `generation` now, else the error."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # During the join phase members commit before they join again. After it they have joined and should
        # have nothing left to commit.
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _is_common(self, protocol_name: str) -> bool:
        return self.protocol_counts.get(protocol_name) == len(self.members)

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self.protocol_counts.get(name, 0) + change
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]
