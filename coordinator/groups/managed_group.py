"""A managed group: the state of a group whose partitions the server assigns (client rewrite).

Nothing here answers a request, writes a record or sets a timer; what happens on which event is said in
managed_rebalance.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.groups.effects import RequestToken, RewoundPartition
from coordinator.groups.records import ManagedGroupValue, ManagedMemberValue
from coordinator.groups.states import CAME_FROM, GroupState, GroupType
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

READER_NAME_MAX = 255
"""Characters of a group with single readers, and of the ids of its members: leaders keep them."""


@dataclass(slots=True)
class ManagedMember:
    """One consumer of a managed group.

    `generation` is the one in which it was last given its partitions: a rewind of other members' partitions
    raises the group's generation and leaves this one's where it is.
    """

    consumer_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()
    must_register: bool = False
    """A change has begun that it takes part in: its heartbeats are answered with an error code."""
    notified: bool = False
    """It has had that answer. From here on heartbeats do not prolong its session: it has that long to stop
    fetching, commit and register."""
    registering: RequestToken = None
    """Its RegisterConsumer, which waits for the others'."""

    def is_awaited(self) -> bool:
        return self.must_register and self.registering is None


@dataclass(slots=True)
class PendingRewind:
    """A RewindConsumer under way. `consumer_id` is empty for one who is not a member of the group.

    `refused` are the partitions of the request that cannot be rewound; they do not keep the others back.
    """

    request: RequestToken
    consumer_id: str
    new_offsets: Mapping[TopicPartition, int]
    refused: Sequence[RewoundPartition] = ()


@dataclass(slots=True)
class ManagedGroup:
    """A group under the client rewrite's protocol.

    EMPTY: no members. PREPARING_REBALANCE: all members have to register. STABLE: all own their partitions;
    while `rewinds` is not empty, the owners of the partitions concerned have to register.
    """

    group_id: str
    session_timeout_ms: int
    ephemeral: bool
    assignment_strategy: str
    partitions: dict[str, int]
    """Each topic, and how many of its partitions were there at first or were assigned: others are new."""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    single_reader: bool = False
    """Whether the leaders of its partitions let nobody of it read but the member that has them."""
    members: dict[str, ManagedMember] = field(default_factory=dict)
    rewinds: list[PendingRewind] = field(default_factory=list)
    durable: ManagedGroupValue | None = None

    type = GroupType.MANAGED

    @classmethod
    def from_value(cls, group_id: str, value: ManagedGroupValue) -> ManagedGroup:
        """The group as a new coordinator finds it in the log."""
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
        """What the log has to hold of the group as it is now.

        A member that has not been given partitions yet is not part of it: it would come back owning nothing,
        under a generation that never was.
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
        """The members that own any of `partitions`, in the order in which they came."""
        wanted = frozenset(partitions)
        return [member for member in self.members.values() if not wanted.isdisjoint(member.owned)]

    def is_rewinding(self, consumer_id: str) -> bool:
        """Whether this member waits for the answer to a rewind of its own."""
        return any(rewind.consumer_id == consumer_id for rewind in self.rewinds)

    def transition_to(self, *states: GroupState) -> None:
        """Pass through `states`; the server assigns, so it completes a rebalance in one step."""
        for state in states:
            assert self.state in CAME_FROM[state], f"{self.group_id}: {self.state.value} to {state.value}"
            self.state = state

    def check_generation(self, consumer_id: str, generation: int) -> ErrorCode:
        """Whether `generation` is one that this member may act under.

        That is from the one in which it was given its partitions up to the group's.
        """
        member = self.members.get(consumer_id)
        if member is None or member.generation < 0:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.generation <= generation <= self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def check_commit(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this generation of this member may commit now; members do so before they register."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        return self.check_generation(member_id, generation)

    def may_commit(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a partition is a member's to commit: of those that are shared out only its own are. Who
        is no member may commit while there are none."""
        member = self.members.get(member_id)
        is_shared_out = partition.partition < self.partitions.get(partition.topic, 0)
        return member is None or not is_shared_out or partition in member.owned
