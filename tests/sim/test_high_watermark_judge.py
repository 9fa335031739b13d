"""The judge of high watermarks reports a replica that forgets what is committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_log.broker.replication.partition import Partition
from tests.models.world import World
from tests.sim.cluster import Machine
from tests.sim.high_watermark_judge import HighWatermarkJudge
from tests.sim.test_cluster import AT, Stage
from tests.sim.test_stop import stop

WORLD_SEED = 7


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    """Three brokers whose partition has committed records, under the eyes of the judge."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    with HighWatermarkJudge(stage.cluster, stage.history).watching():
        assert stage.produce(2) > 10
        world.run(1)
        assert stage.history.violations == []
        yield stage


def follower(stage: Stage) -> Machine:
    return next(each for each in stage.cluster.machines if each.broker_id != stage.leader())


def replica(machine: Machine) -> Partition:
    partition = machine.partition(AT)
    assert partition is not None
    return partition


def made_again(machine: Machine) -> Partition:
    """The replica, removed and made again as after a StopReplica. It knows no high watermark yet."""
    before = replica(machine)
    assert machine.broker is not None and machine.broker.node is not None
    machine.broker.node.replication.replicas.remove(before)
    return Partition(before.topic, before.index, before.topic_id, before.local_id, before.log)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_replica_that_is_made_again_in_the_same_process_knows_as_much_as_before(
    stage: Stage, missing: int
) -> None:
    machine = follower(stage)
    known = replica(machine).high_watermark
    made_again(machine).restore_high_watermark(known - missing)
    assert len(stage.history.violations) == missing
    assert all(f"is forgotten: it was {known} before" in each for each in stage.history.violations)


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_a_killed_process_may_forget_what_it_has_learned_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    machine = follower(stage)
    if is_killed:
        machine.kill()
    else:
        stop(stage, machine.broker_id)
    monkeypatch.setattr(
        "holdfast_log.broker.log.manager.LogManager.high_watermark", lambda manager, partition: 0
    )
    machine.start()
    stage.until(stage.cluster.is_whole)
    assert any("is forgotten" in each for each in stage.history.violations) is not is_killed


def test_a_truncation_lowers_what_must_be_known(stage: Stage) -> None:
    machine = follower(stage)
    known = replica(machine).high_watermark
    replica(machine).truncate_to(known - 2, 0)
    made_again(machine).restore_high_watermark(known - 2)
    assert stage.history.violations == []


@pytest.mark.parametrize("offset", [-1, 10_000])
def test_a_high_watermark_outside_its_log_is_found(stage: Stage, offset: int) -> None:
    partition = replica(follower(stage))
    partition.high_watermark = offset
    partition.take_high_watermark(-1)
    (found,) = stage.history.violations
    assert f"the high watermark {offset} of broker {partition.local_id}" in found
    assert "lies outside its log, 0 to" in found
