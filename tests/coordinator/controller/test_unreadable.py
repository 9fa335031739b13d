"""Topics with znodes that the controller cannot read: it changes nothing about them until they are
repaired."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from holdfast_log.coordinator.controller.effects import RecordBrokers, RemoveTopic, ZnodeRequest
from holdfast_log.coordinator.controller.events import Elected, TopicReadAgain
from holdfast_log.coordinator.controller.machine import Controller
from holdfast_log.coordinator.controller.requests import FULL, INCREMENTAL
from holdfast_log.coordinator.controller.state import Topic
from holdfast_log.coordinator.controller.unreadable import ReadingReports
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, answers, led, sent, sent_to, writes
from tests.coordinator.members import policy

AT = TopicPartition("t", 0)


class NextTerm(Machine):
    """The next controller of a cluster, which cannot read the topic `t`."""

    def __init__(self, before: Machine) -> None:
        self.store = before.store
        self.brokers = before.brokers
        self.effects = []
        self.controller = Controller(1, 2, policy())
        snapshot = self.store.snapshot(self.brokers)
        topics = dict(snapshot.topics)
        self.good: Topic = topics.pop("t")
        self.first = self.handle(
            Elected(replace(snapshot, topics=topics, unreadable={"t": "/brokers/topics/t is garbage"}))
        )


@pytest.fixture
def before() -> Machine:
    machine = Machine(1, 2, 3)
    machine.create("t", (1, 2, 3))
    machine.create("other", (2, 3, 1))
    return machine


def test_no_list_of_replicas_is_complete_while_a_topic_is_unreadable(before: Machine) -> None:
    """If the list were complete, a broker would treat the unreadable topic's logs as strays."""
    machine = NextTerm(before)
    assert {request.type for request in sent_to(machine.first, 2, LeaderAndIsrRequest)} == {INCREMENTAL}
    effects = machine.handle(TopicReadAgain("t", machine.good))
    for broker_id in (1, 2, 3):
        (request,) = sent_to(effects, broker_id, LeaderAndIsrRequest)
        assert request.type == FULL
        assert led(effects, broker_id) == {AT: 1, ("other", 0): 2}
    assert machine.handle(TopicReadAgain("t", machine.good)) == []


def test_removing_the_unreadable_znode_makes_lists_complete_and_the_name_free(before: Machine) -> None:
    machine = NextTerm(before)
    effects = machine.handle(TopicReadAgain("t", None))
    assert {request.type for _, request in sent(effects) if isinstance(request, LeaderAndIsrRequest)} == {
        FULL
    }
    del machine.store.topics["t"]
    assert answers(machine.create("t", (1,)))["t"].error == ErrorCode.NONE


def test_an_unreadable_topic_can_be_neither_created_nor_deleted(before: Machine) -> None:
    before.store.deleting.append("t")
    machine = NextTerm(before)
    machine.store.znode_requests[ZnodeRequest.DELETION] = ["t"]
    assert not [effect for effect in machine.first if isinstance(effect, RemoveTopic)]
    refused = answers(machine.create("t", (1,)))["t"]
    assert refused.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "/brokers/topics/t is garbage" in refused.message
    effects = machine.delete("t")
    assert answers(effects)["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "/brokers/topics/t is garbage" in answers(effects)["t"].message
    assert not [effect for effect in effects if isinstance(effect, RemoveTopic)]
    # The mark for deletion is still there once the topic can be read, and the controller deletes the topic.
    machine.answer_all(machine.handle(TopicReadAgain("t", machine.good)))
    assert "t" not in machine.store.topics


def test_a_broker_that_restarted_meanwhile_is_not_trusted_with_the_topic(before: Machine) -> None:
    """The broker may have lost acknowledged records in its restart, which the controller has handled only for
    the other topics."""
    machine = NextTerm(before)
    recorded = machine.store.recorded_epochs
    machine.start(1)
    assert machine.store.recorded_epochs == recorded
    effects = machine.handle(TopicReadAgain("t", machine.good))
    assert machine.state("t").leader in (2, 3)
    assert machine.state("t").isr == (2, 3)
    assert [write.at for each in writes(effects) for write in each.writes] == [AT]
    assert [effect for effect in effects if isinstance(effect, RecordBrokers)]
    assert machine.store.recorded_epochs == {
        broker_id: broker.start_epoch for broker_id, broker in machine.brokers.items()
    }


def test_a_broker_that_failed_meanwhile_no_longer_leads_the_topic(before: Machine) -> None:
    machine = NextTerm(before)
    machine.lose(1)
    assert machine.state("t").leader == 1
    machine.handle(TopicReadAgain("t", machine.good))
    assert machine.state("t").leader == 2


def test_a_fault_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    reports = ReadingReports()
    with caplog.at_level(logging.INFO):
        for fault in ("no JSON", "no JSON", "a list"):
            reports.unreadable({"/x": fault}, "Mend it")
        reports.readable(["/x", "/y"])
        reports.unreadable({"/x": "a list"}, "Mend it")
    assert [record.getMessage() for record in caplog.records] == [
        "Cannot read the znode /x: no JSON. Mend it",
        "Cannot read the znode /x: a list. Mend it",
        "The znode /x can be read again",
        "Cannot read the znode /x: a list. Mend it",
    ]
