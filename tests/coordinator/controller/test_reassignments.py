"""Reassignments, as scenarios of the controller's machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast_log.coordinator.controller.effects import (
    ControllerEffect,
    SendToBrokers,
    WriteAssignments,
    WriteStates,
    ZnodeRequest,
)
from holdfast_log.coordinator.controller.events import (
    AlterReassignments,
    BalanceDue,
    CreatePartitions,
    ListReassignments,
    MorePartitions,
    ZnodeRequested,
)
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, answers, sent_to, with_topic, writes


def move(machine: Machine, *target: int, topic: str = "t", partition: int = 0) -> list[ControllerEffect]:
    return machine.handle(AlterReassignments(5, {(topic, partition): target}))


def cancel(machine: Machine, topic: str = "t") -> list[ControllerEffect]:
    return machine.handle(AlterReassignments(5, {(topic, 0): None}))


def refusal(effects: list[ControllerEffect], at: TopicPartition = ("t", 0)) -> ErrorCode:
    error = answers(effects)[None][at]
    return ErrorCode.NONE if error is None else error.code


def assignment(machine: Machine, topic: str = "t") -> ReplicaAssignment:
    return machine.store.topics[topic].partitions[0]


def deleted_on(effects: list[ControllerEffect], broker_id: int) -> list[TopicPartition]:
    """The partitions that a broker is asked to delete."""
    return [
        (topic.topic_name, row.partition_index)
        for request in sent_to(effects, broker_id, StopReplicaRequest)
        for topic in request.topic_states
        for row in topic.partition_states
        if row.delete_partition
    ]


def rows_sent(effects: list[ControllerEffect], broker_id: int) -> list[LeaderAndIsrPartitionState]:
    return [
        row
        for request in sent_to(effects, broker_id, LeaderAndIsrRequest)
        for topic in request.topic_states
        for row in topic.partition_states
    ]


def test_a_partition_moves_once_its_new_replicas_are_in_sync() -> None:
    machine = with_topic(1, 2, brokers=4)
    effects = move(machine, 3, 4)
    assert refusal(effects) == ErrorCode.NONE
    assert assignment(machine) == ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    assert machine.state("t") == PartitionState(1, 1, (1, 2), 1)  # A new leader epoch, sent to all replicas.
    (row,) = rows_sent(effects, 3)
    assert (row.leader, row.is_new, row.adding_replicas, row.removing_replicas) == (1, True, [3, 4], [1, 2])
    assert not rows_sent(effects, 1)[0].is_new
    effects = machine.propose("t", 1, 2, 3)
    assert assignment(machine).is_reassigning
    effects = machine.propose("t", 1, 2, 3, 4)
    assert assignment(machine) == ReplicaAssignment((3, 4))
    assert machine.state("t") == PartitionState(3, 2, (3, 4), 1)
    assert [deleted_on(effects, broker_id) for broker_id in (1, 2, 3, 4)] == [[("t", 0)], [("t", 0)], [], []]
    assert rows_sent(effects, 1) == []
    (row,) = rows_sent(effects, 4)
    assert (row.leader, row.replicas, row.adding_replicas, row.removing_replicas) == (3, [3, 4], [], [])


def test_each_step_of_a_reassignment_is_durable_before_it_is_sent_to_brokers() -> None:
    machine = with_topic(1, brokers=2)
    kinds = [type(effect) for effect in move(machine, 2)]
    assert kinds[:3] == [WriteAssignments, WriteStates, SendToBrokers]
    kinds = [type(effect) for effect in machine.propose("t", 1, 2)]
    # The proposed in-sync set; that without the old replica; its StopReplica; the topic's znode.
    assert [kind for kind in kinds if kind.__name__ != "AnswerRequest"] == [
        WriteStates,
        WriteStates,
        SendToBrokers,
        WriteAssignments,
    ]


def test_a_leader_in_the_target_keeps_leading() -> None:
    machine = with_topic(1, 2, brokers=3)
    move(machine, 3, 1)
    machine.propose("t", 1, 2, 3)
    assert machine.state("t") == PartitionState(1, 2, (1, 3), 1)
    assert assignment(machine) == ReplicaAssignment((3, 1))


def test_a_reassignment_that_only_removes_replicas_completes_at_once() -> None:
    machine = with_topic(1, 2, 3)
    effects = move(machine, 2, 3)
    assert assignment(machine) == ReplicaAssignment((2, 3))
    assert machine.state("t") == PartitionState(2, 1, (2, 3), 1)
    assert deleted_on(effects, 1) == [("t", 0)]


def test_a_reassignment_that_only_reorders_replicas_is_written_and_sent() -> None:
    machine = with_topic(1, 2)
    effects = move(machine, 2, 1)
    assert assignment(machine) == ReplicaAssignment((2, 1))
    assert machine.state("t") == PartitionState(1, 1, (1, 2), 1)
    assert rows_sent(effects, 2)[0].replicas == [2, 1]
    assert writes(move(machine, 2, 1)) == []  # No change.


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_invalid_targets_are_refused_and_the_others_are_moved(
    target: Sequence[int] | None, error: ErrorCode
) -> None:
    machine = with_topic(1, brokers=2)
    machine.create("u", (1,))
    effects = machine.handle(AlterReassignments(5, {("t", 0): target, ("u", 0): (2,), ("x", 0): (1,)}))
    assert refusal(effects) == error
    assert refusal(effects, ("u", 0)) == ErrorCode.NONE
    assert refusal(effects, ("x", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assignment(machine) == ReplicaAssignment((1,))
    assert assignment(machine, "u").adding == (2,)


def test_a_reassignment_onto_two_processes_of_one_machine_is_refused() -> None:
    machine = with_topic(1, 3, brokers=3)
    for broker_id in (1, 2):
        known = machine.brokers[broker_id]
        machine.come(replace(known, info=replace(known.info, machine="m")))
    assert refusal(move(machine, 1, 2)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assignment(machine) == ReplicaAssignment((1, 3))
    assert refusal(move(machine, 2, 3)) == ErrorCode.NONE


def test_a_partition_can_be_moved_away_from_a_dead_broker() -> None:
    machine = with_topic(1, 2, brokers=3)
    machine.lose(2)
    move(machine, 1, 3)
    machine.propose("t", 1, 3)
    assert assignment(machine) == ReplicaAssignment((1, 3))
    assert rows_sent(machine.start(2), 2) == []


def test_a_cancelled_reassignment_is_reverted() -> None:
    machine = with_topic(1, 2, brokers=3)
    move(machine, 3, 2)
    machine.propose("t", 1, 2)
    effects = cancel(machine)
    assert refusal(effects) == ErrorCode.NONE
    assert sorted(assignment(machine).replicas) == [1, 2]
    assert not assignment(machine).is_reassigning
    assert deleted_on(effects, 3) == [("t", 0)]
    assert sorted(rows_sent(effects, 1)[0].replicas) == [1, 2]
    assert refusal(cancel(machine)) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancelling_moves_leadership_off_an_added_replica_first() -> None:
    machine = with_topic(1, 2, brokers=4)
    move(machine, 3, 4)
    machine.propose("t", 1, 2, 3)
    machine.lose(1)
    machine.lose(2)
    machine.start(1)
    assert machine.state("t").leader == 3
    # Only the added replica has all committed records.
    assert refusal(cancel(machine)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assignment(machine).is_reassigning
    machine.propose("t", 3, 1)
    effects = cancel(machine)
    assert [type(effect) for effect in effects[:3]] == [WriteStates, SendToBrokers, WriteAssignments]
    assert refusal(effects) == ErrorCode.NONE
    assert (machine.state("t").leader, machine.state("t").isr) == (1, (1,))
    assert deleted_on(effects, 3) == deleted_on(effects, 4) == [("t", 0)]


def test_a_running_reassignment_can_be_replaced() -> None:
    machine = with_topic(1, brokers=3)
    move(machine, 2)
    effects = move(machine, 3)
    assert assignment(machine) == ReplicaAssignment((3, 1), adding=(3,), removing=(1,))
    assert deleted_on(effects, 2) == [("t", 0)]
    machine.propose("t", 1, 3)
    assert assignment(machine) == ReplicaAssignment((3,))
    assert machine.state("t").leader == 3


def test_a_reassignment_waits_for_a_target_replica_that_can_lead() -> None:
    machine = with_topic(1, 2, brokers=3)
    move(machine, 3)
    # The new replica dies as soon as it is in sync.
    state, version = machine.store.states["t", 0]
    in_sync = PartitionState(1, state.leader_epoch, (1, 2, 3), 1)
    machine.store.states["t", 0] = (in_sync, version + 1)
    partition = machine.controller.state.partition(("t", 0))
    partition.state, partition.version = in_sync, version + 1
    machine.lose(3)
    assert assignment(machine).is_reassigning
    assert machine.state("t").isr == (1, 2)
    machine.start(3)
    machine.propose("t", 1, 2, 3)
    assert machine.state("t") == PartitionState(3, machine.state("t").leader_epoch, (3,), 1)


def test_an_added_replica_is_the_last_choice_of_an_unclean_election() -> None:
    machine = Machine(1, 2, 3, unclean=True)
    machine.create("t", (1, 2))
    machine.propose("t", 1)
    move(machine, 3, 2)
    machine.tell_log_ends(machine.lose(1))
    assert machine.state("t").leader == 2


def test_running_reassignments_are_listed() -> None:
    machine = Machine(1, 2)
    machine.create("t", (1,), (1,))
    move(machine, 2)
    running = {("t", 0): ReplicaAssignment((2, 1), adding=(2,), removing=(1,))}
    assert answers(machine.handle(ListReassignments(6)))[None] == running
    machine.delete("t")
    assert answers(machine.handle(ListReassignments(6)))[None] == {}


def test_partitions_being_reassigned_are_neither_added_to_nor_balanced() -> None:
    machine = with_topic(1, 2, brokers=3)
    move(machine, 2, 3)
    grown = answers(machine.handle(CreatePartitions(6, [MorePartitions("t", 2)])))["t"]
    assert grown.error == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert machine.handle(BalanceDue()) == []


def test_deleting_a_topic_removes_its_old_and_added_replicas() -> None:
    machine = with_topic(1, brokers=2)
    move(machine, 2)
    effects = machine.delete("t")
    assert deleted_on(effects, 1) == deleted_on(effects, 2) == [("t", 0)]
    machine.answer_all(effects)
    assert "t" not in machine.store.topics


def test_a_leaderless_partition_is_reassigned_once_it_has_a_leader_again() -> None:
    machine = with_topic(2, brokers=3)
    back = machine.continuation(2)
    machine.lose(2)
    move(machine, 3)
    assert machine.state("t").leader == NO_LEADER
    effects = machine.come(back)
    assert (machine.state("t").leader, rows_sent(effects, 3)[-1].leader) == (2, 2)
    machine.propose("t", 2, 3)
    assert assignment(machine) == ReplicaAssignment((3,))


# Requests of older tools


def test_a_reassignment_requested_in_zookeeper_is_performed_and_removed() -> None:
    machine = Machine(1, 2)
    for name in ("t", "u", "still"):
        machine.create(name, (1,))
    requests = machine.store.znode_requests
    requests[ZnodeRequest.REASSIGNMENT] = {("t", 0): (2,), ("u", 0): (2,), ("still", 0): (1,), ("x", 0): (1,)}
    machine.handle(ZnodeRequested(ZnodeRequest.REASSIGNMENT))
    assert requests[ZnodeRequest.REASSIGNMENT] == {("t", 0): (2,), ("u", 0): (2,)}
    assert assignment(machine).adding == (2,)
    machine.handle(ZnodeRequested(ZnodeRequest.REASSIGNMENT))  # The event of the controller's own write.
    machine.propose("t", 1, 2)
    assert requests[ZnodeRequest.REASSIGNMENT] == {("u", 0): (2,)}
    cancel(machine, "u")
    assert requests[ZnodeRequest.REASSIGNMENT] is None
    assert (assignment(machine), assignment(machine, "u")) == (
        ReplicaAssignment((2,)),
        ReplicaAssignment((1,)),
    )


def test_a_requested_reassignment_of_a_deleted_topic_is_removed() -> None:
    machine = with_topic(1, brokers=2)
    machine.store.znode_requests[ZnodeRequest.REASSIGNMENT] = {("t", 0): (2,)}
    machine.handle(ZnodeRequested(ZnodeRequest.REASSIGNMENT))
    machine.delete("t")
    assert machine.store.znode_requests[ZnodeRequest.REASSIGNMENT] is None


def test_a_malformed_reassignment_request_is_removed() -> None:
    machine = Machine(1)
    machine.store.znode_requests[ZnodeRequest.REASSIGNMENT] = {}
    machine.handle(ZnodeRequested(ZnodeRequest.REASSIGNMENT))
    assert machine.store.znode_requests[ZnodeRequest.REASSIGNMENT] is None
