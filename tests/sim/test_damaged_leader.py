"""A segment of a leader's log is damaged: another replica leads, and the damaged one copies the segment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.log.segment import Segment
from tests.models.world import World
from tests.sim.cluster import Machine, logs_in_trace
from tests.sim.test_cluster import AT, Stage

COPIED_S_MAX = 0.5
"""Time in seconds within which a replica that follows another leader must have copied its damaged segment.
Without looking at the log when the role changes, the broker would look at it only every 5 s."""


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    with logs_in_trace(world):
        yield world
    assert world.problems == []


def first_segment(machine: Machine) -> Segment:
    partition = machine.partition(AT)
    assert partition is not None
    return partition.log.segments[0]


@pytest.mark.parametrize("world", range(1, 7), indirect=True)
def test_a_damaged_leader_copies_the_segment_soon_after_another_replica_leads(world: World) -> None:
    stage = Stage(world, 3, {"min.insync.replicas": "2", "segment.bytes": "1024"})
    stage.produce(3)
    damaged = stage.cluster.machine(stage.leader())
    path = first_segment(damaged).path
    content = damaged.disk.peek(path)
    assert content is not None
    damaged.disk.rot(path, len(content) // 2, 3)
    stage.until(lambda: stage.leader() != damaged.broker_id, 60)
    stage.until(lambda: damaged.disk.peek(path) == content, COPIED_S_MAX)
    stage.until(stage.cluster.is_whole)
    assert first_segment(damaged).damage is None
    assert stage.history.violations == []
