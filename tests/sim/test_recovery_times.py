"""Recovery times are measured from the end of a fault until a partition accepts acks=all again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.world import World
from tests.sim.cluster import logs_in_trace
from tests.sim.recovery_record import ENOUGH, RecoveryRecord
from tests.sim.recovery_times import RECOVERY_S_MAX, Distribution, RecoveryTimes, distribution
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
    with pytest.raises(ValueError, match="no recovery"):
        distribution([])
    times = [float(number) for number in range(200, 0, -1)]
    assert str(distribution(times)) == "p50 100.0 s, p99 198.0 s, max 200.0 s"


class TestTheRunBefore:
    USUAL = Distribution(ENOUGH, 0.2, 4.0, 5.0)
    LATER = Distribution(ENOUGH, 0.2, 6.0, 7.0)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "records" / "recoveries.json"

    def test_the_first_run_is_recorded(self, path: Path) -> None:
        assert RecoveryRecord(path).compare(self.USUAL) == ("no run before had these seeds", True)
        said, is_acceptable = RecoveryRecord(path).compare(self.USUAL)
        assert (said, is_acceptable) == (f"the run before: {self.USUAL}", True)

    def test_later_recoveries_fail_until_the_record_is_removed(self, path: Path) -> None:
        RecoveryRecord(path).compare(self.USUAL)
        for _ in range(2):
            said, is_acceptable = RecoveryRecord(path).compare(self.LATER)
            assert not is_acceptable
            assert str(self.USUAL) in said
            assert str(path) in said
        path.unlink()
        assert RecoveryRecord(path).compare(self.LATER)[1]

    def test_each_run_replaces_the_one_before(self, path: Path) -> None:
        for run in (self.LATER, self.USUAL):
            assert RecoveryRecord(path).compare(run)[1]
        assert not RecoveryRecord(path).compare(self.LATER)[1]

    @pytest.mark.parametrize("few", [0, 1])
    def test_few_recoveries_are_not_judged(self, path: Path, few: int) -> None:
        runs = [self.USUAL, self.LATER]
        runs[few] = replace(runs[few], count=ENOUGH - 1)
        for run in runs:
            assert RecoveryRecord(path).compare(run)[1]

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"count": 1}'])
    def test_a_damaged_record_counts_as_none(self, path: Path, content: str) -> None:
        path.parent.mkdir()
        path.write_text(content)
        assert RecoveryRecord(path).compare(self.LATER) == ("no run before had these seeds", True)
