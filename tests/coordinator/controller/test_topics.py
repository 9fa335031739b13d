"""Many topics: distinct metric names, pauses for other work, leaders spread over brokers."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.controller.effects import Pause
from holdfast_log.coordinator.controller.events import CreateTopics, TopicCreation
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.controller.machine import Machine, answers


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
    assert effects.count(Pause()) == 3
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
