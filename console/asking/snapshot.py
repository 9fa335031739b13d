"""One look at the cluster, as all pages share it: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from holdfast_log.clients.admin import (
    ClusterDescription,
    GroupListing,
    LogDir,
    OwnershipDescription,
    TopicDescription,
)
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ViewPart(Generic[T]):
    """One part of a snapshot. After a failure `problem` says why, and `value` is the one of before, or None.

    `at_s` is when the value was asked for (wall clock, in s). `is_unsupported`: these brokers cannot answer.
    """

    value: T | None = None
    at_s: float = 0.0
    problem: str | None = None
    is_unsupported: bool = False


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What the list of topics shows of one. `size_bytes` counts every replica, `rate` is new messages per
    second; both are None while they are unknown."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    size_bytes: int | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker. One that is down but holds replicas has no address. Unknown sizes are None."""

    id: int
    address: str | None
    rack: str | None
    is_controller: bool
    leads: int
    holds: int
    size_bytes: int | None
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class MovingReplica:
    """A replica that moves to another log directory of its broker: where to, how large the copy is in bytes,
    and how many offsets it is behind."""

    broker: int
    directory: str
    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True)
class RateSample:
    """Messages written per second in the whole cluster, over the time up to `at_s`."""

    at_s: float
    per_second: float


@dataclass(frozen=True)
class ClusterSnapshot:
    """The cluster at `at_s` (wall clock, in s). `version` grows by one with each; asking took `took_s`."""

    version: int
    at_s: float
    took_s: float
    cluster: ViewPart[ClusterDescription] = ViewPart()
    topics: ViewPart[tuple[TopicDescription, ...]] = ViewPart()
    ends: ViewPart[Mapping[TopicPartition, int]] = ViewPart()
    log_dirs: ViewPart[tuple[LogDir, ...]] = ViewPart()
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers that did not say what is in their directories, with the reason."""
    groups: ViewPart[tuple[GroupListing, ...]] = ViewPart()
    owners: ViewPart[tuple[OwnershipDescription, ...]] = ViewPart()
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)
    samples: tuple[RateSample, ...] = ()

    @cached_property
    def topic_rows(self) -> tuple[TopicRow, ...]:
        """Every topic, sorted by name."""
        sizes = self._topic_sizes
        alive = self.alive
        rows = []
        for topic in self.topics.value or ():
            counts = [sum(each in alive for each in row.isr) for row in topic.partitions]
            rates = [self.rates.get(TopicPartition(topic.name, row.partition)) for row in topic.partitions]
            known = [rate for rate in rates if rate is not None]
            rows.append(
                TopicRow(
                    topic.name,
                    topic.is_internal,
                    len(topic.partitions),
                    max((len(row.replicas) for row in topic.partitions), default=0),
                    sum(
                        count < len(row.replicas) for count, row in zip(counts, topic.partitions, strict=True)
                    ),
                    sum(row.leader < 0 for row in topic.partitions),
                    None if sizes is None else sizes.get(topic.name, 0),
                    sum(known) if known else None,
                )
            )
        return tuple(sorted(rows, key=lambda row: row.name))

    @cached_property
    def broker_rows(self) -> tuple[BrokerRow, ...]:
        """Every broker that is alive or holds replicas, by id."""
        cluster = self.cluster.value
        if cluster is None:
            return ()
        leads, holds = self._counts
        nodes = {node.id: node for node in cluster.nodes}
        controller = None if cluster.controller is None else cluster.controller.id
        rows = []
        for number in sorted({*nodes, *holds}):
            node = nodes.get(number)
            dirs = [each for each in self.log_dirs.value or () if node is not None and each.node == number]
            size = sum(each.size_bytes for found in dirs for each in found.replicas) if dirs else None
            rows.append(
                BrokerRow(
                    number,
                    None if node is None else str(node),
                    None if node is None else node.rack,
                    number == controller,
                    leads.get(number, 0),
                    holds.get(number, 0),
                    size,
                    _known_sum([each.total_bytes for each in dirs]),
                    _known_sum([each.usable_bytes for each in dirs]),
                )
            )
        return tuple(rows)

    @cached_property
    def partition_sizes(self) -> Mapping[TopicPartition, int]:
        """The size of the largest replica of each partition, in bytes."""
        sizes: dict[TopicPartition, int] = {}
        for found in self.log_dirs.value or ():
            for each in found.replicas:
                if not each.is_future:
                    sizes[each.partition] = max(each.size_bytes, sizes.get(each.partition, 0))
        return sizes

    @cached_property
    def moving(self) -> Mapping[TopicPartition, tuple[MovingReplica, ...]]:
        """The replicas that move to another log directory of their broker, by partition."""
        found: dict[TopicPartition, tuple[MovingReplica, ...]] = {}
        for directory in self.log_dirs.value or ():
            for each in directory.replicas:
                if each.is_future:
                    row = MovingReplica(directory.node, directory.path, each.size_bytes, each.offset_lag)
                    found[each.partition] = (*found.get(each.partition, ()), row)
        return found

    @cached_property
    def alive(self) -> frozenset[int]:
        """The ids of the live brokers."""
        return frozenset(node.id for node in self.cluster.value.nodes) if self.cluster.value else frozenset()

    @cached_property
    def owners_by_partition(self) -> Mapping[TopicPartition, tuple[OwnershipDescription, ...]]:
        """The owned partitions, with what is known of each of their owners."""
        found: dict[TopicPartition, tuple[OwnershipDescription, ...]] = {}
        for each in self.owners.value or ():
            if isinstance(each.resource, TopicPartition) and each.owner_id is not None:
                found[each.resource] = (*found.get(each.resource, ()), each)
        return found

    @cached_property
    def topics_by_name(self) -> Mapping[str, TopicDescription]:
        """The topics by their names."""
        return {topic.name: topic for topic in self.topics.value or ()}

    @cached_property
    def _topic_sizes(self) -> Mapping[str, int] | None:
        if self.log_dirs.value is None:
            return None
        sizes: dict[str, int] = {}
        for found in self.log_dirs.value:
            for each in found.replicas:
                sizes[each.partition.topic] = sizes.get(each.partition.topic, 0) + each.size_bytes
        return sizes

    @cached_property
    def _counts(self) -> tuple[dict[int, int], dict[int, int]]:
        leads: dict[int, int] = {}
        holds: dict[int, int] = {}
        for topic in self.topics.value or ():
            for row in topic.partitions:
                leads[row.leader] = leads.get(row.leader, 0) + 1
                for replica in row.replicas:
                    holds[replica] = holds.get(replica, 0) + 1
        return leads, holds


def _known_sum(sizes: list[int]) -> int | None:
    """The sum, or None if one of them is unknown (-1) or there is none."""
    return sum(sizes) if sizes and min(sizes) >= 0 else None
