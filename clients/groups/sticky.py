"""Sticky assignment: as even as possible, with as few moves as possible (KIP-54, KIP-429).

Members report which partitions they own, and since which generation; if two report the same partition, the
later generation counts. Owned partitions stay where they are; free ones go to the members with the fewest.
Then partitions move from members with many to members with few while that makes the assignment more even.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from holdfast_log.clients.groups.assignors import (
    MemberPartitions,
    Members,
    MemberSubscription,
    all_partitions,
    in_order,
)
from holdfast_log.protocol.consumer_protocol import StickyUserData, flat, grouped
from holdfast_log.protocol.schema import MalformedMessage, decode, encode
from holdfast_log.protocol.topic_partition import TopicPartition

_GENERATION = struct.Struct(">i")
_VERSION_BYTES = 2
OwnedPartitions = tuple[tuple[TopicPartition, ...], int]
"""The partitions that a member reports as owned, and the generation of that (-1: not reported)."""


class StickyAssignor:
    """Kafka's `sticky`: eager, so a member reports its previous partitions in the user data."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        if not owned:
            return b""
        report = StickyUserData(previous_assignment=grouped(sorted(owned)), generation=generation)
        return encode(report, 1)

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        claims = {name: sticky_claim(member) for name, member in members.items()}
        return balanced(partitions, members, claims)


class CooperativeStickyAssignor:
    """Kafka's `cooperative-sticky`: members keep reading; a partition moves in two rebalances."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return _GENERATION.pack(generation)

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        claims = {name: cooperative_claim(member) for name, member in members.items()}
        shares = balanced(partitions, members, claims)
        owners: dict[TopicPartition, list[str]] = {}
        for name, (owned, _) in claims.items():
            for partition in owned:
                owners.setdefault(partition, []).append(name)
        return {
            name: [partition for partition in share if name in owners.get(partition, (name,))]
            for name, share in shares.items()
        }


def sticky_claim(member: MemberSubscription) -> OwnedPartitions:
    """The owned partitions in user data of the sticky assignor; none if it cannot be decoded."""
    if not member.user_data:
        return member.owned, member.generation
    plain = memoryview(member.user_data)
    # Version 1, version 0, and version 1 after a version number, as kafka-python 3 writes it.
    for version, data in ((1, plain), (0, plain), (1, plain[_VERSION_BYTES:])):
        try:
            report = decode(StickyUserData, version, data)
        except MalformedMessage:
            continue
        return tuple(TopicPartition(*each) for each in flat(report.previous_assignment)), report.generation
    return (), -1


def cooperative_claim(member: MemberSubscription) -> OwnedPartitions:
    """The owned partitions and generation of the subscription; older versions have that in the user data."""
    generation = member.generation
    if generation < 0 and len(member.user_data) == _GENERATION.size:
        (generation,) = _GENERATION.unpack(member.user_data)
    return member.owned, generation


def balanced(
    partitions: Mapping[str, int], members: Members, claims: Mapping[str, OwnedPartitions]
) -> MemberPartitions:
    """The assignment: as few moves as an even result allows."""
    order = in_order(members)
    wanted_by = {
        topic: [member for member in order if topic in members[member].topics] for topic in partitions
    }
    shares = _kept(partitions, members, claims, order)
    taken = {partition for share in shares.values() for partition in share}
    free = [each for each in all_partitions(partitions) if each not in taken and wanted_by[each.topic]]
    # Partitions that few members want come first: members of many topics can get others.
    for partition in sorted(free, key=lambda each: (len(wanted_by[each.topic]), each)):
        poorest = min(wanted_by[partition.topic], key=lambda member: len(shares[member]))
        shares[poorest].append(partition)
    _even_out(shares, wanted_by, order)
    return {member: sorted(shares[member]) for member in members}


def _kept(
    partitions: Mapping[str, int],
    members: Members,
    claims: Mapping[str, OwnedPartitions],
    order: Sequence[str],
) -> MemberPartitions:
    """The partitions that each member keeps. Two that report the same one in one generation both lose it."""
    owner: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in order:
        owned, generation = claims[member]
        for partition in owned:
            is_valid = 0 <= partition.partition < partitions.get(partition.topic, 0)
            if not is_valid or partition.topic not in members[member].topics:
                continue
            known_generation, _ = owner.get(partition, (-2, None))
            if generation > known_generation:
                owner[partition] = (generation, member)
            elif generation == known_generation:
                owner[partition] = (generation, None)
    shares: MemberPartitions = {member: [] for member in order}
    for partition in sorted(owner):
        _, rightful = owner[partition]
        if rightful is not None:
            shares[rightful].append(partition)
    return shares


def _even_out(shares: MemberPartitions, wanted_by: Mapping[str, Sequence[str]], order: Sequence[str]) -> None:
    """Move partitions to members that have at least two less, until there are no such members.

    One at a time, each from the member with most that can give one; giving several at once would
    move some of them twice.
    """
    while any(_give(rich, shares, wanted_by) for rich in sorted(order, key=lambda name: -len(shares[name]))):
        pass


def _give(rich: str, shares: MemberPartitions, wanted_by: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition from `rich` to the member with the fewest that wants its topic and has two less."""
    topics = dict.fromkeys(partition.topic for partition in reversed(shares[rich]))
    receivers = {topic: min(wanted_by[topic], key=lambda member: len(shares[member])) for topic in topics}
    if not receivers:
        return False
    topic = min(receivers, key=lambda topic: len(shares[receivers[topic]]))
    poor = receivers[topic]
    if len(shares[poor]) + 2 > len(shares[rich]):
        return False
    partition = next(each for each in reversed(shares[rich]) if each.topic == topic)
    shares[rich].remove(partition)
    shares[poor].append(partition)
    return True
