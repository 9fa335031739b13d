"""Assignment strategies of the server: who owns which partition. Pure functions.

Every member of a managed group reads every topic of the group, so a strategy is given the members (in the
order in which they came), the number of partitions of each topic, and what each member owned before. It
gives every partition to exactly one member, and every member an entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from protocol.topic_partition import TopicPartition

MemberAssignments: TypeAlias = dict[str, tuple[TopicPartition, ...]]
ServerAssignor: TypeAlias = Callable[
    [Sequence[str], Mapping[str, int], Mapping[str, Sequence[TopicPartition]]], MemberAssignments
]


def assign_range(
    members: Sequence[str],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Each topic in one consecutive piece a member, so that equal partitions of two topics meet at one."""
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
    """All partitions of all topics dealt out in turn: as even as can be over many small topics."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for place, partition in enumerate(_all(partitions)):
        shares[members[place % len(members)]].append(partition)
    return _frozen(shares)


def assign_sticky(
    members: Sequence[str],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """As even as round robin, and no partition moves that need not.

    Those who own most keep the larger shares. What is over a share, or has lost its owner, goes to whoever is
    short.
    """
    every = _all(partitions)
    ownerless = dict.fromkeys(every)
    kept: dict[str, list[TopicPartition]] = {}
    for member in members:
        kept[member] = [p for p in dict.fromkeys(owned.get(member, ())) if p in ownerless]
        for partition in kept[member]:
            del ownerless[partition]
    each, extra = divmod(len(every), len(members))
    richest_first = sorted(members, key=lambda member: -len(kept[member]))  # stable: the older of two equals
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
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
}
"""The strategies by the name that CreateGroup gives; add one by adding a row."""

DEFAULT_ASSIGNMENT_STRATEGY = "range"


def _all(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])]


def _frozen(shares: Mapping[str, Iterable[TopicPartition]]) -> MemberAssignments:
    return {member: tuple(sorted(share)) for member, share in shares.items()}
