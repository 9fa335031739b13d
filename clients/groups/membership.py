"""What a membership is to its consumer, whichever protocol it speaks.

A membership asks for two things: that partitions be let go (`RevokePartitions`), which it waits for, and
that others be taken up (`AssignPartitions`). It never touches a position itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from clients.connection.link import Call, Reply
from protocol.topic_partition import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """As whom a consumer commits. Generation -1 and no member id: not as a member of the group."""

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class RevokePartitions:
    """Stop reading `partitions`; call `revoked` when that is done.

    `is_lost`: they are somebody else's already, so that nothing can be committed for them any more.
    """

    partitions: tuple[TopicPartition, ...]
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Read `partitions` too: from `offsets` on, where they have one; None asks for the committed ones.

    -1 says that there is none. `must_attach`: their leaders have to be told first who reads.
    """

    partitions: tuple[TopicPartition, ...]
    offsets: Mapping[TopicPartition, int] | None = None
    must_attach: bool = False


MembershipEvent: TypeAlias = RevokePartitions | AssignPartitions


class GroupMembership(Protocol):
    """One consumer's place in its group. Times are the caller's clock, in ms."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What the coordinator has given, and has not been let go yet."""
        ...

    @property
    def identity(self) -> GroupIdentity:
        """As whom to commit now."""
        ...

    @property
    def is_joined(self) -> bool:
        """Whether partitions are assigned, and no rebalance is under way."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Take part for these topics from now on; none leaves the group at the next turn."""
        ...

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        ...

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was one to this membership's calls."""
        ...

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` may have something new to say; None where nothing but a reply changes anything."""
        ...

    def take_event(self) -> MembershipEvent | None:
        """The next thing to do about partitions.

        After a `RevokePartitions` nothing comes until `revoked` was called.
        """
        ...

    def revoked(self) -> None:
        """What the last `RevokePartitions` asked for is done."""
        ...

    def is_certain(self, now_ms: int) -> bool:
        """Whether the session cannot have ended unnoticed: what is read may be handed out."""
        ...

    def raise_problem(self) -> None:
        """Raise what the application must be told, if there is something."""
        ...

    def give_up(self, now_ms: int) -> None:
        """The application was away for too long: its partitions count as lost, and it comes back anew."""
        ...

    def leave_call(self) -> Call | None:
        """The request that takes leave of the group; None where there is nothing to leave."""
        ...
