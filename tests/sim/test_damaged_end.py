"""All brokers are killed, and a bit of one replica's last batch changes before they start again."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.interrupted_write import PAGE_BYTES
from holdfast_log.broker.log.scan import headers
from tests.models.world import World
from tests.sim.cluster import SETTINGS, Machine
from tests.sim.committed_judge import CommittedJudge
from tests.sim.test_cluster import AT, Stage

BASE_OFFSET, LENGTH, LEADER_EPOCH = 0, 8, 12
"""Where a batch has the fields that its checksum does not cover, in bytes from its start."""


def last_batch(machine: Machine, path: str) -> int:
    """The position of the last batch of a file."""
    position = -1
    file = machine.disk.open(path)
    for header in headers(file, 0, file.size()):
        position = header.position
    return position


@pytest.mark.parametrize("world", range(1, 4), indirect=True)
@pytest.mark.parametrize(
    ("byte", "bit"),
    [
        pytest.param(LENGTH + 1, 3, id="a longer batch"),
        pytest.param(LENGTH, 6, id="a much longer batch"),
        pytest.param(BASE_OFFSET + 5, 2, id="a higher offset"),
        pytest.param(LEADER_EPOCH + 2, 6, id="a later leader epoch"),
        pytest.param(LEADER_EPOCH + 3, 0, id="a leader epoch that begins soon"),
    ],
)
def test_a_bit_of_one_replicas_last_batch_loses_no_record_of_the_others(
    world: World, byte: int, bit: int
) -> None:
    """The damaged replica comes first in the assignment, so it would be elected first."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    with CommittedJudge(stage.cluster, stage.history).watching():
        acknowledged = stage.produce(2)
        damaged = stage.cluster.machine(stage.cluster.topics()["t"].partitions[0].replicas[0])
        partition = damaged.partition(AT)
        assert partition is not None
        path, end = partition.log.segments.active.path, partition.log.log_end_offset
        for machine in stage.cluster.machines:
            machine.kill()
        damaged.disk.rot(path, last_batch(damaged, path) + byte, bit)
        for machine in stage.cluster.machines:
            machine.start()
        stage.until(stage.cluster.is_whole, 60)
        consumer = stage.consumer()
        stage.until(lambda: stage.has_read(consumer) == acknowledged)
    for machine in stage.cluster.machines:
        partition = machine.partition(AT)
        assert partition is not None and partition.log.log_end_offset == end
        assert not machine.disk.is_rotten(path)
    assert stage.history.violations == []


@pytest.mark.parametrize("world", range(1, 4), indirect=True)
@pytest.mark.parametrize("bit", [0, 1])
def test_a_last_batch_with_another_epoch_that_has_begun_is_noticed(world: World, bit: int) -> None:
    """The epochs before have no batches, or older ones; the last batch is the only one of its epoch."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    with CommittedJudge(stage.cluster, stage.history).watching():
        stage.produce(1)
        for _ in range(2):
            leader = stage.cluster.machine(stage.leader())
            leader.kill()
            stage.until(lambda before=leader.broker_id: stage.leader() not in (-1, before), 30)
            leader.start()
            stage.until(stage.cluster.is_whole, 60)
        acknowledged = stage.produce(1)
        damaged = stage.cluster.machine(stage.cluster.topics()["t"].partitions[0].replicas[0])
        partition = damaged.partition(AT)
        assert partition is not None
        path, end = partition.log.segments.active.path, partition.log.log_end_offset
        epochs = partition.log.epochs.entries
        for machine in stage.cluster.machines:
            machine.kill()
        damaged.disk.rot(path, last_batch(damaged, path) + LEADER_EPOCH + 3, bit)
        for machine in stage.cluster.machines:
            machine.start()
        stage.until(stage.cluster.is_whole, 60)
        consumer = stage.consumer()
        stage.until(lambda: stage.has_read(consumer) == acknowledged)
        stage.until(lambda: not damaged.disk.is_rotten(path), 60)
    for machine in stage.cluster.machines:
        partition = machine.partition(AT)
        assert partition is not None and partition.log.log_end_offset == end
        assert partition.log.epochs.entries[: len(epochs)] == epochs
    assert stage.history.violations == []


@pytest.mark.parametrize("world", range(1, 3), indirect=True)
def test_a_file_that_has_lost_its_end_from_a_page_on_is_no_interrupted_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process went on after the write that the end of the file seems to be: it has noted a later batch in
    the index. No checkpoint is as new as that."""
    monkeypatch.setitem(SETTINGS, "replica.high.watermark.checkpoint.interval.ms", 600_000)
    stage = Stage(world, 3, {"min.insync.replicas": "2", "index.interval.bytes": "1024"})
    with CommittedJudge(stage.cluster, stage.history).watching():
        acknowledged = stage.produce(1)
        damaged = stage.cluster.machine(stage.cluster.topics()["t"].partitions[0].replicas[0])
        partition = damaged.partition(AT)
        assert partition is not None
        path = partition.log.segments.active.path
        while damaged.disk.size(path) < PAGE_BYTES + 2500:
            acknowledged = stage.produce(0.5)
        end = partition.log.log_end_offset
        for machine in stage.cluster.machines:
            machine.kill()
        damaged.disk.cut(path, PAGE_BYTES)
        # It would lead at once if it still counted as complete.
        damaged.start()
        world.run(10)
        for machine in stage.cluster.machines:
            machine.start()
        stage.until(stage.cluster.is_whole, 60)
        consumer = stage.consumer()
        stage.until(lambda: stage.has_read(consumer) == acknowledged)
    for machine in stage.cluster.machines:
        partition = machine.partition(AT)
        assert partition is not None and partition.log.log_end_offset == end
    assert stage.history.violations == []
