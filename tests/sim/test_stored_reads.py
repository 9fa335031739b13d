"""The judge that looks up every batch of every in-sync replica."""

from __future__ import annotations

from holdfast_log.broker.log.segment import Segment
from tests.models.world import World
from tests.sim.mutation import mutated
from tests.sim.mutations import by_name
from tests.sim.stored_reads import misread, without_indexes
from tests.sim.test_cluster import AT, Stage

WORLD_SEED = 7


def with_a_wrong_index(world: World) -> Stage:
    """A cluster in which an index entry of one follower leads into the middle of a batch."""
    stage = Stage(world, 3, {"min.insync.replicas": "2", "segment.bytes": "1024"})
    stage.produce(3)
    machine = next(each for each in stage.cluster.machines if each.broker_id != stage.leader())
    partition = machine.partition(AT)
    assert partition is not None and len(partition.log.segments) > 2
    segment: Segment = partition.log.segments[0]
    assert len(segment.indexes.offsets) > 1
    machine.disk.rot(segment.indexes.offsets.path, 7, 2)
    return stage


def test_a_wrong_index_is_met_and_mended(world: World) -> None:
    stage = with_a_wrong_index(world)
    [first, *_] = misread(stage.cluster)
    assert "cannot be read" in first
    stage.until(lambda: not any(misread(stage.cluster)), 2)


def test_a_wrong_index_that_is_believed_is_reported(world: World) -> None:
    with mutated(by_name("index-believed")):
        stage = with_a_wrong_index(world)
        world.run(20)
        assert list(misread(stage.cluster))


def test_every_segment_of_a_running_broker_has_index_files(world: World) -> None:
    stage = Stage(world, 3, {})
    stage.produce(3)
    assert not list(without_indexes(stage.cluster))


def test_late_index_files_are_reported(world: World) -> None:
    with mutated(by_name("index-files-late")):
        stage = Stage(world, 3, {})
        # Soon after an append the broker writes the entries, and with them the files.
        assert any(".timeindex" in each for each in without_indexes(stage.cluster))
