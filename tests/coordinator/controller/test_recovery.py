"""Unclean recovery (KIP-966): which logs are compared, whose answers count, how long they are awaited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.coordinator.controller.effects import CheckRecovery, ControllerEffect
from holdfast_log.coordinator.controller.events import (
    BrokerAnswered,
    BrokersChanged,
    ElectLeaders,
    RecoveryCheckDue,
    UncleanElectionEnabled,
)
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.get_replica_log_info import REPLICA_LOG_INFO_MAX, GetReplicaLogInfoRequest
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.coordinator.controller.machine import Machine, answers, sent, sent_to
from tests.coordinator.members import healthy_answer, log_ends

ENDS = {1: (0, 80), 2: (0, 90), 3: (0, 85)}
"""Leader epochs and end offsets of the replicas' logs, by broker id."""


def outage(min_in_sync: int = 2) -> Machine:
    """A topic t on brokers 1, 2 and 3, which have all lost power; broker 4 is the controller."""
    machine = Machine(4, 1, 2, 3, min_in_sync=min_in_sync)
    machine.create("t", (1, 2, 3))
    machine.lose(1, 2, 3)
    return machine


def asked(effects: list[ControllerEffect]) -> list[int]:
    """The brokers that are asked where their logs end."""
    return [
        broker_id for broker_id, request in sent(effects) if isinstance(request, GetReplicaLogInfoRequest)
    ]


def leader(machine: Machine) -> int:
    return machine.state("t").leader


def test_the_longest_log_leads_once_all_members_are_back_and_have_answered() -> None:
    machine = outage()
    for broker_id in (2, 3):
        assert asked(machine.start(broker_id)) == []
    assert machine.state("t").unclean == (2, 3)
    effects = machine.start(1)
    state = machine.state("t")
    assert (state.leader, state.isr, state.last_known_leader) == (NO_LEADER, (1,), 1)
    assert state.unclean == (2, 3, 1)
    assert asked(effects) == [1, 2, 3]
    machine.tell_log_ends(effects, {1: ENDS[1], 2: ENDS[2]})
    assert leader(machine) == NO_LEADER
    machine.tell_log_ends(effects, {3: ENDS[3]})
    assert machine.state("t") == PartitionState(2, state.leader_epoch + 1, (2,), 1)


def test_the_replicas_are_asked_after_they_have_got_their_roles() -> None:
    machine = outage()
    effects = machine.start(1, 2, 3)
    kinds = [type(request) for broker_id, request in sent(effects) if broker_id == 2]
    assert kinds.index(LeaderAndIsrRequest) < kinds.index(GetReplicaLogInfoRequest)


def test_of_equal_logs_the_last_leaders_leads() -> None:
    machine = Machine(4, 1, 2, 3, min_in_sync=2)
    machine.create("t", (2, 1, 3))
    machine.lose(1, 2, 3)
    machine.tell_log_ends(machine.start(1, 2, 3), dict.fromkeys((1, 2, 3), (0, 90)))
    assert leader(machine) == 2


def test_a_replica_out_of_sync_leads_if_the_last_member_has_lost_more_than_it_lacked() -> None:
    machine = Machine(4, 1, 2, 3)
    machine.create("t", (1, 2, 3))
    machine.propose("t", 1)
    machine.lose(1)
    machine.tell_log_ends(machine.start(1), {1: (0, 10), 2: (0, 50), 3: (0, 40)})
    assert leader(machine) == 2


def test_a_new_controller_asks_again() -> None:
    """The first controller had the brokers' starts recorded, so that only the state says what was lost."""
    old = outage()
    effects = old.start(1, 2, 3)
    old.tell_log_ends(effects, {1: ENDS[1]})
    new = Machine(4, store=old.store, epoch=2, brokers=old.brokers, min_in_sync=2)
    assert leader(new) == NO_LEADER
    assert asked(new.effects) == [1, 2, 3]
    new.tell_log_ends(new.effects, ENDS)
    assert leader(new) == 2


def test_an_answer_from_another_registration_of_the_broker_does_not_count() -> None:
    machine = outage()
    effects = machine.start(1, 2, 3)
    (request,) = sent_to(effects, 2, GetReplicaLogInfoRequest)
    machine.tell_log_ends(effects, {1: ENDS[1], 3: ENDS[3]})
    machine.answer(2, request, log_ends(request, machine.brokers[2].epoch - 1, *ENDS[2]))
    assert leader(machine) == NO_LEADER
    again = machine.handle(RecoveryCheckDue())
    assert asked(again) == [2]
    machine.tell_log_ends(again, ENDS)
    assert leader(machine) == 2


@pytest.mark.parametrize("is_restart", [True, False])
def test_a_member_that_registers_again_is_asked_again(is_restart: bool) -> None:
    """It may have answered before it lost power once more, or its session expired."""
    machine = outage()
    effects = machine.start(1, 2, 3)
    machine.tell_log_ends(effects, {2: ENDS[2], 3: ENDS[3]})
    earlier = machine.brokers[2].epoch
    machine.brokers[2] = machine.life(2) if is_restart else machine.registration(2)
    again = machine.handle(BrokersChanged(dict(machine.brokers)))
    assert asked(again) == [2]
    (late,) = sent_to(effects, 2, GetReplicaLogInfoRequest)
    machine.handle(BrokerAnswered(2, earlier, late, log_ends(late, earlier, *ENDS[2])))
    machine.tell_log_ends(effects, {1: ENDS[1]})
    assert leader(machine) == NO_LEADER
    machine.tell_log_ends(again, {2: (0, 84)})
    assert leader(machine) == 3


def test_the_election_waits_for_a_member_that_has_gone_again() -> None:
    machine = outage()
    machine.start(2)
    machine.lose(2)
    machine.start(3)
    effects = machine.start(1)
    assert (asked(effects), leader(machine)) == ([], NO_LEADER)
    machine.tell_log_ends(machine.start(2), ENDS)
    assert leader(machine) == 2


def test_the_election_waits_for_a_member_whose_disk_is_not_mounted() -> None:
    machine = outage()
    effects = machine.start(1, 2, 3)
    (request,) = sent_to(effects, 2, LeaderAndIsrRequest)
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(2, request, response)
    (question,) = sent_to(effects, 2, GetReplicaLogInfoRequest)
    refusal = log_ends(question, machine.brokers[2].epoch)
    refusal.topic_partition_log_info_list[0].partition_log_info[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(2, question, refusal)
    machine.tell_log_ends(effects, {1: ENDS[1], 3: ENDS[3]})
    for _ in range(5):
        machine.handle(RecoveryCheckDue())
    assert leader(machine) == NO_LEADER
    machine.handle(ElectLeaders(1, [("t", 0)], unclean=True))
    assert leader(machine) not in (NO_LEADER, 2)


def with_a_failed_disk() -> Machine:
    """A topic t of which broker 2 was the leader until its disk failed. Broker 1 is the only one in sync."""
    machine = Machine(4, 1, 2, 3, min_in_sync=2)
    effects = machine.create("t", (2, 1, 3))
    machine.propose("t", 2, 1)
    (request,) = sent_to(effects, 2, LeaderAndIsrRequest)
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(2, request, response)
    state = machine.state("t")
    assert (state.leader, state.isr, state.eligible, state.unclean) == (1, (1,), (), (2,))
    return machine


@pytest.mark.parametrize("is_new_controller", [False, True])
def test_the_election_waits_for_a_failed_disk_if_the_last_member_lost_records_after_it(
    is_new_controller: bool,
) -> None:
    """The disk may have every committed record, and the log of the last member may be cut short."""
    machine = with_a_failed_disk()
    machine.lose(1)
    effects = machine.start(1)
    assert (asked(effects), leader(machine)) == ([], NO_LEADER)
    for _ in range(5):
        machine.handle(RecoveryCheckDue())
    assert leader(machine) == NO_LEADER
    assert machine.state("t").unclean == (2, 1)
    if is_new_controller:
        machine = Machine(4, store=machine.store, epoch=2, brokers=machine.brokers, min_in_sync=2)
    machine.lose(2)
    machine.tell_log_ends(machine.start(2), ENDS)
    assert leader(machine) == 2
    assert machine.state("t").unclean == ()


def test_a_failed_disk_is_forgotten_once_records_are_committed_without_it() -> None:
    machine = with_a_failed_disk()
    machine.propose("t", 1, 3)
    assert machine.state("t").unclean == ()
    machine.propose("t", 1)
    assert machine.state("t").unclean == ()
    machine.lose(1)
    machine.start(1)
    assert leader(machine) == 3, "it is eligible"


def test_a_failed_disk_is_remembered_while_leaders_change() -> None:
    machine = with_a_failed_disk()
    back = machine.continuation(1)
    machine.lose(1)
    machine.come(back)
    state = machine.state("t")
    assert (state.leader, state.isr, state.unclean) == (1, (1,), (2,))


def test_a_member_that_has_everything_leads_without_a_question() -> None:
    machine = Machine(4, 1, 2, 3, min_in_sync=2)
    machine.create("t", (1, 2, 3))
    back = machine.continuation(3)
    machine.lose(1, 2, 3)
    effects = [*machine.start(1, 2), *machine.come(back)]
    assert (asked(effects), leader(machine)) == ([], 3)
    # Their logs are compared with its own if it loses records before they are in sync with it again.
    assert machine.state("t").unclean == (1, 2)
    machine.propose("t", 3, 1)
    assert machine.state("t").unclean == ()


def test_a_partition_with_one_replica_needs_no_question() -> None:
    machine = Machine(1, 2)
    machine.create("t", (2,))
    machine.lose(2)
    effects = machine.start(2)
    assert (asked(effects), leader(machine)) == ([], 2)


def test_no_other_election_elects_a_member_that_may_have_lost_records() -> None:
    machine = outage()
    machine.start(1, 2, 3)
    results = answers(machine.handle(ElectLeaders(1, [("t", 0)])))[None]
    assert results == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert leader(machine) == NO_LEADER


def test_a_live_replica_that_is_no_member_is_awaited_for_two_checks_at_most() -> None:
    machine = Machine(4, 1, 2, 3)
    machine.create("t", (1, 2, 3))
    machine.propose("t", 1, 3)
    machine.lose(1, 3)
    effects = machine.start(1, 3)
    assert [effect for effect in effects if isinstance(effect, CheckRecovery)] != []
    machine.tell_log_ends(effects, {1: ENDS[1], 3: ENDS[3]})
    machine.handle(RecoveryCheckDue())
    assert leader(machine) == NO_LEADER
    machine.handle(RecoveryCheckDue())
    assert leader(machine) == 3


def test_a_live_member_is_awaited_until_it_answers() -> None:
    machine = outage()
    effects = machine.start(1, 2, 3)
    machine.tell_log_ends(effects, {1: ENDS[1], 3: ENDS[3]})
    for _ in range(5):
        effects += machine.handle(RecoveryCheckDue())
    assert leader(machine) == NO_LEADER
    assert asked(effects).count(2) == 1
    machine.tell_log_ends(effects, {2: ENDS[2]})
    assert leader(machine) == 2


def test_where_unclean_elections_are_allowed_the_longest_log_among_live_replicas_leads() -> None:
    machine = Machine(4, 1, 2, 3, unclean=True)
    machine.create("t", (1, 2, 3))
    machine.propose("t", 1)
    machine.tell_log_ends(machine.lose(1), {2: (0, 50), 3: (0, 60)})
    assert leader(machine) == 3


def test_an_unclean_election_does_not_wait_for_a_broker_that_has_gone() -> None:
    machine = Machine(4, 1, 2, 3, unclean=True)
    machine.create("t", (1, 2, 3))
    machine.propose("t", 1)
    effects = machine.lose(1)
    assert asked(effects) == [2, 3]
    assert leader(machine) == NO_LEADER
    machine.lose(3)
    assert leader(machine) == 2


def test_a_broker_too_old_to_be_asked_counts_as_one_with_an_empty_log() -> None:
    machine = outage()
    old = machine.life(2)
    machine.brokers[2] = LiveBroker(replace(old.info, features={}), old.epoch)
    effects = machine.handle(BrokersChanged(dict(machine.brokers)))
    effects += machine.start(1, 3)
    assert asked(effects) == [1, 3]
    machine.tell_log_ends(effects, ENDS)
    assert leader(machine) == 3


def test_a_question_names_no_more_partitions_than_an_answer_may_have() -> None:
    machine = Machine(4, 1, 2)
    machine.create("t", *[(1, 2)] * (REPLICA_LOG_INFO_MAX + 1))
    machine.lose(1, 2)
    effects = machine.start(1, 2)
    assert asked(effects) == [1, 1, 2, 2]
    machine.tell_log_ends(effects)
    assert {state.leader for state, _ in machine.store.states.values()} == {1}


def test_nothing_is_asked_or_checked_after_the_topic_was_deleted() -> None:
    machine = outage()
    effects = machine.start(1, 2, 3)
    machine.tell_log_ends(effects, {1: ENDS[1]})
    machine.delete("t")
    assert machine.handle(RecoveryCheckDue()) == []
    machine.tell_log_ends(effects, {2: ENDS[2]})


def test_allowing_unclean_elections_ends_the_wait_for_a_member_that_has_gone() -> None:
    machine = outage()
    effects = machine.start(1, 3)
    assert asked(effects) == []
    machine.controller._leaders._unclean_allowed = lambda topic: True
    machine.tell_log_ends(machine.handle(UncleanElectionEnabled("t")), ENDS)
    assert leader(machine) == 3
