"""Validation of new topics and partitions, and its error messages."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.controller.events import MorePartitions, TopicCreation
from holdfast_log.coordinator.controller.partition_limits import PartitionBudget, PartitionLimits
from holdfast_log.coordinator.controller.topic_rules import (
    TopicDefaults,
    assign_more_partitions,
    assign_new_topic,
    check_name,
)
from holdfast_log.coordinator.placement import ReplicaAssignment, Site
from holdfast_log.protocol.errors import BrokerError, ErrorCode

THREE = dict.fromkeys([1, 2, 3], Site())


def budget(**limits: int) -> PartitionBudget:
    """What a request may create in a cluster of three brokers with 10 replicas."""
    return PartitionBudget(PartitionLimits(**limits), 10, 3)


DEFAULTS = TopicDefaults(partition_count=4, replication_factor=2)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("flights.daily", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("flights_daily", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_invalid_topic_names_are_refused(name: str, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        check_name(name, ["flights.daily"], "flights.daily" if name == "flights_daily" else None)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a/b", "Topic name is invalid: 'a/b' "),
        ("flights", "Topic 'flights' already exists."),
        ("flights_daily", "Topic 'flights_daily' collides with existing topics: flights.daily"),
    ],
)
def test_refusals_begin_with_the_words_that_programs_written_for_kafka_look_for(
    name: str, message: str
) -> None:
    with pytest.raises(BrokerError) as refused:
        check_name(name, ["flights"], "flights.daily")
    assert str(refused.value.message).startswith(message)


def test_existing_topic_names_are_refused() -> None:
    for name in ("x" * 249, "__consumer_offsets", "A-b.9", "..."):
        check_name(name, ["flights.daily"], None)


def test_missing_counts_use_the_defaults() -> None:
    assigned = assign_new_topic(TopicCreation("t"), DEFAULTS, THREE, budget(), start=1)
    assert [assignment.replicas for assignment in assigned.values()] == [(2, 3), (3, 1), (1, 2), (2, 1)]


def test_requested_replicas_are_used() -> None:
    assigned = assign_new_topic(
        TopicCreation("t", assignments={1: [3, 1], 0: [2, 3]}), DEFAULTS, THREE, budget(), start=0
    )
    assert assigned == {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (
            TopicCreation("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "must be larger than 0",
        ),
        (TopicCreation("t", 10**6, 1), ErrorCode.INVALID_PARTITIONS, "1 to 10000"),
        (TopicCreation("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0"),
        (
            TopicCreation("t", 1, 4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 4 larger than available brokers: 3.",
        ),
        (
            TopicCreation("t", 1, -1, {0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or",
        ),
        (
            TopicCreation("t", assignments={0: [1], 2: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "0-based",
        ),
        (
            TopicCreation("t", assignments={0: [1], 1: [1, 2]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "same number",
        ),
        (
            TopicCreation("t", assignments={0: [1, 1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "on a different broker",
        ),
        (
            TopicCreation("t", assignments={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "at least one replica",
        ),
        (TopicCreation("t", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker"),
    ],
)
def test_invalid_topics_are_refused(topic: TopicCreation, code: ErrorCode, says: str) -> None:
    with pytest.raises(BrokerError, match=says) as refused:
        assign_new_topic(topic, DEFAULTS, THREE, budget(), start=0)
    assert refused.value.code == code


EXISTING = {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


def test_added_partitions_have_as_many_replicas_as_existing_ones() -> None:
    more = assign_more_partitions(MorePartitions("t", 4), EXISTING, THREE, budget())
    assert list(more) == [2, 3]
    assert all(len(assignment.replicas) == 2 for assignment in more.values())
    given = assign_more_partitions(MorePartitions("t", 3, [[1, 2]]), EXISTING, THREE, budget())
    assert given == {2: ReplicaAssignment((1, 2))}


@pytest.mark.parametrize(
    ("growth", "code", "says"),
    [
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (
            MorePartitions("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "higher than the requested 1.",
        ),
        (MorePartitions("t", 10**6), ErrorCode.INVALID_PARTITIONS, "1 to 10000 partitions, not 1000000"),
        (
            MorePartitions("t", 4, [[1, 2]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "by 2 but 1",
        ),
        (MorePartitions("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "has 2 replicas"),
    ],
)
def test_invalid_partition_increases_are_refused(growth: MorePartitions, code: ErrorCode, says: str) -> None:
    with pytest.raises(BrokerError, match=says) as refused:
        assign_more_partitions(growth, EXISTING, THREE, budget())
    assert refused.value.code == code


def test_replicas_on_processes_of_one_machine_are_refused() -> None:
    sites = {1: Site(machine="m"), 1001: Site(machine="m"), 2: Site()}
    with pytest.raises(BrokerError, match="3 larger than available machines: 2") as refused:
        assign_new_topic(TopicCreation("t", 1, 3), DEFAULTS, sites, budget(), start=0)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(BrokerError, match="Brokers 1 and 1001 are processes of one machine") as refused:
        assign_new_topic(
            TopicCreation("t", assignments={0: [2, 1], 1: [1, 1001]}), DEFAULTS, sites, budget(), start=0
        )
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
