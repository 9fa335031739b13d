"""Assignors, with which a classic group's leader assigns partitions: the interface, range and roundrobin.

The members of a group need one assignor in common, and the same user data for it: stock clients and this one
understand each other's range, roundrobin, sticky and cooperative-sticky.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription, with the partitions that it reports as `owned`; generation -1 means none."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes = b""
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
"""Subscriptions by member id."""
MemberPartitions: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions assigned to each member, by member id."""


class Assignor(Protocol):
    """An assignment strategy. `name` is what the members of a group agree on.

    With a cooperative assignor members keep reading what they own while they join. The leader must then
    leave out a partition that changes hands until its owner has revoked it (KIP-429).
    """

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool: ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """The user data of a member's subscription; empty for none."""
        ...

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        """Assign the partitions of topics, given as counts, to the members subscribed to each topic."""
        ...


class RangeAssignor:
    """Gives each member a range of every topic, so that equal partitions of two topics have one reader."""

    name = "range"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return b""

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        assigned = no_partitions(members)
        order = in_order(members)
        for topic in sorted(partitions):
            interested = [member for member in order if topic in members[member].topics]
            if not interested:
                continue
            each, extra = divmod(partitions[topic], len(interested))
            start = 0
            for place, member in enumerate(interested):
                end = start + each + (place < extra)
                assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assigned


class RoundRobinAssignor:
    """Deals all partitions of all topics out in turn to the members subscribed to them."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return b""

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        assigned = no_partitions(members)
        order = in_order(members)
        turn = 0
        for partition in all_partitions(partitions):
            for step in range(len(order)):
                member = order[(turn + step) % len(order)]
                if partition.topic in members[member].topics:
                    assigned[member].append(partition)
                    turn = (turn + step + 1) % len(order)
                    break
        return assigned


def no_partitions(members: Members) -> MemberPartitions:
    """An empty assignment for each member."""
    return {member: [] for member in members}


def in_order(members: Members) -> list[str]:
    """Static members by instance id, then the others by member id.

    So a static member that restarts under a new member id keeps its place (KIP-345).
    """

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return sorted(members, key=place)


def all_partitions(partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of every topic, sorted."""
    return [TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])]
