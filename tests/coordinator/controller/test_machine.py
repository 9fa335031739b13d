"""The controller as scenarios: events in, effects out, no ZooKeeper and no broker."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    ControllerEffect,
    RemoveTopic,
    SendToBrokers,
    SetBrokers,
    WriteStates,
)
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    BalanceDue,
    BrokerAnswered,
    BrokersChanged,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    MorePartitions,
    TopicCreation,
    UncleanElectionEnabled,
)
from holdfast_log.coordinator.controller.requests import (
    EPOCH_DURING_DELETE,
    FULL,
    INCREMENTAL,
    LEADER_DURING_DELETE,
)
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, answers, led, sent, sent_to, with_topic, writes
from tests.coordinator.members import healthy_answer, isr_proposal

# Topics


def test_a_new_topic_is_durable_before_brokers_and_client_are_answered() -> None:
    machine = Machine(1, 2)
    effects = machine.create("t", (1, 2), (2, 1))
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds == ["CreateTopic", "WriteStates", "SendToBrokers", "AnswerRequest"]
    assert machine.state("t", 1) == PartitionState(2, 0, (2, 1), 1)
    # One request of each kind per broker, not one per partition.
    assert [(to, type(request)) for to, request in sent(effects)] == [
        (1, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, LeaderAndIsrRequest),
        (2, UpdateMetadataRequest),
    ]
    assert led(effects, 1) == {("t", 0): 1, ("t", 1): 2}
    answer = effects[-1]
    assert isinstance(answer, AnswerRequest)
    assert answer.after_brokers_answered
    assert answer.result.error == ErrorCode.NONE
    assert set(answer.needed) == {1, 2}


def test_a_request_may_create_some_topics_and_refuse_others() -> None:
    machine = Machine(1)
    machine.create("old", (1,))
    creations = [TopicCreation(name) for name in ("new", "old", "twice", "twice")]
    creations += [TopicCreation("wide", 1, 2), TopicCreation("odd", configs={"bad": "1"})]
    results = answers(machine.handle(CreateTopics(9, creations)))
    assert {name: result.error for name, result in results.items()} == {
        "new": ErrorCode.NONE,
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "twice": ErrorCode.INVALID_REQUEST,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
    }
    assert results["odd"].message == "bad is not a config"


def test_validate_only_changes_nothing() -> None:
    machine = Machine(1)
    effects = machine.handle(CreateTopics(9, [TopicCreation("t", 3)], validate_only=True))
    assert [type(effect) for effect in effects] == [AnswerRequest]
    assert answers(effects)["t"].partition_count == 3
    machine.create("t", (1,))
    effects = machine.handle(CreatePartitions(9, [MorePartitions("t", 3)], validate_only=True))
    assert [type(effect) for effect in effects] == [AnswerRequest]
    assert len(machine.store.topics["t"].partitions) == 1


def test_leaders_of_small_topics_are_spread() -> None:
    machine = Machine(1, 2, 3)
    for name in ("a", "b", "c"):
        machine.handle(CreateTopics(1, [TopicCreation(name, 1, 1)]))
    assert [machine.state(name).leader for name in ("a", "b", "c")] == [1, 2, 3]


def test_added_partitions_are_written_and_sent_to_brokers() -> None:
    machine = with_topic(1, 2)
    effects = machine.handle(CreatePartitions(9, [MorePartitions("t", 2), MorePartitions("none", 2)]))
    assert [type(effect).__name__ for effect in effects[:3]] == [
        "WriteAssignments",
        "WriteStates",
        "SendToBrokers",
    ]
    assert machine.state("t", 1).leader == 2
    assert led(effects, 1) == {("t", 1): 2}
    assert answers(effects)["none"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Deletion


def test_a_topic_is_removed_once_all_its_replicas_have_answered() -> None:
    machine = with_topic(1, 2)
    effects = machine.delete("t")
    assert machine.store.deleting == ["t"]
    told = sent_to(effects, 2, UpdateMetadataRequest)[0].topic_states[0].partition_states[0]
    assert (told.leader, told.leader_epoch) == (LEADER_DURING_DELETE, EPOCH_DURING_DELETE)
    stops = [(to, request) for to, request in sent(effects) if isinstance(request, StopReplicaRequest)]
    assert [to for to, _ in stops] == [1, 2]
    assert stops[0][1].topic_states[0].partition_states[0].delete_partition
    assert answers(effects) == {}
    effects = machine.answer(1, stops[0][1], healthy_answer(stops[0][1]))
    assert "t" in machine.store.topics
    effects = machine.answer(2, stops[1][1], healthy_answer(stops[1][1]))
    assert "t" not in machine.store.topics
    assert answers(effects)["t"].error == ErrorCode.NONE
    assert answers(machine.create("t", (1,)))["t"].error == ErrorCode.NONE


def test_deletion_of_a_topic_waits_for_a_dead_broker_with_a_replica() -> None:
    machine = with_topic(1, 2)
    machine.lose(2)
    effects = machine.delete("t")
    assert not sent_to(effects, 1, StopReplicaRequest)
    assert answers(effects)["t"].error == ErrorCode.NONE  # Hidden from clients.
    assert answers(machine.create("t", (1,)))["t"].error == ErrorCode.TOPIC_ALREADY_EXISTS
    effects = machine.start(2)
    assert led(effects, 2) == {}  # A topic being deleted is not sent to brokers again.
    machine.answer_all(effects)
    assert "t" not in machine.store.topics


def test_a_broker_that_dies_during_a_deletion_gets_the_request_again() -> None:
    machine = with_topic(1, 2)
    effects = machine.delete("t")
    request = sent_to(effects, 1, StopReplicaRequest)[0]
    machine.answer(1, request, healthy_answer(request))
    machine.lose(2)
    effects = machine.start(2)
    assert sent_to(effects, 2, StopReplicaRequest)
    machine.answer_all(effects)
    assert "t" not in machine.store.topics


def test_a_replica_being_deleted_is_not_sent_a_leader_when_another_is_lost() -> None:
    machine = Machine(1, 2)
    created = machine.create("t", (1, 2))
    stops = machine.delete("t")
    machine.answer(2, *_answered(stops, 2))
    request = sent_to(created, 1, LeaderAndIsrRequest)[0]
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    effects = machine.answer(1, request, response)  # The failure of its disk is reported late.
    assert led(effects, 2) == {}


def _answered(effects: list[ControllerEffect], broker_id: int) -> tuple[StopReplicaRequest, object]:
    request = sent_to(effects, broker_id, StopReplicaRequest)[0]
    return request, healthy_answer(request)


def test_a_topic_stays_while_one_of_its_replicas_cannot_be_removed() -> None:
    machine = with_topic(1)
    request = sent_to(machine.delete("t"), 1, StopReplicaRequest)[0]
    response = healthy_answer(request)
    response.partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    machine.answer(1, request, response)
    assert "t" in machine.store.topics
    machine.answer_all(machine.start(1))
    assert "t" not in machine.store.topics


def test_every_request_to_delete_a_topic_is_answered() -> None:
    machine = with_topic(1)
    effects = machine.delete("t")
    assert answers(machine.handle(DeleteTopics(3, ["t"]))) == {}
    ended = [effect for effect in machine.answer_all(effects) if isinstance(effect, AnswerRequest)]
    assert [answer.token for answer in ended] == [2, 3]


# Brokers come and go


def test_a_dead_leader_is_replaced_by_an_in_sync_replica_with_one_request_to_each_survivor() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", *[(1, 2, 3)] * 50)
    effects = machine.lose(1)
    assert isinstance(effects[0], SetBrokers)
    assert len(writes(effects)) == 1
    assert len(writes(effects)[0].writes) == 50
    assert machine.state("t") == PartitionState(2, 1, (2, 3), 1)
    assert [(to, type(request)) for to, request in sent(effects)] == [
        (2, LeaderAndIsrRequest),
        (2, UpdateMetadataRequest),
        (3, LeaderAndIsrRequest),
        (3, UpdateMetadataRequest),
    ]
    told = sent_to(effects, 2, UpdateMetadataRequest)[0]
    assert [broker.id for broker in told.live_brokers] == [2, 3]
    assert told.topic_states[0].partition_states[0].offline_replicas == [1]


def test_the_last_in_sync_replica_stays_in_sync_and_no_other_may_lead() -> None:
    machine = with_topic(2, 1)
    machine.shrink("t", 2)
    back = machine.continuation(2)
    machine.lose(2)
    assert machine.state("t") == PartitionState(NO_LEADER, 1, (2,), 1, last_known_leader=2)
    machine.come(back)
    assert machine.state("t") == PartitionState(2, 2, (2,), 1)
    assert led(machine.effects, 1) == {("t", 0): 2}


def test_an_unclean_election_needs_the_topics_permission() -> None:
    machine = Machine(1, 2, unclean=True)
    machine.create("t", (2, 1))
    machine.shrink("t", 2)
    machine.lose(2)
    assert machine.state("t") == PartitionState(1, 1, (1,), 1)


def test_allowing_unclean_elections_elects_leaders_for_leaderless_partitions() -> None:
    machine = with_topic(2, 1)
    machine.shrink("t", 2)
    machine.lose(2)
    machine.handle(UncleanElectionEnabled("t"))
    assert machine.state("t").leader == NO_LEADER
    machine.controller._leaders._unclean_allowed = lambda topic: True
    machine.handle(UncleanElectionEnabled("t"))
    assert machine.state("t").leader == 1


def test_a_restarted_broker_loses_its_leaderships() -> None:
    machine = with_topic(2, 1)
    machine.create("alone", (2,))
    effects = machine.start(2)
    assert machine.state("t") == PartitionState(1, 1, (1,), 1)
    # Broker 2 left and returned: two leader epochs, so its old leadership is never taken for a new one.
    assert machine.state("alone") == PartitionState(2, 2, (2,), 1)
    request = sent_to(effects, 2, LeaderAndIsrRequest)[0]
    assert request.broker_epoch == machine.brokers[2].epoch
    assert request.type == FULL
    assert led(effects, 2) == {("t", 0): 1, ("alone", 0): 2}
    assert {request.type for request in sent_to(effects, 1, LeaderAndIsrRequest)} == {INCREMENTAL}


def test_a_broker_that_only_registered_again_keeps_its_leaderships() -> None:
    """Its session expired unnoticed: it keeps all its records, and is sent everything again."""
    machine = with_topic(2, 1)
    machine.create("alone", (2,))
    machine.brokers[2] = machine.registration(2)
    effects = machine.handle(BrokersChanged(dict(machine.brokers)))
    assert writes(effects) == []
    request = sent_to(effects, 2, LeaderAndIsrRequest)[0]
    assert (request.type, request.broker_epoch) == (FULL, machine.brokers[2].epoch)
    assert led(effects, 2) == {("t", 0): 2, ("alone", 0): 2}
    # It is in sync under its new epoch now.
    machine.propose("t", 2)
    machine.propose("t", 2, 1)
    assert machine.state("t").isr == (2, 1)


def test_a_broker_that_registers_again_after_its_loss_was_handled_joins_as_a_follower() -> None:
    machine = with_topic(2, 1)
    again = machine.registration(2)
    machine.lose(2)
    assert machine.state("t") == PartitionState(1, 1, (1,), 1)
    machine.brokers[2] = again
    machine.handle(BrokersChanged(dict(machine.brokers)))
    assert machine.state("t") == PartitionState(1, 1, (1,), 1)


def test_a_broker_that_registers_again_and_then_restarts_counts_as_restarted() -> None:
    machine = with_topic(2, 1)
    machine.brokers[2] = machine.registration(2)
    machine.start(2)
    assert machine.state("t") == PartitionState(1, 1, (1,), 1)


def test_a_broker_that_registers_again_gets_the_deletions_of_replicas_again() -> None:
    machine = with_topic(2, 1)
    effects = machine.delete("t")
    (unheard,) = sent_to(effects, 2, StopReplicaRequest)
    machine.answer(1, sent_to(effects, 1, StopReplicaRequest)[0], healthy_answer(unheard))
    machine.brokers[2] = machine.registration(2)
    effects = machine.handle(BrokersChanged(dict(machine.brokers)))
    assert len(sent_to(effects, 2, StopReplicaRequest)) == 1
    machine.answer_all(effects)
    assert "t" not in machine.store.topics


def test_a_partition_without_a_state_gets_a_leader_when_a_replica_registers() -> None:
    machine = with_topic(2)
    del machine.store.states["t", 0]
    machine.lose(2)
    new = Machine(1, store=machine.store, epoch=2)
    assert ("t", 0) not in new.store.states
    effects = new.start(2)
    assert new.state("t") == PartitionState(2, 0, (2,), 2)
    told = sent_to(effects, 2, LeaderAndIsrRequest)[-1].topic_states[0].partition_states[0]
    assert told.is_new


def test_a_change_of_endpoints_is_sent_to_all_brokers() -> None:
    machine = Machine(1, 2)
    machine.brokers[2] = LiveBroker(machine.brokers[1].info, machine.brokers[2].epoch)
    effects = machine.handle(BrokersChanged(dict(machine.brokers)))
    assert not writes(effects)
    assert [to for to, request in sent(effects) if isinstance(request, UpdateMetadataRequest)] == [1, 2]


def test_a_leader_on_a_failed_disk_is_replaced_while_its_broker_is_alive() -> None:
    machine = Machine(1, 2)
    effects = machine.create("t", (1, 2))
    request = sent_to(effects, 1, LeaderAndIsrRequest)[0]
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    effects = machine.answer(1, request, response)
    assert machine.state("t") == PartitionState(2, 1, (2,), 1)
    told = sent_to(effects, 2, UpdateMetadataRequest)[0].topic_states[0].partition_states[0]
    assert told.offline_replicas == [1]


def test_a_report_on_an_earlier_leader_epoch_is_ignored() -> None:
    """Answers to two requests may come in another order than the broker gave them."""
    machine = Machine(1, 2)
    first = sent_to(machine.create("t", (1, 2)), 1, LeaderAndIsrRequest)[0]
    failed = healthy_answer(first)
    failed.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    second = sent_to(machine.answer(1, first, failed), 1, LeaderAndIsrRequest)[0]
    machine.answer(1, second, healthy_answer(second))
    machine.answer(1, first, failed)
    assert machine.controller.state.may_lead(TopicPartition("t", 0)) == (1, 2)


def test_an_answer_from_an_earlier_registration_of_a_broker_is_ignored() -> None:
    machine = Machine(1, 2)
    effects = machine.create("t", (1, 2))
    request = sent_to(effects, 1, LeaderAndIsrRequest)[0]
    response = healthy_answer(request)
    response.topics[0].partition_errors[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    assert machine.handle(BrokerAnswered(1, machine.brokers[1].epoch - 1, request, response)) == []


# Controlled shutdown


def test_a_controlled_shutdown_moves_leadership_off_the_broker() -> None:
    machine = Machine(1, 2, 3)
    machine.create("led", (1, 2, 3))
    machine.create("followed", (2, 1))
    machine.create("alone", (1,))
    effects = machine.handle(ControlledShutdown(7, 1, machine.brokers[1].epoch))
    assert machine.state("led") == PartitionState(2, 1, (2, 3), 1)
    assert machine.state("followed") == PartitionState(2, 1, (2,), 1)
    assert machine.state("alone") == PartitionState(1, 0, (1,), 1)
    assert answers(effects)[None].remaining == ()
    stopped = sent_to(effects, 1, StopReplicaRequest)[0]
    assert [topic.topic_name for topic in stopped.topic_states] == ["led", "followed"]
    assert not any(row.delete_partition for topic in stopped.topic_states for row in topic.partition_states)
    # No new replica is placed on it, and its end does not change these partitions again.
    machine.handle(CreateTopics(8, [TopicCreation("new", 3, 2)]))
    assert all(1 not in each.replicas for each in machine.store.topics["new"].partitions.values())
    machine.lose(1)
    assert machine.state("led").leader_epoch == 1


def test_a_broker_without_replacement_is_answered_with_the_partitions_it_still_leads() -> None:
    machine = with_topic(1, 2)
    machine.shrink("t", 1)
    effects = machine.handle(ControlledShutdown(7, 1))
    assert answers(effects)[None].remaining == (("t", 0),)
    assert machine.state("t").leader == 1


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [(9, -1, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 5, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_a_controlled_shutdown_of_an_unknown_broker_is_refused(
    broker_id: int, epoch: int, error: ErrorCode
) -> None:
    machine = Machine(1)
    assert answers(machine.handle(ControlledShutdown(7, broker_id, epoch)))[None].error == error
    assert machine.controller.state.shutting_down == {}


# In-sync sets


def proposal(
    machine: Machine,
    *isr: int,
    topic: str = "t",
    epochs: dict[int, int] | None = None,
    **fields: int,
) -> AlterPartitionRequest:
    topic_id = machine.controller.state.topics[topic].topic_id
    return isr_proposal(topic_id, isr, machine.epochs() | (epochs or {}), **fields)


def altered(machine: Machine, *requests: AlterPartitionRequest) -> list[AlterPartitionResponse]:
    effects = machine.handle(AlterPartitions(list(enumerate(requests))))
    return [effect.result for effect in effects if isinstance(effect, AnswerRequest)]


def test_queued_in_sync_proposals_become_one_write() -> None:
    machine = with_topic(1, 2)
    machine.create("u", (2, 1))
    effects = machine.handle(
        AlterPartitions([(5, proposal(machine, 1)), (6, proposal(machine, 2, broker_id=2, topic="u"))])
    )
    assert [type(effect) for effect in effects] == [WriteStates, AnswerRequest, AnswerRequest, SendToBrokers]
    assert machine.state("t").isr == (1,)
    assert machine.state("u").isr == (2,)
    # Followers need no LeaderAndIsr; clients and brokers need the metadata.
    assert {type(request) for _, request in sent(effects)} == {UpdateMetadataRequest}


def test_a_repeated_in_sync_proposal_is_confirmed_again() -> None:
    machine = with_topic(1, 2)
    altered(machine, proposal(machine, 1))
    row = altered(machine, proposal(machine, 1))[0].topics[0].partitions[0]
    assert (row.error_code, row.partition_epoch, row.isr) == (ErrorCode.NONE, 1, [1])


def test_two_copies_of_an_in_sync_proposal_in_one_round_have_one_outcome() -> None:
    machine = Machine(1, 2)
    machine.create("t", (1, 2))
    responses = altered(machine, proposal(machine, 1), proposal(machine, 1))
    rows = [response.topics[0].partitions[0] for response in responses]
    assert [(row.error_code, row.partition_epoch, row.isr) for row in rows] == [(ErrorCode.NONE, 1, [1])] * 2
    assert machine.store.states["t", 0][1] == 1


def test_a_leader_with_an_outdated_state_is_sent_the_current_one() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (1, 2, 3))
    altered(machine, proposal(machine, 1))
    effects = machine.handle(AlterPartitions([(5, proposal(machine, 1, 2, partition_epoch=0))]))
    (request,) = sent_to(effects, 1, LeaderAndIsrRequest)
    (row,) = request.topic_states[0].partition_states
    assert (row.isr, row.partition_epoch) == ([1], 1)


def test_a_proposal_that_meets_an_unknown_state_is_refused_and_its_leader_sent_that_state() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (1, 2, 3))
    machine.store.states["t", 0] = (PartitionState(1, 0, (1, 3), 1), 4)
    effects = machine.handle(AlterPartitions([(5, proposal(machine, 1)), (6, proposal(machine, 1))]))
    for token in (0, 1):
        answer = [effect.result for effect in effects if isinstance(effect, AnswerRequest)][token]
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    (request,) = sent_to(effects, 1, LeaderAndIsrRequest)
    (row,) = request.topic_states[0].partition_states
    assert (row.isr, row.partition_epoch) == ([1, 3], 4)


def test_in_sync_proposals_based_on_an_outdated_state_are_refused() -> None:
    machine = with_topic(1, 2, brokers=3)
    altered(machine, proposal(machine, 1))
    machine.create("gone", (1,))
    gone = proposal(machine, 1, topic="gone")
    machine.answer_all(machine.delete("gone"))
    cases = [
        (proposal(machine, 1, 2, partition_epoch=0), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(machine, 1, 2, partition_epoch=9), ErrorCode.NOT_CONTROLLER),
        (proposal(machine, 1, 2, partition_epoch=1, leader_epoch=1), ErrorCode.NOT_CONTROLLER),
        (proposal(machine, 1, 2, partition_epoch=1, leader_epoch=-1), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(machine, 1, 2, partition_epoch=1, broker_id=2), ErrorCode.INVALID_REQUEST),
        (proposal(machine, 2, partition_epoch=1), ErrorCode.INVALID_REQUEST),
        (proposal(machine, 1, 3, partition_epoch=1), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(machine, 1, 2, partition_epoch=1, epochs={2: 5}), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(machine, 1, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (gone, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    for request, error in cases:
        assert altered(machine, request)[0].topics[0].partitions[0].error_code == error
    assert machine.state("t").isr == (1,)
    stale = proposal(machine, 1, 2, partition_epoch=1, epochs={1: 5})
    assert altered(machine, stale)[0].error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_dead_or_stopping_broker_cannot_join_the_in_sync_set() -> None:
    machine = with_topic(1, 2, 3)
    machine.handle(ControlledShutdown(7, 2))
    machine.lose(3)
    state, version = machine.store.states["t", 0]
    for member in (2, 3):
        request = proposal(machine, 1, member, leader_epoch=state.leader_epoch, partition_epoch=version)
        row = altered(machine, request)[0].topics[0].partitions[0]
        assert row.error_code == ErrorCode.INELIGIBLE_REPLICA


# Preferred leaders


def test_leadership_returns_to_preferred_leaders() -> None:
    machine = Machine(1, 2)
    machine.create("t", (1, 2), (2, 1))
    machine.lose(1)
    machine.start(1)
    effects = machine.handle(ElectLeaders(5, [("t", 0), ("t", 1), ("x", 0)]))
    assert answers(effects)[None] == {
        ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for partition in (0, 1):
        machine.propose("t", 2, 1, partition=partition)
    effects = machine.handle(ElectLeaders(6, None))
    assert answers(effects)[None] == {("t", 0): ErrorCode.NONE}
    assert machine.state("t").leader == 1
    assert led(effects, 2) == {("t", 0): 1}


def test_a_requested_unclean_election_elects_any_live_replica() -> None:
    machine = Machine(1, 2)
    machine.create("stuck", (2, 1))
    machine.shrink("stuck", 2)
    machine.create("gone", (2,))
    machine.create("led", (1,))
    machine.lose(2)
    asked = [("stuck", 0), ("gone", 0), ("led", 0), ("none", 0)]
    effects = machine.handle(ElectLeaders(5, asked, unclean=True))
    assert answers(effects)[None] == {
        ("stuck", 0): ErrorCode.NONE,
        ("gone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("led", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert machine.state("stuck") == PartitionState(1, 2, (1,), 1)
    assert answers(machine.handle(ElectLeaders(6, None, unclean=True)))[None] == {
        ("gone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    }


def test_balancing_starts_above_the_imbalance_threshold() -> None:
    machine = Machine(1, 2)
    machine.create("t", *[(1, 2)] * 20)
    state = machine.controller.state
    for number in range(2):
        partition = state.partition(("t", number))
        assert partition.state is not None
        partition.state = PartitionState(2, 1, (1, 2), 1)
        machine.store.states["t", number] = (partition.state, 0)
    assert machine.handle(BalanceDue()) == []
    partition = state.partition(("t", 2))
    partition.state = PartitionState(2, 1, (1, 2), 1)
    machine.store.states["t", 2] = (partition.state, 0)
    machine.handle(BalanceDue())
    assert [machine.state("t", number).leader for number in range(4)] == [1, 1, 1, 1]


# The next controller


def test_a_new_controller_finishes_the_unfinished_work_of_the_last() -> None:
    old = with_topic(1, 2, 3)
    old.create("half", (2, 3))
    old.create("going", (2,))
    old.delete("going")
    del old.store.states["half", 0]  # It had created the topic, but elected no leader.
    old.store.deleting.append("gone")  # It had removed the topic, but not the deletion mark.
    new = Machine(2, 3, store=old.store, epoch=2, brokers={each: old.brokers[each] for each in (2, 3)})
    assert new.state("t") == PartitionState(2, 1, (2, 3), 2)
    assert new.state("half") == PartitionState(2, 0, (2, 3), 2)
    assert RemoveTopic("gone") in new.effects
    for broker_id in (2, 3):
        request = sent_to(new.effects, broker_id, LeaderAndIsrRequest)[0]
        assert (request.type, request.controller_id, request.controller_epoch) == (FULL, 2, 2)
        assert led(new.effects, broker_id) == {("t", 0): 2, ("half", 0): 2}
    new.answer_all(new.effects)
    assert "going" not in new.store.topics


def test_a_new_controller_of_a_healthy_cluster_writes_nothing() -> None:
    old = with_topic(1, 2)
    new = Machine(2, 1, store=old.store, epoch=2, brokers=old.brokers)
    assert writes(new.effects) == []
    assert led(new.effects, 1) == {("t", 0): 1}


def test_a_new_controller_detects_restarts_during_the_absence_of_a_controller() -> None:
    old = with_topic(2, 1, 3)
    old.create("alone", (2,))
    new = Machine(1, store=old.store, epoch=2, brokers={**old.brokers, 2: old.life(2)})
    assert new.state("t") == PartitionState(1, 1, (1, 3), 2)
    # Broker 2 left and returned: two leader epochs, so its old leadership is never taken for a new one.
    assert new.state("alone") == PartitionState(2, 2, (2,), 2)
    assert led(new.effects, 2) == {("t", 0): 1, ("alone", 0): 2}


def test_brokers_that_only_registered_again_without_a_controller_stay_eligible_as_leaders() -> None:
    """During a ZooKeeper outage longer than a session one broker dies: the others have all acknowledged
    records and need not wait for it."""
    old = Machine(1, 2, 3)
    old.create("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    brokers = {each: old.registration(each) for each in (2, 3)}
    new = Machine(3, store=old.store, epoch=2, brokers=brokers)
    assert [(new.state("t", each).leader, new.state("t", each).isr) for each in range(3)] == [
        (2, (2, 3)),
        (2, (2, 3)),
        (3, (3, 2)),
    ]
    # One epoch later only: there was no other leader meanwhile.
    assert [new.state("t", each).leader_epoch for each in range(3)] == [1, 1, 1]
    assert new.store.recorded_epochs == {each: old.brokers[each].start_epoch for each in (1, 2, 3)}


def test_a_broker_that_registers_again_between_two_controllers_counts_as_the_same_process() -> None:
    """After an outage the first broker that is back becomes controller, and dies before the next one is
    back."""
    old = with_topic(1, 3)
    late = old.registration(3)
    first = Machine(2, store=old.store, epoch=2, brokers={2: old.registration(2)})
    assert first.state("t") == PartitionState(NO_LEADER, 1, (1, 3), 2, last_known_leader=1)
    second = Machine(3, store=old.store, epoch=3, brokers={3: late})
    assert second.state("t") == PartitionState(3, 2, (3,), 3)


def test_after_a_zookeeper_outage_survived_by_all_brokers_nothing_is_written() -> None:
    old = Machine(1, 2, 3)
    old.create("t", (1, 2, 3), (2, 3, 1))
    brokers = {each: old.registration(each) for each in (1, 2, 3)}
    new = Machine(3, store=old.store, epoch=2, brokers=brokers)
    assert writes(new.effects) == []
    assert {request.broker_epoch for request in sent_to(new.effects, 1, LeaderAndIsrRequest)} == {
        brokers[1].epoch
    }


def test_a_partition_waits_for_an_in_sync_replica_that_survived_while_others_restarted() -> None:
    """The broker that is back may have lost its tail; the dead one and the late one have not."""
    old = Machine(1, 2, 3)
    old.create("t", (2, 1, 3), (1, 2, 3))
    old.create("u", (3, 2), (2, 3))
    late = old.registration(3)
    new = Machine(2, store=old.store, epoch=2, brokers={2: old.life(2)})
    states = [new.state(*at) for at in (("t", 0), ("t", 1), ("u", 0), ("u", 1))]
    assert [(state.leader, state.isr) for state in states] == [
        (NO_LEADER, (1, 3)),
        (NO_LEADER, (1, 3)),
        (NO_LEADER, (3,)),
        (NO_LEADER, (3,)),
    ]
    new.brokers[3] = late
    new.handle(BrokersChanged(dict(new.brokers)))
    states = [new.state(*at) for at in (("t", 0), ("t", 1), ("u", 0), ("u", 1))]
    assert [(state.leader, state.isr) for state in states] == [(3, (3,))] * 4


def test_a_restarted_broker_does_not_lead_while_a_member_lost_with_it_may_have_everything() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (2, 3))
    survivor = machine.registration(3)
    machine.lose(2, 3)
    assert machine.state("t").isr == (2, 3)
    machine.start(2)
    assert (machine.state("t").leader, machine.state("t").isr) == (NO_LEADER, (3,))
    machine.brokers[3] = survivor
    machine.handle(BrokersChanged(dict(machine.brokers)))
    assert (machine.state("t").leader, machine.state("t").isr) == (3, (3,))


def test_a_restarted_broker_does_not_lead_after_a_controller_missed_the_loss_of_all_members() -> None:
    old = Machine(1, 2, 3)
    old.create("t", (2, 3))
    machine = Machine(1, store=old.store, epoch=2, brokers={1: old.brokers[1]})
    assert machine.state("t") == PartitionState(NO_LEADER, 1, (2, 3), 2, last_known_leader=2)
    machine.start(2)
    assert (machine.state("t").leader, machine.state("t").isr) == (NO_LEADER, (3,))
    machine.tell_log_ends(machine.start(3), {2: (0, 4), 3: (0, 5)})
    assert (machine.state("t").leader, machine.state("t").isr) == (3, (3,))


def test_a_broker_that_only_lost_its_session_leads_after_the_loss_of_all_members() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (2, 3))
    survivor = machine.registration(2)
    machine.lose(2, 3)
    machine.brokers[2] = survivor
    machine.handle(BrokersChanged(dict(machine.brokers)))
    assert (machine.state("t").leader, machine.state("t").isr) == (2, (2,))


def test_the_longest_log_of_members_that_restarted_together_leads() -> None:
    machine = Machine(1, 2, 3)
    machine.create("t", (2, 3))
    machine.lose(2, 3)
    machine.tell_log_ends(machine.start(2, 3), {2: (0, 4), 3: (0, 5)})
    assert (machine.state("t").leader, machine.state("t").isr) == (3, (3,))


def test_a_restart_is_detected_although_the_last_controller_wrote_the_state_after_it() -> None:
    """The last controller had not read the brokers again, and counted the restarted broker as in sync."""
    old = with_topic(2, 1, 3)
    returned = old.life(2)
    old.propose("t", 2, 1)
    old.store.zxid = returned.epoch + 1
    new = Machine(1, store=old.store, epoch=2, brokers={**old.brokers, 2: returned})
    assert new.state("t") == PartitionState(1, 1, (1,), 2)


@pytest.mark.parametrize("written", range(4))
def test_the_next_controller_handles_a_restart_wherever_the_last_one_stopped(written: int) -> None:
    old = with_topic(2, 1, 3)
    old.create("u", (2, 3, 1))
    brokers = {**old.brokers, 2: old.life(2)}
    old.handle(BrokersChanged(brokers), cut=written)
    new = Machine(1, store=old.store, epoch=2, brokers=brokers)
    for name, leader in (("t", 1), ("u", 3)):
        assert new.state(name).leader == leader
        assert sorted(new.state(name).isr) == [1, 3]
    assert new.store.recorded_epochs == {each: broker.epoch for each, broker in brokers.items()}


def test_a_broker_whose_restart_was_handled_stays_in_sync_under_the_next_controller() -> None:
    old = with_topic(2, 1)
    old.start(2)
    old.propose("t", 1, 2)
    assert old.state("t").isr == (1, 2)
    new = Machine(1, store=old.store, epoch=2, brokers=old.brokers)
    assert writes(new.effects) == []


def test_without_recorded_start_epochs_a_restart_is_detected_by_transaction_ids() -> None:
    old = with_topic(2, 1, 3)
    old.create("alone", (2,))
    old.store.recorded_epochs = None  # As after a Kafka controller.
    brokers = {1: old.life(1), 3: old.life(3), 2: old.life(2)}
    old.store.zxid = brokers[3].epoch
    new = Machine(1, store=old.store, epoch=2, brokers=brokers)
    assert new.state("t") == PartitionState(1, 1, (1, 3), 2)
    assert new.state("alone") == PartitionState(2, 2, (2,), 2)


def test_a_partition_whose_state_znode_is_newer_is_decided_again() -> None:
    machine = with_topic(1, 2, 3)
    # For example after a lost answer: the znode is newer than the controller's copy.
    machine.store.states["t", 0] = (PartitionState(1, 0, (1, 3), 1), 4)
    effects = machine.lose(1)
    assert len(writes(effects)) == 2
    assert machine.state("t") == PartitionState(3, 1, (3,), 1)


def test_a_partition_whose_state_znode_was_removed_is_left_alone() -> None:
    machine = with_topic(1, 2)
    del machine.store.states["t", 0]
    machine.lose(1)
    assert ("t", 0) not in machine.store.states
