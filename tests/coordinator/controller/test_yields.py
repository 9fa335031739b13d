"""A leader yields before its leadership moves, as scenarios of the controller's machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.coordinator.controller import requests
from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    AskToYieldLater,
    ControllerEffect,
    WriteStates,
    ZnodeRequest,
)
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    AlterReassignments,
    BalanceDue,
    BrokerAnswered,
    BrokersChanged,
    ControlledShutdown,
    ElectLeaders,
    YieldDue,
    ZnodeRequested,
)
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.controller.yields import PAUSE_MAX_S, PAUSE_S, Yields
from holdfast_log.coordinator.znodes.brokers import YIELDS_LEADERSHIP
from holdfast_log.coordinator.znodes.topics import PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.yield_leadership import (
    YieldLeadershipRequest,
    YieldLeadershipResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition
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


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH])
def test_an_answer_that_shows_a_change_moves_nothing_until_the_change_is_known(code: ErrorCode) -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    assert machine.yields(asked, code) == []
    assert machine.leader == 2


def pauses(effects: list[ControllerEffect]) -> list[float]:
    return [effect.after_s for effect in effects if isinstance(effect, AskToYieldLater)]


def test_a_leader_that_answers_with_an_unexpected_error_is_asked_again_after_longer_and_longer_pauses() -> (
    None
):
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    waited = []
    for _ in range(12):
        effects = machine.yields(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert questions(effects) == []
        waited += pauses(effects)
        again = question(machine.handle(YieldDue()))
        assert again.number > asked.number
        assert rows(again) == rows(asked)
        asked = again
    assert waited[:4] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S]
    assert waited[-1] == PAUSE_MAX_S
    machine.yields(asked)
    assert machine.leader == 1


def test_pauses_begin_anew_after_a_success() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    for _ in range(3):
        machine.yields(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
        asked = question(machine.handle(YieldDue()))
    machine.propose("t", 2)
    again = question(machine.yields(asked))
    assert rows(again)[0][2] is False
    assert pauses(machine.yields(again, ErrorCode.UNKNOWN_SERVER_ERROR)) == [PAUSE_S]


def test_a_leader_that_could_not_confirm_again_is_asked_again() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    machine.propose("t", 2)
    again = question(machine.yields(asked))
    machine.yields(again, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert rows(question(machine.handle(YieldDue()))) == rows(again)


def test_a_leader_that_leads_no_longer_is_not_asked_again() -> None:
    machine = led_by_2(1, 2)
    asked = question(elect(machine))
    machine.yields(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
    machine.lose(2)
    assert questions(machine.handle(YieldDue())) == []


def test_one_pause_serves_all_errors_of_the_time() -> None:
    machine = Yielding(9, 1, 2)
    machine.create("t", (1, 2))
    machine.create("u", (1, 2))
    machine.lose(1)
    machine.start(1)
    for name in ("t", "u"):
        machine.propose(name, 1, 2)
    asked = [question(machine.handle(ElectLeaders(5, [TopicPartition(name, 0)]))) for name in ("t", "u")]
    waited = [pauses(machine.yields(each, ErrorCode.UNKNOWN_SERVER_ERROR)) for each in asked]
    assert waited == [[PAUSE_S], []]
    assert len(rows(question(machine.handle(YieldDue())))) == 2


MANY = 10_000


def test_10_000_partitions_yield_and_move_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not timed: every partition is looked at, written and sent a few times, however many
    there are."""
    looks = 0
    state_of = Yields._state_of

    def counting(self: Yields, at: TopicPartition) -> PartitionState | None:
        nonlocal looks
        looks += 1
        return state_of(self, at)

    machine = Yielding(1, 2, 3, 4, limits=PartitionLimits(MANY, MANY, MANY))
    machine.create("t", *([(2, 3), (2, 4)] * (MANY // 2)))
    machine.lose(2)
    machine.start(2)
    numbers = range(MANY)
    in_sync = [(2, 3), (2, 4)]
    proposals = [(3, machine.proposal("t", *in_sync[number % 2], partition=number)) for number in numbers]
    machine.handle(AlterPartitions(proposals))
    assert {machine.state("t", number).leader for number in numbers} == {3, 4}
    monkeypatch.setattr(Yields, "_state_of", counting)
    effects = machine.handle(BalanceDue())
    asked = [(broker_id, request) for broker_id, request in sent(effects) if is_question(request)]
    assert [len(rows(request)) for _, request in asked] == [1000] * (MANY // 1000)
    assert [broker_id for broker_id, _ in asked] == [3] * 5 + [4] * 5
    written = requests_sent = 0
    for broker_id, request in asked:
        after = machine.yields(request, broker_id=broker_id)
        written += sum(len(each.writes) for each in after if isinstance(each, WriteStates))
        requests_sent += len(sent(after))
        assert questions(after) == []
    assert written == MANY
    assert requests_sent <= len(asked) * 2 * len(machine.brokers)
    assert {machine.state("t", number).leader for number in numbers} == {2}
    assert looks <= 5 * MANY


def is_question(request: object) -> bool:
    return isinstance(request, YieldLeadershipRequest)


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
