"""How the leader of a classic group shares out partitions: strategies, by Kafka's names.

An assignor is any object with the attributes of `Assignor`. Those of Kafka come with it; another is named in
`partition.assignment.strategy` as `module:attribute`, a class to be called without arguments. All members of
a group need one name in common, and what members write for it: stock clients and this one understand each
other's range, roundrobin, sticky and cooperative-sticky.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from clients.errors import ConfigError
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """One member as the leader sees it. `owned` and `generation` are what it says of itself; -1: nothing."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes = b""
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
"""Members by their ids."""
MemberPartitions: TypeAlias = dict[str, list[TopicPartition]]
"""What each member is to read."""


class Assignor(Protocol):
    """A strategy. `name` is what members agree on.

    With a cooperative one members keep reading what they own while they join; the leader must then give no
    partition to a member while another still owns it, but leave it out until that one has let go (KIP-429).
    """

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool: ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """What a member tells of itself beside its topics; empty for nothing."""
        ...

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        """Share out the partitions of topics, given by their numbers, among those who want each topic."""
        ...


class RangeAssignor:
    """Each topic in one consecutive piece a member, so that equal partitions of two topics meet at one."""

    name = "range"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return b""

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        shares = empty_shares(members)
        order = in_order(members)
        for topic in sorted(partitions):
            interested = [member for member in order if topic in members[member].topics]
            if not interested:
                continue
            each, extra = divmod(partitions[topic], len(interested))
            start = 0
            for place, member in enumerate(interested):
                end = start + each + (place < extra)
                shares[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return shares


class RoundRobinAssignor:
    """All partitions of all topics dealt out in turn to those who want them."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return b""

    def assign(self, partitions: Mapping[str, int], members: Members) -> MemberPartitions:
        shares = empty_shares(members)
        order = in_order(members)
        turn = 0
        for partition in all_partitions(partitions):
            for step in range(len(order)):
                member = order[(turn + step) % len(order)]
                if partition.topic in members[member].topics:
                    shares[member].append(partition)
                    turn = (turn + step + 1) % len(order)
                    break
        return shares


def empty_shares(members: Members) -> MemberPartitions:
    """Nothing yet, for each member."""
    return {member: [] for member in members}


def in_order(members: Members) -> list[str]:
    """Static members by their instance ids, then the others by their member ids.

    A static member that restarts under a new member id thereby keeps its place (KIP-345).
    """

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return sorted(members, key=place)


def all_partitions(partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of every topic, sorted."""
    return [TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])]


def load_assignors(names: Sequence[str]) -> tuple[Assignor, ...]:
    """The assignors of these names, in this order of preference.

    Kafka's class names are understood too. Raises ConfigError for what there is not, and where some are
    cooperative and none of the others agrees to that: members either keep their partitions or give them up.
    """
    from clients.groups.sticky import CooperativeStickyAssignor, StickyAssignor

    built_in: dict[str, type[Assignor]] = {
        kind.name: kind
        for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    by_class = {kind.__name__: kind for kind in built_in.values()}
    found: list[Assignor] = []
    for name in names:
        kind = built_in.get(name) or by_class.get(name.rpartition(".")[2])
        found.append(_imported(name, list(built_in)) if kind is None else kind())
    if not found:
        raise ConfigError("partition.assignment.strategy is empty: name at least one, such as range")
    return tuple(found)


def _imported(name: str, built_in: list[str]) -> Assignor:
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ImportError(name)
        assignor: Assignor = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"partition.assignment.strategy={name} is not known: expected {', '.join(built_in)}, "
            f"or module:class of an assignor that can be imported ({error})"
        ) from None
    return assignor
