"""A bit changes in what the checksum of an old batch does not cover, and an empty replica copies the log."""

from __future__ import annotations

import pytest

from tests.models.world import World
from tests.sim.cluster import SETTINGS
from tests.sim.committed_judge import CommittedJudge
from tests.sim.test_cluster import AT, Stage
from tests.sim.test_damaged_end import BASE_OFFSET, LEADER_EPOCH, LENGTH


@pytest.mark.parametrize("world", range(1, 3), indirect=True)
@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize(
    ("byte", "bit"),
    [
        pytest.param(BASE_OFFSET + 5, 2, id="a higher offset"),
        pytest.param(LENGTH + 1, 0, id="a longer batch"),
        pytest.param(LEADER_EPOCH + 1, 6, id="a leader epoch that has not begun"),
        pytest.param(LEADER_EPOCH + 3, 0, id="a leader epoch that has begun"),
    ],
)
def test_a_damaged_header_is_found_before_a_new_replica_copies_it(
    world: World, monkeypatch: pytest.MonkeyPatch, byte: int, bit: int, is_warm: bool
) -> None:
    """The damaged replica leads. Another one repairs it, and the new replica never deletes what it has."""
    # By default a week may pass before the broker examines a segment that nobody suspects.
    monkeypatch.setitem(SETTINGS, "log.scrub.interval.ms", -1)
    stage = Stage(world, 3, {"min.insync.replicas": "2", "flush.messages": "10"})
    with CommittedJudge(stage.cluster, stage.history).watching():
        stage.produce(1)
        for _ in range(2):
            leader = stage.cluster.machine(stage.leader())
            leader.kill()
            stage.until(lambda before=leader.broker_id: stage.leader() not in (-1, before), 30)
            leader.start()
            stage.until(stage.cluster.is_whole, 60)
            acknowledged = stage.produce(1)
        leader = stage.cluster.machine(stage.leader())
        new = next(machine for machine in stage.cluster.machines if machine is not leader)
        partition = leader.partition(AT)
        assert partition is not None and len(partition.log.epochs.entries) >= 3
        headers = list(partition.log.segments[0].headers(0))
        path = partition.log.segments[0].path
        new.wipe()
        leader.disk.rot(path, headers[len(headers) // 8].position + byte, bit, is_warm=is_warm)
        new.start()
        stage.until(lambda: not leader.disk.is_rotten(path) and stage.cluster.is_whole(), 90)
        consumer = stage.consumer()
        stage.until(lambda: stage.has_read(consumer) == acknowledged)
    assert stage.history.violations == []
    assert sum("Deleting all records" in line for line in world.trace.lines) == 0
