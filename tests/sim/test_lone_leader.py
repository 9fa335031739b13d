"""A leader whose followers are all away serves what it knew to be committed before it was stopped."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.names import HIGH_WATERMARKS
from tests.models.world import World
from tests.sim.cluster import LOG_DIRECTORIES, Machine
from tests.sim.test_cluster import AT, Stage
from tests.sim.test_stop import stop

WORLD_SEED = 3
LONE = range(1, 4)


def stage_with_records(world: World) -> Stage:
    """Three brokers with acknowledged records, all of which every broker knows to be committed."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    acknowledged = stage.produce(2)
    assert acknowledged > 20
    stage.until(lambda: {known(machine) for machine in stage.cluster.machines} == {acknowledged})
    return stage


def known(machine: Machine) -> int:
    """The high watermark that a broker knows; -1 if it has no replica."""
    partition = machine.partition(AT)
    return -1 if partition is None else partition.high_watermark


def checkpointed(machine: Machine) -> int:
    """The high watermark in a machine's checkpoints; -1 if there is none."""
    lines = [
        line.split()
        for directory in LOG_DIRECTORIES
        for line in (machine.disk.peek(f"{directory}/{HIGH_WATERMARKS}") or b"").decode().splitlines()
    ]
    return next((int(line[2]) for line in lines if line[:2] == [AT[0], str(AT[1])]), -1)


@pytest.mark.parametrize("world", LONE, indirect=True)
@pytest.mark.parametrize("lone", [2, 3])
def test_the_only_broker_that_is_back_after_an_orderly_stop_of_all_serves_every_record(
    world: World, lone: int
) -> None:
    """Too few replicas are in sync to commit anything: the leader can serve only what it remembers. The
    broker that was stopped last is in sync; it has left the one before it eligible."""
    stage = stage_with_records(world)
    for broker_id in (1, 2, 3):
        stop(stage, broker_id)
    stage.cluster.machine(lone).start()
    stage.until(lambda: stage.leader() == lone)
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == stage.acknowledged())
    assert stage.cluster.states()[AT].isr == (lone,)
    assert stage.history.violations == []


@pytest.mark.parametrize("world", LONE, indirect=True)
def test_a_broker_that_is_killed_before_it_has_a_role_forgets_nothing(world: World) -> None:
    """Its periodic checkpoint must keep the entries of partitions that the controller has not assigned."""
    stage = stage_with_records(world)
    machine = next(each for each in stage.cluster.machines if each.broker_id != stage.leader())
    stop(stage, machine.broker_id)
    for other in stage.cluster.machines:
        if other is not machine:
            stage.cluster.network.cut(other.name, machine.name)
    machine.start()
    world.run(8)  # The checkpoint of high watermarks is written every two seconds.
    assert machine.partitions() == []
    machine.kill()
    assert checkpointed(machine) == stage.acknowledged()


def test_killed_brokers_know_what_was_committed_when_they_wrote_their_last_checkpoints(world: World) -> None:
    stage = stage_with_records(world)
    world.run(3)  # The checkpoint is written every two seconds.
    for machine in stage.cluster.machines:
        machine.kill()
    assert {checkpointed(machine) for machine in stage.cluster.machines} == {stage.acknowledged()}
    lone = stage.cluster.machine(stage.leader())
    lone.start()
    stage.until(lambda: known(lone) == stage.acknowledged())
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == stage.acknowledged())
    assert stage.history.violations == []
