"""Controlled shutdown: leadership moves to brokers that can take over, and no broker waits for others."""

from __future__ import annotations

import pytest

from holdfast_log.broker.replication.partition import Partition
from tests.models.network import Weather
from tests.models.world import World
from tests.sim.checkpoint_judge import CheckpointJudge
from tests.sim.cluster import Machine, logs_in_trace
from tests.sim.history import Outcome
from tests.sim.producer import ProducerHabits
from tests.sim.test_cluster import AT, Stage

WORLD_SEED = 3


def stop(stage: Stage, *broker_ids: int) -> None:
    machines = [stage.cluster.machine(broker_id) for broker_id in broker_ids]
    for machine in machines:
        machine.stop()
    stage.until(lambda: not any(machine.is_up for machine in machines))


def tries(world: World) -> list[str]:
    """Log lines of shutdown attempts after which a broker still leads some partition."""
    return [line for line in world.trace.lines if "Controlled shutdown, attempt" in line]


def test_the_only_broker_stops_without_a_handover(world: World) -> None:
    stage = Stage(world, 1, {})
    stage.produce(1)
    stop(stage, 1)
    assert tries(world) == []


def test_brokers_that_stop_in_turn_ask_for_controlled_shutdown_once(world: World) -> None:
    stage = Stage(world, 3, {})
    stage.produce(1)
    for broker_id in (3, 2, 1):
        stop(stage, broker_id)
    # The controller may not have noticed yet that the previous broker has stopped. It does before attempt 2.
    assert all("attempt 1 of" in line for line in tries(world))


def test_brokers_that_stop_together_ask_for_controlled_shutdown_once(world: World) -> None:
    stage = Stage(world, 3, {})
    stage.produce(1)
    stop(stage, 1, 2, 3)
    # One broker may still lead after its first attempt, while the others stop, but not after its second.
    assert all("attempt 1 of" in line for line in tries(world))


@pytest.mark.parametrize("seed", range(1, 9))
def test_rolling_restarts_lose_no_record_that_only_the_leader_acknowledged(seed: int) -> None:
    """With acks=1, records can be lost when the leader is killed. A leader that shuts down in order waits
    until its followers have copied them before another broker leads."""
    world = World(seed)
    with logs_in_trace(world):
        stage = Stage(world, 3, {}, ProducerHabits(1, interval_ms=20, in_flight_max=1))
        stage.cluster.network.weather = Weather(delay_ms_max=20.0)
        stage.producer.start()
        for machine in stage.cluster.machines * 2:
            world.run(1)
            machine.stop()
            stage.until(lambda machine=machine: not machine.is_up)
            world.run(1)
            machine.start()
            stage.until(stage.cluster.is_whole)
        stage.producer.is_making = False
        stage.until(lambda: stage.producer.is_idle)
    stored = set(stage.cluster.machine(stage.leader()).stored(AT).values.values())
    acknowledged = [batch for batch in stage.history.batches if batch.outcome is Outcome.ACKED]
    lost = [str(batch) for batch in acknowledged if not stored.issuperset(batch.values)]
    assert len(acknowledged) > 100
    assert lost == []
    assert world.problems == []


@pytest.mark.parametrize("world", [1, 2], indirect=True)
def test_a_leader_that_stops_while_it_is_cut_off_knows_no_producer_of_what_it_truncates(world: World) -> None:
    """Its stop writes a snapshot of the producers at the end of its log. Other brokers lead meanwhile,
    without its last records."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    stage.producer.start()
    world.run(2)
    leader, network = stage.cluster.machine(stage.leader()), stage.cluster.network
    for other in stage.cluster.machines:
        if other is not leader:
            network.cut(leader.name, other.name)
            network.cut(other.name, leader.name)
    end_offset = partition_of(leader).log.log_end_offset
    stage.until(lambda: partition_of(leader).log.log_end_offset > end_offset + 1)
    leader.cut_off_zookeeper()
    stop(stage, leader.broker_id)
    network.heal()
    leader.mend_zookeeper()
    stage.until(lambda: stage.leader() not in (leader.broker_id, -1))
    judge = CheckpointJudge(stage.cluster, stage.history)
    with judge.watching():
        leader.start()
        stage.until(stage.cluster.is_whole)
    assert any("Truncated the log of t-0" in line for line in world.trace.lines)
    assert stage.history.violations == []


def partition_of(machine: Machine) -> Partition:
    partition = machine.partition(AT)
    assert partition is not None
    return partition
