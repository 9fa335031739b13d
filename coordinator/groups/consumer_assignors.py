"""The assignors of consumer groups: `uniform` and `range` as in Kafka, and others by the same interface.

An assignor is a function: it gets what each member subscribes to, the number of partitions by topic, and what
each member had in the last target, and returns what each is to have. Each partition of a topic goes to
exactly one of its subscribers. It runs on the broker: keep it fast, and let it depend on nothing else.
"""

from __future__ import annotations

import heapq
import importlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from holdfast_log.coordinator.groups.assignors import MemberAssignments, assign_range, assign_sticky
from holdfast_log.protocol.topic_partition import TopicPartition

Subscriptions: TypeAlias = Mapping[str, Collection[str]]
ConsumerAssignor: TypeAlias = Callable[
    [Subscriptions, Mapping[str, int], Mapping[str, Sequence[TopicPartition]]], MemberAssignments
]
"""`assign(subscriptions, partitions, owned)`: topics by member, partitions by topic, partitions by member."""

UNIFORM = "uniform"
RANGE = "range"


def assign_uniformly(
    subscriptions: Subscriptions,
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Split all partitions evenly, and move as few as possible. Where members subscribe to different topics,
    each topic is split so, and members that have few partitions get more of the next."""
    shares: MemberAssignments = dict.fromkeys(subscriptions, ())
    for topics, members in _alike(subscriptions).items():
        counts = {topic: partitions[topic] for topic in topics if topic in partitions}
        if len(members) == len(subscriptions):
            return {**shares, **assign_sticky(members, counts, owned)}
    return _dealt_out(subscriptions, partitions, owned)


def assign_in_ranges(
    subscriptions: Subscriptions,
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Give each subscriber one consecutive range of each topic, so that equal partition numbers of topics
    with the same subscribers meet."""
    subscribers: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for topic, count in partitions.items():
        members = tuple(sorted(member for member, topics in subscriptions.items() if topic in topics))
        if members:
            subscribers[members][topic] = count
    shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for members, counts in subscribers.items():
        for member, share in assign_range(members, counts, {}).items():
            shares[member] += share
    return {member: tuple(sorted(share)) for member, share in shares.items()}


def _alike(subscriptions: Subscriptions) -> dict[frozenset[str], list[str]]:
    """The members that subscribe to the same topics."""
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for member, topics in subscriptions.items():
        found[frozenset(topics)].append(member)
    return found


def _dealt_out(
    subscriptions: Subscriptions,
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> MemberAssignments:
    """Members subscribe to different topics. Partitions stay with their owners up to a fair share of each
    topic; the others, of the topics with the fewest subscribers first, go to whom has least."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    owners = {each: member for member, had in owned.items() for each in had if member in shares}
    by_topic = {topic: sorted(m for m in shares if topic in subscriptions[m]) for topic in partitions}
    for topic in sorted(partitions, key=lambda topic: (len(by_topic[topic]), topic)):
        members = by_topic[topic]
        if not members:
            continue
        fair = -(-partitions[topic] // len(members))
        kept = dict.fromkeys(members, 0)
        loose: list[TopicPartition] = []
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition, "")
            if kept.get(owner, fair) < fair:
                kept[owner] += 1
                shares[owner].append(partition)
            else:
                loose.append(partition)
        poorest = [(len(shares[member]), member) for member in members]
        heapq.heapify(poorest)
        for partition in loose:
            count, member = poorest[0]
            heapq.heapreplace(poorest, (count + 1, member))
            shares[member].append(partition)
    return {member: tuple(sorted(share)) for member, share in shares.items()}


ASSIGNORS: Mapping[str, ConsumerAssignor] = {UNIFORM: assign_uniformly, RANGE: assign_in_ranges}


def load_assignors(names: Sequence[str]) -> dict[str, ConsumerAssignor]:
    """The assignors of `group.consumer.assignors`, by the names that members use: `uniform`, `range`, or
    `module:function`, whose name is the function's. Raises ValueError, which says what is wrong."""
    found: dict[str, ConsumerAssignor] = {}
    for name in names:
        if name in ASSIGNORS:
            found[name] = ASSIGNORS[name]
            continue
        module, colon, function = name.partition(":")
        if not colon:
            raise ValueError(f"{name!r}: expected uniform, range or module:function")
        try:
            assign = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{name!r} cannot be loaded: {error}") from None
        if not callable(assign):
            raise ValueError(f"{name!r} is not a function")
        found[function] = assign
    if not found:
        raise ValueError("expected at least one assignor")
    return found
