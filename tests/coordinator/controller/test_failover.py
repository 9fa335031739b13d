"""The controller dies after any effect of any decision, and the next one reaches the same final state.

Each scenario runs once for each effect of its event, cut after the first, the second and so on. A new machine
then reads the store. The client sends its request again, as after a missing answer, and the brokers continue.
The final state must equal that of a run in which the controller does not die.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast_log.coordinator.controller.effects import ZnodeRequest
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    AlterReassignments,
    BrokersChanged,
    ControlledShutdown,
    ControllerEvent,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    MorePartitions,
    TopicCreation,
    ZnodeRequested,
)
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine, Store, sent

BROKERS = (1, 2, 3, 4)
Outcome = dict[TopicPartition, tuple[ReplicaAssignment, int, tuple[int, ...]]]


@dataclass(frozen=True)
class Scenario:
    """`prepare` sets up a cluster; the controller dies while it handles `event`."""

    prepare: Callable[[Machine], None]
    event: Callable[[Machine], ControllerEvent]
    again: bool = True
    """Whether a client sends its request again."""


def topic(machine: Machine) -> None:
    machine.create("t", (1, 2), (2, 1))


def moving(machine: Machine) -> None:
    topic(machine)
    machine.handle(AlterReassignments(5, {("t", 0): (3, 4), ("t", 1): (2, 3)}))


def half_moved(machine: Machine) -> None:
    moving(machine)
    machine.propose("t", 1, 2, 3)


def led_by_others(machine: Machine) -> None:
    topic(machine)
    machine.lose(1)
    machine.start(1)
    machine.propose("t", 2, 1)


def ordered(machine: Machine) -> None:
    topic(machine)
    machine.store.znode_requests[ZnodeRequest.REASSIGNMENT] = {("t", 0): (3, 4), ("t", 1): (4, 3)}


def brokers_without(*gone: int) -> Callable[[Machine], ControllerEvent]:
    def event(machine: Machine) -> ControllerEvent:
        for broker_id in gone:
            machine.brokers.pop(broker_id, None)
        return BrokersChanged(dict(machine.brokers))

    return event


def caught_up(*isr: int) -> Callable[[Machine], ControllerEvent]:
    return lambda machine: AlterPartitions([(3, machine.proposal("t", *isr))])


SCENARIOS = {
    "create a topic": Scenario(
        lambda machine: None,
        lambda machine: CreateTopics(1, [TopicCreation("t", assignments={0: (1, 2), 1: (2, 3)})]),
    ),
    "add partitions": Scenario(topic, lambda machine: CreatePartitions(1, [MorePartitions("t", 4)])),
    "delete a topic": Scenario(topic, lambda machine: DeleteTopics(1, ["t"])),
    "a leader dies": Scenario(topic, brokers_without(1), again=False),
    "a broker dies in the midst of a move": Scenario(half_moved, brokers_without(2), again=False),
    "a new replica dies": Scenario(half_moved, brokers_without(3), again=False),
    "controlled shutdown": Scenario(topic, lambda machine: ControlledShutdown(1, 1)),
    "preferred leaders": Scenario(led_by_others, lambda machine: ElectLeaders(1, None)),
    "move": Scenario(topic, lambda machine: AlterReassignments(1, {("t", 0): (3, 4), ("t", 1): (4, 2)})),
    "move what is in sync": Scenario(topic, lambda machine: AlterReassignments(1, {("t", 0): (2,)})),
    "reorder": Scenario(topic, lambda machine: AlterReassignments(1, {("t", 0): (2, 1)})),
    "the last new replica is in sync": Scenario(half_moved, caught_up(1, 2, 3, 4)),
    "cancel": Scenario(half_moved, lambda machine: AlterReassignments(1, {("t", 0): None})),
    "move elsewhere": Scenario(half_moved, lambda machine: AlterReassignments(1, {("t", 0): (2, 4)})),
    "an order in ZooKeeper": Scenario(
        ordered, lambda machine: ZnodeRequested(ZnodeRequest.REASSIGNMENT), again=False
    ),
}


def run(scenario: Scenario, cut: int | None) -> tuple[Machine, list[Machine]]:
    """The last controller, and all controllers of the run."""
    first = Machine(*BROKERS, store=Store())
    scenario.prepare(first)
    effects = first.handle(scenario.event(first), cut=cut)
    if cut is None or len(effects) < cut:
        settle(first)
        return first, [first]
    second = Machine(*first.brokers, store=copy.deepcopy(first.store), epoch=2, brokers=first.brokers)
    if scenario.again:
        second.handle(scenario.event(second))
    settle(second)
    return second, [first, second]


def settle(machine: Machine) -> None:
    """Let brokers answer and replicas catch up, until nothing changes."""
    machine.answer_all(machine.effects)
    for name in list(machine.store.topics):
        for number in machine.store.topics[name].partitions:
            replicas = machine.store.topics[name].partitions[number].replicas
            state = machine.state(name, number)
            alive = [each for each in replicas if each in machine.brokers and each not in state.isr]
            if state.leader in machine.brokers and not machine.controller.state.shutting_down:
                machine.propose(name, *state.isr, *alive, partition=number)


def outcome(machine: Machine) -> Outcome:
    """The assignments, leaders and in-sync sets of all partitions."""
    found = {}
    for name, assigned in machine.store.topics.items():
        for number, assignment in assigned.partitions.items():
            state = machine.state(name, number)
            found[name, number] = (assignment, state.leader, tuple(sorted(state.isr)))
    return found


def kept(machines: list[Machine]) -> dict[tuple[int, TopicPartition], None]:
    """The replicas that live brokers have after handling all their requests in order."""
    logs: dict[tuple[int, TopicPartition], None] = {}
    for machine in machines:
        for broker_id, request in sent(machine.effects):
            if isinstance(request, LeaderAndIsrRequest):
                for topic in request.topic_states:
                    for row in topic.partition_states:
                        logs[broker_id, (topic.topic_name, row.partition_index)] = None
            elif isinstance(request, StopReplicaRequest):
                for stopped in request.topic_states:
                    for gone in stopped.partition_states:
                        if gone.delete_partition:
                            logs.pop((broker_id, (stopped.topic_name, gone.partition_index)), None)
    last = machines[-1]
    return {key: None for key in sorted(logs) if key[0] in last.brokers}


def cuts() -> list[tuple[str, int]]:
    found = []
    for name, scenario in SCENARIOS.items():
        machine = Machine(*BROKERS, store=Store())
        scenario.prepare(machine)
        effects = machine.handle(scenario.event(machine))
        found += [(name, cut) for cut in range(1, len(effects) + 1)]
    return found


@pytest.mark.parametrize(("name", "cut"), cuts())
def test_the_next_controller_reaches_the_same_final_state(name: str, cut: int) -> None:
    undisturbed, alone = run(SCENARIOS[name], None)
    left, both = run(SCENARIOS[name], cut)

    assert outcome(left) == outcome(undisturbed)
    assert kept(both) == kept(alone)
    assert left.store.deleting == undisturbed.store.deleting
    assert left.store.znode_requests == undisturbed.store.znode_requests
    for at, (state, _) in left.store.states.items():
        assert state.leader_epoch >= both[0].store.states.get(at, (state, 0))[0].leader_epoch
