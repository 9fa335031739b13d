"""Eligible leader replicas (KIP-966): which replicas become eligible, which lose eligibility, and which
lead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.coordinator.controller.events import (
    AlterReassignments,
    ControlledShutdown,
    MinInSyncChanged,
    UncleanElectionEnabled,
)
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.coordinator.controller.machine import Machine, sent_to, writes
from tests.coordinator.members import healthy_answer


def machine_of(*broker_ids: int, min_in_sync: int = 2) -> Machine:
    """A machine with a topic t, which has a replica on each broker."""
    machine = Machine(*broker_ids, min_in_sync=min_in_sync)
    machine.create("t", broker_ids)
    return machine


def members(state: PartitionState) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, in-sync set and eligible replicas."""
    return state.leader, state.isr, state.eligible


def test_replicas_become_eligible_when_fewer_than_min_insync_replicas_stay_in_sync() -> None:
    machine = machine_of(1, 2, 3)
    machine.propose("t", 1, 3)
    assert members(machine.state("t")) == (1, (1, 3), ())
    machine.propose("t", 1)
    assert members(machine.state("t")) == (1, (1,), (3,))


def test_replicas_that_are_lost_with_their_brokers_become_eligible() -> None:
    machine = machine_of(1, 2, 3)
    machine.lose(2, 3)
    assert members(machine.state("t")) == (1, (1,), (2, 3))


def test_no_replica_is_eligible_where_one_in_sync_replica_is_enough() -> None:
    machine = machine_of(1, 2, 3, min_in_sync=1)
    machine.lose(2, 3)
    assert members(machine.state("t")) == (1, (1,), ())


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_needs_all_of_them_in_sync() -> None:
    machine = machine_of(1, 2, min_in_sync=3)
    machine.lose(2)
    assert members(machine.state("t")) == (1, (1,), (2,))
    machine.start(2)
    machine.propose("t", 1, 2)
    assert members(machine.state("t")) == (1, (1, 2), ())


def test_no_replica_is_eligible_once_enough_replicas_are_in_sync_again() -> None:
    machine = machine_of(1, 2, 3)
    machine.propose("t", 1)
    machine.propose("t", 1, 2)
    assert members(machine.state("t")) == (1, (1, 2), ())


def test_an_eligible_replica_leads_after_the_last_one_in_sync() -> None:
    machine = machine_of(1, 2, 3)
    machine.propose("t", 1)
    machine.lose(1)
    assert members(machine.state("t")) == (2, (2,), (1, 3))


def test_the_leader_is_sent_the_eligible_replicas() -> None:
    machine = machine_of(1, 2, 3)
    effects = machine.lose(2, 3)
    (request,) = sent_to(effects, 1, LeaderAndIsrRequest)
    assert request.topic_states[0].partition_states[0].eligible_leader_replicas == [2, 3]


def test_a_broker_that_comes_back_without_its_clean_mark_is_not_eligible() -> None:
    machine = machine_of(1, 2, 3)
    machine.lose(2, 3)
    machine.start(2)
    assert members(machine.state("t")) == (1, (1,), (3,))


def test_a_broker_that_comes_back_with_all_its_records_stays_eligible() -> None:
    machine = machine_of(1, 2, 3)
    back = machine.continuation(2)
    machine.lose(2, 3)
    machine.come(back)
    assert members(machine.state("t")) == (1, (1,), (2, 3))


def test_the_last_replica_in_sync_does_not_lead_after_it_lost_power_while_others_may_have_more() -> None:
    machine = machine_of(1, 2, 3, 4)
    machine.create("u", (1, 2, 3))
    back = machine.continuation(3)
    machine.lose(2, 3)
    machine.lose(1)
    assert members(machine.state("u")) == (NO_LEADER, (1,), (2, 3))
    assert machine.state("u").last_known_leader == 1
    machine.start(1)
    assert members(machine.state("u")) == (NO_LEADER, (2, 3), ())
    machine.start(2)
    assert members(machine.state("u")) == (NO_LEADER, (3,), ())
    machine.come(back)
    assert members(machine.state("u")) == (3, (3,), ())


def test_the_last_replica_in_sync_leads_again_if_no_other_replica_may_have_more() -> None:
    machine = machine_of(1, 2)
    machine.lose(2)
    machine.start(2)
    assert members(machine.state("t")) == (1, (1,), ())
    machine.lose(1)
    assert members(machine.state("t")) == (NO_LEADER, (1,), ())
    machine.tell_log_ends(machine.start(1))
    assert members(machine.state("t")) == (1, (1,), ())


def test_a_clean_restart_that_no_controller_noticed_costs_leadership_but_not_eligibility() -> None:
    machine = machine_of(1, 2, 3)
    machine.propose("t", 1, 2)
    machine.come(machine.continuation(1))
    assert members(machine.state("t")) == (2, (2,), (1,))


def test_a_new_controller_trusts_a_broker_that_restarted_with_all_its_records() -> None:
    old = machine_of(1, 2, 3)
    old.propose("t", 1)
    brokers = {1: old.continuation(1), 2: old.life(2), 3: old.registration(3)}
    new = Machine(3, store=old.store, epoch=2, brokers={1: brokers[1], 2: brokers[2]}, min_in_sync=2)
    assert members(new.state("t")) == (1, (1,), (3,))
    assert new.store.recorded_epochs is not None
    assert new.store.recorded_epochs[1] == brokers[1].start_epoch


def test_a_copy_of_an_old_disk_is_not_trusted() -> None:
    """The mark on the old disk names an earlier process than the broker's last one."""
    machine = machine_of(1, 2, 3)
    stale = machine.continuation(2)
    machine.start(2)
    machine.propose("t", 1, 2, 3)
    machine.lose(2, 3)
    machine.come(LiveBroker(stale.info, machine.store.new_epoch()))
    assert members(machine.state("t")) == (1, (1,), (3,))


def test_a_replica_whose_disk_failed_is_not_eligible() -> None:
    machine = Machine(1, 2, 3, min_in_sync=2)
    effects = machine.create("t", (1, 2, 3))
    machine.propose("t", 1)
    request = sent_to(effects, 2, LeaderAndIsrRequest)[0]
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(2, request, response)
    assert members(machine.state("t")) == (1, (1,), (3,))
    assert machine.state("t").unclean == (2,)


def test_no_replica_is_eligible_while_the_leader_may_commit_without_it() -> None:
    """A leader of an older version does not keep its high watermark below the ends of eligible replicas."""
    machine = machine_of(1, 2, 3)
    old = machine.brokers[1]
    machine.controller.state.brokers[1] = replace(old, info=replace(old.info, features={}))
    machine.propose("t", 1)
    assert members(machine.state("t")) == (1, (1,), ())


def test_a_lower_min_insync_replicas_ends_eligibility() -> None:
    machine = machine_of(1, 2, 3)
    machine.propose("t", 1)
    assert writes(machine.handle(MinInSyncChanged("t"))) == []
    machine.min_in_sync = 1
    machine.handle(MinInSyncChanged("t"))
    assert members(machine.state("t")) == (1, (1,), ())


def test_a_higher_min_insync_replicas_makes_no_replica_eligible() -> None:
    """The replicas that are out of sync may lack records that the leader has committed."""
    machine = machine_of(1, 2, 3, min_in_sync=1)
    machine.propose("t", 1)
    machine.min_in_sync = 2
    machine.handle(MinInSyncChanged("t"))
    assert members(machine.state("t")) == (1, (1,), ())


def test_a_controlled_shutdown_leaves_an_eligible_replica() -> None:
    machine = machine_of(1, 2)
    machine.handle(ControlledShutdown(7, 1, machine.brokers[1].epoch))
    assert members(machine.state("t")) == (2, (2,), (1,))


def test_a_removed_replica_is_not_eligible() -> None:
    machine = machine_of(1, 2, 3)
    machine.lose(3)
    machine.handle(AlterReassignments(9, {("t", 0): (1,)}))
    assert members(machine.state("t")) == (1, (1,), ())


@pytest.mark.parametrize("unclean", [False, True])
def test_an_unclean_election_prefers_the_last_known_leader(unclean: bool) -> None:
    machine = Machine(4, 1, 2, 3, unclean=unclean, min_in_sync=1)
    machine.create("t", (1, 2, 3))
    machine.shrink("t", 3)
    known = machine.controller.state.partition(("t", 0))
    state = PartitionState(NO_LEADER, 5, (3,), 1, last_known_leader=2)
    machine.store.states["t", 0] = (state, known.version + 1)
    known.state, known.version = state, known.version + 1
    machine.lose(3)
    machine.tell_log_ends(machine.handle(UncleanElectionEnabled("t")))
    assert machine.state("t").leader == (2 if unclean else NO_LEADER)
