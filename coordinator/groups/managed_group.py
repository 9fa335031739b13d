"""A managed group: the state of a group whose partitions the server assigns (client rewrite).

Nothing here answers a request, writes a record or sets a timer: managed_rebalance.py handles the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.groups.effects import RewoundPartition
from holdfast_log.coordinator.groups.records import ManagedGroupValue, ManagedMemberValue
from holdfast_log.coordinator.groups.states import CAME_FROM, GroupState, GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

READER_NAME_MAX = 255
"""Maximum length in characters of the id of a group with single readers, and of its consumer ids."""


@dataclass(slots=True)
class ManagedMember:
    """One consumer of a managed group.

    `generation` is the one in which it was last assigned its partitions: a rewind of other members'
    partitions raises the generation of the group but not of this member.
    """

    consumer_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()
    must_register: bool = False
    """It takes part in a rebalance or rewind that has begun: its heartbeats are answered with an error."""
    notified: bool = False
    """It has received that error. It has one session timeout to stop fetching, commit and register, or as
    long as its heartbeats ask for: later ones no longer extend its session."""
    notified_at_ms: int = 0
    registering: RequestToken = None
    """Token of its RegisterConsumer, which waits for the other members."""

    def is_awaited(self) -> bool:
        return self.must_register and self.registering is None


@dataclass(slots=True)
class PendingRewind:
    """A RewindConsumer that is not answered yet. `consumer_id` is empty if the requester is not a member.

    `refused` are the partitions of the request that cannot be rewound; the others are rewound without them.
    """

    request: RequestToken
    consumer_id: str
    new_offsets: Mapping[TopicPartition, int]
    refused: Sequence[RewoundPartition] = ()


@dataclass(slots=True)
class ManagedGroup:
    """A group under the client rewrite's protocol.

    EMPTY: no members. PREPARING_REBALANCE: all members have to register. STABLE: all members have their
    partitions; while `rewinds` is not empty, the owners of the rewound partitions have to register.
    """

    group_id: str
    session_timeout_ms: int
    ephemeral: bool
    assignment_strategy: str
    partitions: dict[str, int]
    """For each topic the number of partitions seen at creation or assigned since; others are new."""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    single_reader: bool = False
    """Whether partition leaders let only the assigned member of the group read a partition."""
    members: dict[str, ManagedMember] = field(default_factory=dict)
    rewinds: list[PendingRewind] = field(default_factory=list)
    durable: ManagedGroupValue | None = None

    type = GroupType.MANAGED

    @classmethod
    def from_value(cls, group_id: str, value: ManagedGroupValue) -> ManagedGroup:
        """The group as a new coordinator restores it from its record."""
        group = cls(
            group_id,
            value.session_timeout_ms,
            value.ephemeral,
            value.assignment_strategy,
            dict(value.partitions),
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            generation=value.generation,
            single_reader=value.single_reader,
            durable=value,
        )
        for member in value.members:
            group.members[member.consumer_id] = ManagedMember(
                member.consumer_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.generation,
                member.owned,
            )
        return group

    def to_value(self) -> ManagedGroupValue:
        """The value of the group's record.

        It omits members that were not assigned partitions yet: they have no generation to be restored in.
        """
        return ManagedGroupValue(
            self.session_timeout_ms,
            self.ephemeral,
            self.assignment_strategy,
            self.generation,
            tuple(self.partitions.items()),
            tuple(
                ManagedMemberValue(
                    member.consumer_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms,
                    member.generation,
                    member.owned,
                )
                for member in self.members.values()
                if member.generation >= 0
            ),
            self.single_reader,
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether every member has to register."""
        return self.state is GroupState.PREPARING_REBALANCE

    def all_registered(self) -> bool:
        return not any(member.is_awaited() for member in self.members.values())

    def owners_of(self, partitions: Iterable[TopicPartition]) -> list[ManagedMember]:
        """The members that own any of `partitions`, in joining order."""
        wanted = frozenset(partitions)
        return [member for member in self.members.values() if not wanted.isdisjoint(member.owned)]

    def is_rewinding(self, consumer_id: str) -> bool:
        """Whether this member waits for the answer to its own RewindConsumer."""
        return any(rewind.consumer_id == consumer_id for rewind in self.rewinds)

    def transition_to(self, *states: GroupState) -> None:
        """Pass through `states` in order: the server assigns, so it completes a rebalance in one step."""
        for state in states:
            assert self.state in CAME_FROM[state], f"{self.group_id}: {self.state.value} to {state.value}"
            self.state = state

    def check_generation(self, consumer_id: str, generation: int) -> ErrorCode:
        """NONE if the member may act under `generation`, else the error.

        Valid are the generations from its last assignment to the group's current one.
        """
        member = self.members.get(consumer_id)
        if member is None or member.generation < 0:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.generation <= generation <= self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def check_commit(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this member may commit offsets under `generation` now, else the error."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        return self.check_generation(member_id, generation)

    def may_commit(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the caller may commit a partition: a member only its own among the assigned partitions.

        `check_commit` admits callers that are not members only while the group is empty.
        """
        member = self.members.get(member_id)
        is_shared_out = partition.partition < self.partitions.get(partition.topic, 0)
        return member is None or not is_shared_out or partition in member.owned
