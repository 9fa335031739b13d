"""Recovery times are measured from the end of a fault until a partition accepts acks=all again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.world import World
from tests.sim.cluster import logs_in_trace
from tests.sim.recovery_times import RECOVERY_S_MAX, RecoveryTimes, distribution
from tests.sim.test_cluster import AT, Stage


class Measured:
    """Three brokers with one partition, and the measured times that it takes to recover."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.times = RecoveryTimes(self.stage.cluster, world)


@pytest.fixture
def measured() -> Iterator[Measured]:
    world = World(7)
    with logs_in_trace(world):
        yield Measured(world)


def test_a_cluster_that_works_recovers_at_once(measured: Measured) -> None:
    measured.times.faults_ended()
    measured.world.run(1)
    assert len(measured.times.times_s) == 1
    assert measured.times.times_s[0] < 0.5


def test_a_partition_whose_leader_is_paused_recovers_when_another_broker_leads(measured: Measured) -> None:
    measured.stage.cluster.machine(measured.stage.leader()).pause()
    measured.times.faults_ended()
    measured.world.run(3)
    assert measured.times.times_s == [], "its session has not ended"
    measured.stage.until(lambda: bool(measured.times.times_s))
    assert measured.stage.epoch() > 0
    assert 3 < measured.times.times_s[0] < 20


def test_a_partition_with_too_few_replicas_in_sync_does_not_recover(measured: Measured) -> None:
    leader = measured.stage.leader()
    for machine in measured.stage.cluster.machines:
        if machine.broker_id != leader:
            machine.kill()
    measured.times.faults_ended()
    measured.world.run(RECOVERY_S_MAX - 1)
    assert (measured.times.times_s, measured.times.late) == ([], [])
    measured.world.run(2)
    assert measured.times.late == [AT]


def test_a_partition_that_another_fault_strikes_is_not_counted(measured: Measured) -> None:
    machine = measured.stage.cluster.machine(measured.stage.leader())
    machine.pause()
    measured.times.faults_ended()
    measured.world.run(1)
    measured.times.fault_began()
    machine.resume()
    measured.world.run(5)
    assert measured.times.times_s == []


def test_a_distribution_has_the_median_the_99th_percentile_and_the_maximum() -> None:
    assert distribution([]) == "no recovery was measured"
    times = [float(number) for number in range(200, 0, -1)]
    assert distribution(times).endswith("after p50 100.0 s, p99 198.0 s, max 200.0 s")
