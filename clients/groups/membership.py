"""The interface of a group membership, common to all protocols.

A membership asks its consumer to stop reading partitions (`RevokePartitions`), which it waits for, and to
read others (`AssignPartitions`). It changes no position itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.protocol.topic_partition import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """The identity under which a consumer commits; generation -1 and no member id outside the group. With
    group.protocol=consumer the generation is the member's epoch, and `membership` counts how often this
    consumer has joined.

    For a consumer that owns its partitions, `owner_group` is its group of owners, and `tokens` has the token
    of each partition's grant.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    owner_group: str | None = None
    tokens: tuple[tuple[TopicPartition, int], ...] = ()
    membership: int = 0


@dataclass(slots=True)
class OwnerTokens:
    """What a consumer that owns its partitions (own API) sends with commits, so that they are refused once it
    has lost a partition: its group of owners, and the incarnation of each partition's grant."""

    group: str
    incarnations: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RevokePartitions:
    """Stop reading `partitions`; call `revoked` when that is done.

    With `is_lost` they may have other owners already, and offsets can no longer be committed for them.
    """

    partitions: tuple[TopicPartition, ...]
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Read `partitions` too, from `offsets`; None stands for the committed offsets, -1 for no offset.

    With `must_attach`, this member must attach itself at the leaders before it reads.
    """

    partitions: tuple[TopicPartition, ...]
    offsets: Mapping[TopicPartition, int] | None = None
    must_attach: bool = False


MembershipEvent: TypeAlias = RevokePartitions | AssignPartitions


class GroupMembership(Protocol):
    """One consumer's membership in its group. Times are the caller's clock, in ms."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that were assigned and are not revoked yet."""
        ...

    @property
    def identity(self) -> GroupIdentity:
        """The identity under which to commit now."""
        ...

    def continued(self, identity: GroupIdentity) -> GroupIdentity | None:
        """The identity under which a commit may go on that has begun under another; None if it may not,
        because other members may have got its partitions meanwhile."""
        ...

    @property
    def is_joined(self) -> bool:
        """Whether partitions are assigned, and no rebalance is in progress."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Set the subscription. An empty one leaves the group at the next turn."""
        ...

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        ...

    def beats(self, now_ms: int) -> list[Call]:
        """Those requests to send now that begin no rebalance: heartbeats, and LeaveGroup after `give_up`."""
        ...

    def next_beat_ms(self) -> int | None:
        """When the next heartbeat is due; None if none is needed or one is in flight."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in flight."""
        ...

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of this membership's calls."""
        ...

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` may have something new; None if only a reply can change that."""
        ...

    def take_event(self) -> MembershipEvent | None:
        """The next thing for the consumer to do.

        Repeats a `RevokePartitions` until `revoked` is called.
        """
        ...

    def revoked(self) -> None:
        """The consumer has revoked the partitions of the last `RevokePartitions`."""
        ...

    def is_certain(self, now_ms: int) -> bool:
        """Whether the session cannot have expired unnoticed, so that records may be returned."""
        ...

    def raise_problem(self) -> None:
        """Raise an error that the application has not seen yet."""
        ...

    def give_up(self, now_ms: int) -> None:
        """End the membership because the application polled too late; the owned partitions are lost."""
        ...

    def leave_call(self) -> Call | None:
        """The LeaveGroup request; None if there is no membership to end."""
        ...
