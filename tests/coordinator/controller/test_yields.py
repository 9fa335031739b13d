"""A leader yields before its leadership moves, as scenarios of the controller's machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.controller import requests
from coordinator.controller.effects import AnswerRequest, ControllerEffect, ZnodeRequest
from coordinator.controller.events import (
    AlterReassignments,
    BalanceDue,
    BrokerAnswered,
    BrokersChanged,
    ControlledShutdown,
    ElectLeaders,
    ZnodeRequested,
)
from coordinator.controller.state import LiveBroker
from coordinator.znodes.brokers import YIELDS_LEADERSHIP
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.yield_leadership import (
    YieldLeadershipRequest,
    YieldLeadershipResponse,
)
from protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, answers, sent, sent_to
from tests.coordinator.members import healthy_answer

AT = TopicPartition("t", 0)


class Yielding(Machine):
    """A controller whose brokers can all be asked to yield."""

    def life(self, broker_id: int) -> LiveBroker:
        broker = super().life(broker_id)
        return LiveBroker(
            replace(broker.info, features={**broker.info.features, YIELDS_LEADERSHIP: (1, 1)}), broker.epoch
        )

    def yields(
        self, request: YieldLeadershipRequest, code: ErrorCode = ErrorCode.NONE, broker_id: int = 2
    ) -> list[ControllerEffect]:
        """A broker answers the request."""
        return self.answer(broker_id, request, YieldLeadershipResponse(error_code=code))

    @property
    def leader(self) -> int:
        return self.state("t").leader


def led_by_2(*replicas: int, controller: int = 9) -> Yielding:
    """Broker 2 leads t, whose first replica is preferred and in sync."""
    machine = Yielding(controller, *sorted(replicas))
    machine.create("t", replicas)
    machine.lose(replicas[0])
    machine.start(replicas[0])
    machine.propose("t", *sorted(replicas))
    assert machine.leader == 2
    return machine


def questions(effects: list[ControllerEffect]) -> list[YieldLeadershipRequest]:
    """What the brokers are asked among these effects."""
    return [request for _, request in sent(effects) if isinstance(request, YieldLeadershipRequest)]


def question(effects: list[ControllerEffect]) -> YieldLeadershipRequest:
    (found,) = questions(effects)
    return found


def rows(request: YieldLeadershipRequest) -> list[tuple[int, int, bool]]:
    """(partition, leader epoch, is yielded) of all rows."""
    return [
        (row.partition, row.leader_epoch, row.is_yielded)
        for topic in request.topics
        for row in topic.partitions
    ]


def elect(machine: Yielding, token: int = 5) -> list[ControllerEffect]:
    return machine.handle(ElectLeaders(token, [AT]))


def final(effects: list[ControllerEffect]) -> list[AnswerRequest]:
    """The answers that do not wait for the timeout."""
    return [each for each in effects if isinstance(each, AnswerRequest) and not each.is_provisional]


def test_an_election_waits_until_the_leader_has_yielded() -> None:
    machine = led_by_2(1, 2)
    effects = elect(machine)
    asked = question(effects)
    assert rows(asked) == [(0, machine.state("t").leader_epoch, True)]
    assert machine.leader == 2
    assert answers(effects) == {None: {AT: ErrorCode.REQUEST_TIMED_OUT}}
    assert final(effects) == []
    effects = machine.yields(asked)
    assert machine.leader == 1
    (answer,) = final(effects)
    assert (answer.token, answer.result) == (5, {AT: ErrorCode.NONE})
    assert questions(effects) == []


def test_an_answer_of_an_election_keeps_the_results_of_other_partitions() -> None:
    machine = Yielding(9, 1, 2)
    machine.create("t", (1, 2), (2, 1))
    machine.lose(1)
    machine.start(1)
    for number in (0, 1):
        machine.propose("t", 1, 2, partition=number)
    other = TopicPartition("t", 1)
    effects = machine.handle(ElectLeaders(5, [AT, other]))
    (answer,) = final(machine.yields(question(effects)))
    assert answer.result == {AT: ErrorCode.NONE, other: ErrorCode.ELECTION_NOT_NEEDED}


def test_a_leader_is_asked_once_however_often_the_election_is_wanted() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    assert questions(machine.handle(BalanceDue())) == []
    assert questions(elect(machine, 6)) == []
    assert {each.token for each in final(machine.yields(asked))} == {5, 6}


def test_the_balance_moves_leadership_once_the_leader_has_yielded() -> None:
    machine = led_by_2(1, 2)
    asked = question(machine.handle(BalanceDue()))
    assert machine.leader == 2
    machine.yields(asked)
    assert machine.leader == 1


def test_an_election_requested_by_znode_waits_too() -> None:
    machine = led_by_2(1, 2)
    machine.store.znode_requests[ZnodeRequest.ELECTION] = [AT]
    machine.yields(question(machine.handle(ZnodeRequested(ZnodeRequest.ELECTION))))
    assert machine.leader == 1


def test_a_reassignment_stays_pending_until_the_leader_has_yielded() -> None:
    machine = led_by_2(1, 2)
    effects = machine.handle(AlterReassignments(5, {AT: (1,)}))
    assert machine.leader == 2
    assert machine.store.topics["t"].partitions[0].is_reassigning
    assert answers(effects) == {None: {AT: None}}
    machine.yields(question(effects))
    assert machine.leader == 1
    assert not machine.store.topics["t"].partitions[0].is_reassigning


def test_a_reassignment_that_removes_the_leaders_replica_at_once_waits_until_it_has_yielded() -> None:
    """Broker 2 leads as a replica being added, which a cancellation removes."""
    machine = Yielding(9, 1, 2, 3)
    machine.create("t", (1,))
    machine.handle(AlterReassignments(4, {AT: (2, 3)}))
    machine.propose("t", 1, 2)
    machine.lose(1)
    assert machine.leader == 2
    machine.start(1)
    machine.propose("t", 1, 2)
    effects = machine.handle(AlterReassignments(5, {AT: None}))
    assert machine.leader == 2
    assert final(effects) == []
    assert answers(effects)[None][AT].code == ErrorCode.REQUEST_TIMED_OUT
    effects = machine.yields(question(effects))
    assert machine.leader == 1
    (answer,) = final(effects)
    assert (answer.token, answer.result) == (5, {AT: None})
    assert machine.store.topics["t"].partitions[0].replicas == (1,)


def test_only_the_same_registration_and_leader_epoch_can_yield() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    again = machine.come(machine.registration(2))
    assert machine.leader == 2
    repeated = question(again)
    assert repeated.broker_epoch == machine.brokers[2].epoch
    kinds = [type(request) for broker_id, request in sent(again) if broker_id == 2]
    assert kinds.index(LeaderAndIsrRequest) < kinds.index(YieldLeadershipRequest)
    machine.handle(BrokersChanged(dict(machine.brokers)))
    assert machine.leader == 2
    machine.yields(repeated)
    assert machine.leader == 1
    machine.yields(asked)
    assert machine.leader == 1


def test_a_late_answer_of_an_earlier_registration_does_not_count() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    earlier = machine.brokers[2].epoch
    machine.come(machine.registration(2))
    machine.handle(BrokerAnswered(2, earlier, asked, YieldLeadershipResponse(error_code=0)))
    assert machine.leader == 2


def test_an_answer_with_an_error_moves_nothing() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    assert machine.yields(asked, ErrorCode.STALE_BROKER_EPOCH) == []
    assert machine.leader == 2


def test_a_leader_that_dies_while_it_is_asked_is_replaced() -> None:
    machine = led_by_2(1, 2)
    elect(machine)
    effects = machine.lose(2)
    assert machine.leader == 1
    (answer,) = final(effects)
    assert answer.result == {AT: ErrorCode.ELECTION_NOT_NEEDED}


def test_a_leader_that_has_yielded_and_stays_confirms_again() -> None:
    """The preferred replica has left the in-sync set before the answer."""
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    machine.propose("t", 2)
    effects = machine.yields(asked)
    assert machine.leader == 2
    (answer,) = final(effects)
    assert answer.result == {AT: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    again = question(effects)
    assert rows(again) == [(0, machine.state("t").leader_epoch, False)]
    assert again.number > asked.number
    machine.propose("t", 1, 2)
    assert rows(question(elect(machine)))[0][2]


def test_a_write_that_finds_another_leader_epoch_is_not_repeated_without_asking() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    state, version = machine.store.states[AT]
    machine.store.states[AT] = (replace(state, leader_epoch=state.leader_epoch + 1), version + 1)
    effects = machine.yields(asked)
    assert machine.leader == 2
    assert rows(question(effects)) == [(0, state.leader_epoch + 1, True)]


def test_a_new_controller_sends_the_leader_its_role_and_asks_again() -> None:
    machine = led_by_2(1, 2)
    machine.handle(AlterReassignments(5, {AT: (1,)}))
    new = Yielding(9, store=machine.store, epoch=2, brokers=machine.brokers)
    assert new.leader == 2
    assert sent_to(new.effects, 2, LeaderAndIsrRequest)
    asked = question(new.effects)
    assert asked.controller_epoch == 2
    new.yields(asked)
    assert new.leader == 1


def test_a_topic_deleted_while_its_leader_is_asked_is_forgotten() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    effects = machine.delete("t")
    (answer,) = [each for each in final(effects) if each.token == 5]
    assert answer.result == {AT: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert questions(machine.yields(asked)) == []


def test_brokers_that_stop_or_are_too_old_are_not_asked() -> None:
    machine = led_by_2(1, 2)
    effects = machine.handle(ControlledShutdown(7, 2, machine.brokers[2].epoch))
    assert questions(effects) == []
    assert machine.leader == 1
    old = Machine(9, 1, 2)
    old.create("t", (1, 2))
    old.lose(1)
    old.start(1)
    old.propose("t", 1, 2)
    assert questions(old.handle(ElectLeaders(5, [AT]))) == []
    assert old.state("t").leader == 1


def test_a_leader_that_reports_its_replica_offline_is_not_asked() -> None:
    machine = led_by_2(1, 2)
    effects = machine.handle(BrokersChanged(dict(machine.brokers)))
    elect(machine)
    machine.store.znode_requests[ZnodeRequest.LOG_DIRS] = {"/log_dir_event_notification/1": 2}
    effects = machine.handle(ZnodeRequested(ZnodeRequest.LOG_DIRS))
    (request,) = sent_to(effects, 2, LeaderAndIsrRequest)
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(2, request, response)
    assert machine.leader == 1


@pytest.mark.parametrize("count", [5, 11])
def test_many_partitions_are_asked_for_in_few_requests(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(requests, "YIELDED_MAX", 5)
    machine = Yielding(9, 1, 2)
    machine.create("t", *[(1, 2)] * count)
    machine.lose(1)
    machine.start(1)
    for number in range(count):
        machine.propose("t", 1, 2, partition=number)
    asked = questions(machine.handle(BalanceDue()))
    assert [len(rows(each)) for each in asked] == [5] * (count // 5) + [1] * (count % 5)
    numbers = [each.number for each in asked]
    assert numbers == sorted(set(numbers))
    for each in asked:
        machine.yields(each)
    assert {machine.state("t", number).leader for number in range(count)} == {1}
