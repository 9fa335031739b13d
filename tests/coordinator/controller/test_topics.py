"""Many topics and partitions: distinct metric names, pauses for other work, leaders spread over brokers, and
limits that are judged before anything is placed or written."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.coordinator.controller import topic_rules
from holdfast_log.coordinator.controller.effects import CreateTopic, Pause, WriteAssignments
from holdfast_log.coordinator.controller.events import (
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    MorePartitions,
    TopicCreation,
)
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.placement import place
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, answers

WITHOUT_LIMITS = PartitionLimits(10**6, 10**6, 10**6)


def errors(effects: list[Any]) -> dict[str, ErrorCode]:
    return {name: result.error for name, result in answers(effects).items()}


def test_names_that_collide_in_metrics_are_refused_while_the_first_topic_exists() -> None:
    machine = Machine(1)
    machine.create("flights.daily", (1,))
    (refused,) = answers(machine.create("flights_daily", (1,))).values()
    assert refused.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ": flights.daily." in refused.message
    (taken,) = answers(machine.create("flights.daily", (1,))).values()
    assert taken.error == ErrorCode.TOPIC_ALREADY_EXISTS
    machine.answer_all(machine.delete("flights.daily"))
    (made,) = answers(machine.create("flights_daily", (1,))).values()
    assert made.error == ErrorCode.NONE


@pytest.mark.parametrize("names", [[f"t{n}" for n in range(350)], [f"t{n} is no name" for n in range(350)]])
def test_a_request_for_many_topics_pauses_for_other_work(names: list[str]) -> None:
    machine = Machine(1)
    effects = machine.handle(CreateTopics(1, [TopicCreation(name) for name in names], validate_only=True))
    assert effects.count(Pause()) == 17
    assert list(answers(effects)) == names


def test_small_topics_of_one_request_start_on_successive_brokers() -> None:
    machine = Machine(1, 2, 3)
    machine.handle(CreateTopics(1, [TopicCreation(f"t{number}", 1, 1) for number in range(6)]))
    assert sorted(machine.state(f"t{number}").leader for number in range(6)) == [1, 1, 2, 2, 3, 3]


def test_creating_a_topic_that_is_still_being_deleted_is_refused_and_names_the_missing_brokers() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (1, 2), (1, 3))
    machine.lose(2, 3)
    machine.delete("t")
    refused = answers(machine.create("t", (1,)))["t"]
    assert refused.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused.message is not None and "is marked for deletion. Its replicas on broker" in refused.message
    assert "broker(s) 2, 3" in refused.message
    # After the brokers return, the deletion still waits until each of them has removed its replicas.
    effects = machine.start(2, 3)
    refused = answers(machine.create("t", (1,)))["t"]
    assert refused.message is not None and "broker(s) 1, 2, 3" in refused.message
    machine.answer_all(effects)
    assert answers(machine.create("t", (1,)))["t"].error == ErrorCode.NONE


def test_a_topic_that_is_created_again_begins_above_the_leader_epochs_of_the_deleted_one() -> None:
    """A client that remembers the end of the old log by its leader epoch must not find it in the new one."""
    machine = Machine(1, 2)
    machine.create("t", (1, 2), (2, 1))
    machine.lose(1)
    machine.start(1)
    last_epoch = machine.state("t", 0).leader_epoch
    assert last_epoch > 0
    machine.answer_all(machine.delete("t"))

    successor = Machine(1, 2, store=machine.store, epoch=2, brokers=machine.brokers)
    successor.create("t", (1, 2))

    assert successor.state("t").leader_epoch > last_epoch


def test_what_a_request_may_not_create_is_refused_before_it_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed: list[int] = []

    def counting(brokers: Any, count: int, *args: Any, **more: Any) -> Any:
        placed.append(count)
        return place(brokers, count, *args, **more)

    monkeypatch.setattr(topic_rules, "place", counting)
    machine = Machine(1, 2, 3)
    topics = [TopicCreation(f"t{number}", 10_000, 1) for number in range(200)]
    effects = machine.handle(CreateTopics(1, topics, validate_only=True))
    assert set(errors(effects).values()) == {ErrorCode.POLICY_VIOLATION}
    assert placed == []
    topics = [TopicCreation(f"t{number}", 2_000, 1) for number in range(4)]
    assert [*errors(machine.handle(CreateTopics(1, topics, validate_only=True))).values()] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert placed == [2_000, 2_000]
    (refused,) = answers(machine.handle(CreateTopics(1, [TopicCreation("t", 100_000, 1)]))).values()
    assert refused.error == ErrorCode.INVALID_PARTITIONS
    assert "a topic has 1 to 10000 partitions, not 100000 (topic.partitions.max)" in refused.message


def test_brokers_that_have_as_many_replicas_as_they_may_get_no_more() -> None:
    machine = Machine(1, 2, limits=PartitionLimits(per_broker=10))
    machine.handle(CreateTopics(1, [TopicCreation("t", 8, 2)]))
    topics = [TopicCreation("u", 3, 2), TopicCreation("v", 1, 2), TopicCreation("w", 2, 1)]
    assert errors(machine.handle(CreateTopics(1, topics))) == {
        "u": ErrorCode.POLICY_VIOLATION,
        "v": ErrorCode.NONE,
        "w": ErrorCode.NONE,
    }
    assert errors(machine.create("x", (1,))) == {"x": ErrorCode.POLICY_VIOLATION}
    growing = CreatePartitions(1, [MorePartitions("w", 3)], validate_only=False)
    assert errors(machine.handle(growing)) == {"w": ErrorCode.POLICY_VIOLATION}
    machine.start(3)
    assert errors(machine.handle(growing)) == {"w": ErrorCode.NONE}


def test_a_topic_whose_znode_zookeeper_would_not_take_is_refused_and_nothing_is_written() -> None:
    machine = Machine(1, limits=WITHOUT_LIMITS)
    effects = machine.handle(CreateTopics(1, [TopicCreation("t", 100_000, 1), TopicCreation("u", 1, 1)]))
    assert errors(effects) == {"t": ErrorCode.POLICY_VIOLATION, "u": ErrorCode.NONE}
    assert [effect.name for effect in effects if isinstance(effect, CreateTopic)] == ["u"]
    config = {"leader.replication.throttled.replicas": "0:1," * 250_000}
    effects = machine.handle(CreateTopics(1, [TopicCreation("v", 1, 1, configs=config)]))
    assert errors(effects) == {"v": ErrorCode.POLICY_VIOLATION}

    effects = machine.handle(CreatePartitions(1, [MorePartitions("u", 100_000)], validate_only=False))
    assert errors(effects) == {"u": ErrorCode.POLICY_VIOLATION}
    assert not any(isinstance(effect, WriteAssignments) for effect in effects)
    assert len(machine.controller.state.topics["u"].partitions) == 1


def test_a_reassignment_that_would_make_a_znode_too_large_is_refused() -> None:
    machine = Machine(*range(10_001, 10_010), limits=WITHOUT_LIMITS)
    machine.handle(CreateTopics(1, [TopicCreation("t", 15_000, 1), TopicCreation("u", 1, 1)]))
    before = machine.controller.state.topics["t"].assignment()
    targets = {TopicPartition("t", number): tuple(range(10_001, 10_010)) for number in range(15_000)}
    effects = machine.handle(AlterReassignments(5, {**targets, TopicPartition("u", 0): (10_009,)}))
    results: dict[TopicPartition, BrokerError | None] = {}
    for result in answers(effects).values():
        results |= result
    assert {error.code if error else 0 for at, error in results.items() if at[0] == "t"} == {
        ErrorCode.POLICY_VIOLATION
    }
    assert results[TopicPartition("u", 0)] is None
    assert machine.controller.state.topics["t"].assignment() == before
