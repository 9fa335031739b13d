"""Validation of requests to create topics and add partitions: names, counts, replicas. Pure.

Each check raises `protocol.errors.BrokerError` with a message that explains the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.coordinator.controller.events import DEFAULT, MorePartitions, TopicCreation
from holdfast_log.coordinator.controller.partition_limits import PartitionBudget
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.placement import (
    ReplicaAssignment,
    Site,
    machine_count,
    place,
    sharing_a_machine,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})
"""Topics of the brokers themselves: clients may read them, only brokers write them."""
NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The counts for requests that name none: num.partitions, default.replication.factor."""

    partition_count: int = 1
    replication_factor: int = 1


ValidateConfigs = Callable[[Mapping[str, str | None]], None]
"""Raises ValueError with an explanation if topic configs are invalid."""


def is_legal_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return 0 < len(name) <= NAME_LENGTH_MAX and name not in (".", "..") and bool(_LEGAL_NAME.fullmatch(name))


def check_name(name: str, existing: Collection[str], colliding: str | None) -> None:
    """Check the name of a new topic: legal, unused, and distinct from others in names of metrics.

    `colliding` is an existing topic that has the same name in metrics, or None.
    """
    if not is_legal_name(name):
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name[:NAME_LENGTH_MAX]}' is not of 1 to {NAME_LENGTH_MAX} letters, "
            "digits, '.', '_' and '-', or is '.' or '..'",
        )
    if name in existing:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if colliding is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {colliding}. They differ only in '.' and '_', "
            "which names of metrics cannot tell apart",
        )


def check_deletable(name: str) -> None:
    """Check that a topic may be deleted."""
    if name in INTERNAL_TOPICS:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name} is an internal topic and cannot be deleted: all groups would lose their offsets",
        )


def assign_new_topic(
    topic: TopicCreation,
    defaults: TopicDefaults,
    sites: Mapping[int, Site],
    budget: PartitionBudget,
    start: int,
) -> dict[int, ReplicaAssignment]:
    """The replicas of a new topic's partitions: as requested, else spread over the brokers. They are taken
    from `budget` before they are placed."""
    if topic.assignments:
        if topic.partition_count != DEFAULT or topic.replication_factor != DEFAULT:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. With the replicas "
                "of each partition, both counts are -1",
            )
        budget.check(len(topic.assignments), len(topic.assignments))
        assigned = _checked_assignments(topic.assignments, sites, first=0)
        budget.take(len(assigned), sum(map(len, topic.assignments.values())))
        return assigned
    count = defaults.partition_count if topic.partition_count == DEFAULT else topic.partition_count
    if count < 1:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be larger than 0. It is {count}"
        )
    budget.check(count, count)
    replicas = (
        defaults.replication_factor if topic.replication_factor == DEFAULT else topic.replication_factor
    )
    _check_replication_factor(replicas, sites)
    budget.take(count, count * replicas)
    return dict(enumerate(place(sites, count, replicas, start=start)))


def assign_more_partitions(
    growth: MorePartitions,
    existing: Mapping[int, ReplicaAssignment],
    sites: Mapping[int, Site],
    budget: PartitionBudget,
) -> dict[int, ReplicaAssignment]:
    """The replicas of a topic's new partitions, as many for each as existing partitions have. They are taken
    from `budget` before they are placed."""
    have = len(existing)
    if growth.name in INTERNAL_TOPICS:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{growth.name} must keep its {have} partitions: their number decides which one stores a group",
        )
    if growth.count <= have:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic already has {have} partitions."
            if growth.count == have
            else f"Topic currently has {have} partitions, which is higher than the requested {growth.count}.",
        )
    replicas = len(existing[0].target) if 0 in existing else 1
    new = growth.count - have
    budget.check(new, growth.count)
    if growth.assignments is None:
        _check_replication_factor(replicas, sites)
        budget.take(new, new * replicas)
        start = sorted(sites).index(existing[0].target[0]) if existing[0].target[0] in sites else 0
        return {
            have + index: assignment
            for index, assignment in enumerate(place(sites, new, replicas, start=start, first_partition=have))
        }
    if len(growth.assignments) != new:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {new} but {len(growth.assignments)} assignments "
            "provided.",
        )
    assigned = _checked_assignments(dict(enumerate(growth.assignments, start=have)), sites, first=have)
    if any(len(assignment.replicas) != replicas for assignment in assigned.values()):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"each partition of topic {growth.name!r} has {replicas} replicas; new ones need as many",
        )
    budget.take(new, new * replicas)
    return assigned


def _check_replication_factor(replicas: int, sites: Mapping[int, Site]) -> None:
    if replicas < 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0. It is {replicas}",
        )
    brokers, machines = len(sites), machine_count(sites)
    if replicas > brokers:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replicas} larger than available brokers: {brokers}. "
            "Start more brokers or ask for fewer replicas",
        )
    if replicas > machines:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replicas} larger than available machines: {machines}. The {brokers} "
            "brokers are processes of them (broker.processes); replicas of a partition never share a machine",
        )


def _checked_assignments(
    assignments: Mapping[int, Sequence[int]], sites: Mapping[int, Site], *, first: int
) -> dict[int, ReplicaAssignment]:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    sizes = {len(replicas) for replicas in assignments.values()}
    if len(sizes) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas"
        )
    for number, replicas in assignments.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {number} needs at least one replica, each on a different broker",
            )
        missing = [replica for replica in replicas if replica not in sites]
        if missing:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unknown broker(s) in replica assignment: {missing[0]}. Partition {number} names it, and it "
                "is not available",
            )
        check_machines(number, replicas, sites)
    return {number: ReplicaAssignment(tuple(assignments[number])) for number in sorted(assignments)}


def check_machines(partition: int, replicas: Sequence[int], sites: Mapping[int, Site]) -> None:
    """Raise BrokerError if two of a partition's replicas would be on processes of one machine."""
    sharing = sharing_a_machine(replicas, sites)
    if sharing is not None:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Brokers {sharing[0]} and {sharing[1]} are processes of one machine: replicas of a partition "
            f"never share one. Partition {partition} needs replicas on different machines",
        )
