"""Server-side assignment strategies for managed groups: pure functions.

Every member of a managed group reads every topic of the group. A strategy gets the member ids (in joining
order), the number of partitions by topic, and what each member owned before. It returns an entry for each
member, and assigns each partition to exactly one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from holdfast_log.protocol.assignment import AssignmentStrategy
from holdfast_log.protocol.topic_partition import TopicPartition

MemberAssignments: TypeAlias = dict[str, tuple[TopicPartition, ...]]
ServerAssignor: TypeAlias = Callable[
    [Sequence[str], Mapping[str, int], Mapping[str, Sequence[TopicPartition]]], MemberAssignments
]


def assign_range(
    members: Sequence[str],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Give each member one consecutive range of each topic, so that equal partition numbers meet."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted(partitions):
        each, extra = divmod(partitions[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + each + (place < extra)
            shares[member] += (TopicPartition(topic, number) for number in range(start, end))
            start = end
    return _frozen(shares)


def assign_round_robin(
    members: Sequence[str],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Deal out all partitions of all topics in turn: the most even split over many small topics."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for place, partition in enumerate(_all(partitions)):
        shares[members[place % len(members)]].append(partition)
    return _frozen(shares)


def assign_sticky(
    members: Sequence[str],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Split as evenly as round robin, and move as few partitions as possible.

    Members that own the most keep the larger shares. Partitions beyond a share, or without an owner, go to
    members below their share.
    """
    every = _all(partitions)
    ownerless = dict.fromkeys(every)
    kept: dict[str, list[TopicPartition]] = {}
    for member in members:
        kept[member] = [p for p in dict.fromkeys(owned.get(member, ())) if p in ownerless]
        for partition in kept[member]:
            del ownerless[partition]
    each, extra = divmod(len(every), len(members))
    richest_first = sorted(
        members, key=lambda member: -len(kept[member])
    )  # stable sort: of equals the older first
    share = {member: each + (place < extra) for place, member in enumerate(richest_first)}
    for member in members:
        for partition in kept[member][share[member] :]:
            ownerless[partition] = None
        del kept[member][share[member] :]
    to_give = iter(sorted(ownerless))
    for member in members:
        missing = share[member] - len(kept[member])
        kept[member] += itertools.islice(to_give, missing)
    return _frozen(kept)


ASSIGNORS: dict[str, ServerAssignor] = {
    AssignmentStrategy.RANGE: assign_range,
    AssignmentStrategy.ROUND_ROBIN: assign_round_robin,
    AssignmentStrategy.STICKY: assign_sticky,
}
"""The function of every strategy."""

DEFAULT_ASSIGNMENT_STRATEGY = AssignmentStrategy.RANGE


def _all(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])]


def _frozen(shares: Mapping[str, Iterable[TopicPartition]]) -> MemberAssignments:
    return {member: tuple(sorted(share)) for member, share in shares.items()}
