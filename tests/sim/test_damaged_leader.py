"""A segment of a replica's log is damaged: another replica leads, and the damaged one copies the segment."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.segment import Segment
from holdfast_log.protocol.batches import HEADER_SIZE
from tests.models.world import World
from tests.sim.cluster import Machine
from tests.sim.committed_judge import CommittedJudge
from tests.sim.producer import ProducerHabits
from tests.sim.test_cluster import AT, Stage

COPIED_S_MAX = 0.5
"""Time in seconds within which a replica that follows another leader must have copied its damaged segment.
Without looking at the log when the role changes, the broker would look at it only every 5 s."""


def first_segment(machine: Machine) -> Segment:
    partition = machine.partition(AT)
    assert partition is not None
    return partition.log.segments[0]


def end_of(machine: Machine) -> int:
    partition = machine.partition(AT)
    return -1 if partition is None else partition.log.log_end_offset


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


@pytest.mark.parametrize("world", range(1, 4), indirect=True)
def test_a_replica_leaves_the_in_sync_set_before_it_ends_its_log_at_damage(world: World) -> None:
    """The new leader lacks the last record, so the damaged replica has to truncate its log. Where it cannot
    read its own records, it would lose committed ones too."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    network = stage.cluster.network
    with CommittedJudge(stage.cluster, stage.history).watching():
        stage.produce(2)
        replicas = stage.cluster.topics()["t"].partitions[0].replicas
        leader, behind, damaged = map(stage.cluster.machine, replicas)
        assert stage.leader() == leader.broker_id
        network.cut(leader.name, behind.name)
        network.cut(behind.name, leader.name)
        stage.producer.is_making = True
        stage.until(lambda: end_of(damaged) > end_of(behind))
        stage.producer.is_making = False
        leader.kill()
        damaged.disk.rot(first_segment(damaged).path, 8, 7)  # The length of the first batch.
        # Checked after each call: a moment later the damaged replica has left the in-sync set.
        assert world.run_until(lambda: stage.leader() == behind.broker_id, 60)
        assert damaged.broker_id in stage.cluster.states()[AT].isr
        network.heal()
        leader.start()
        stage.until(stage.cluster.is_whole, 60)
    assert stage.history.violations == []
    assert any("damage would end the log" in line for line in world.trace.lines)


@pytest.mark.parametrize("world", range(1, 4), indirect=True)
def test_a_damaged_leader_without_other_members_in_sync_is_replaced_by_an_eligible_replica(
    world: World,
) -> None:
    """The damaged record is not committed, and nobody else has it: the followers cannot pass it, so the
    leader would stay alone. An eligible replica has every committed record (KIP-966)."""
    habits = ProducerHabits(-1, is_idempotent=True, interval_ms=100, in_flight_max=5)
    stage = Stage(world, 3, {"min.insync.replicas": "2"}, habits)
    with CommittedJudge(stage.cluster, stage.history).watching():
        stage.produce(2)
        leader = stage.cluster.machine(stage.leader())
        others = [machine for machine in stage.cluster.machines if machine is not leader]
        for other in others:
            other.pause()
        stage.producer.is_making = True
        partition = leader.partition(AT)
        assert partition is not None and stage.leader() == leader.broker_id
        damaged = partition.log.segments.active
        known = len(list(damaged.headers(0)))
        # The response to a fetch that waits has the first new batch, and the follower gets it later.
        stage.until(lambda: len(list(damaged.headers(0))) > known + 1)
        stage.producer.is_making = False
        position = list(damaged.headers(0))[-1].position
        partition.log.roll(0)
        stage.until(lambda: stage.cluster.states()[AT].isr == (leader.broker_id,), 60)
        assert stage.cluster.states()[AT].eligible
        leader.disk.rot(damaged.path, position + 8, 7)  # The length of a batch that nobody else has.
        for other in others:
            other.resume()
        stage.until(lambda: stage.leader() != leader.broker_id, 60)
        stage.until(stage.cluster.is_whole, 60)
    assert stage.history.violations == []


@pytest.mark.parametrize("world", range(1, 4), indirect=True)
def test_a_damaged_leader_that_nobody_may_replace_gives_followers_the_sound_batches_behind_the_damage(
    world: World,
) -> None:
    """Both followers have the damaged record, but have missed the ones behind it, and are not eligible since
    they restarted without a disk. Unless they can copy what is behind the damage, the leader stays alone."""
    habits = ProducerHabits(-1, is_idempotent=True, interval_ms=100, in_flight_max=5)
    stage = Stage(world, 3, {"min.insync.replicas": "2"}, habits)
    with CommittedJudge(stage.cluster, stage.history).watching():
        stage.produce(2)
        leader = stage.cluster.machine(stage.leader())
        others = [machine for machine in stage.cluster.machines if machine is not leader]
        directories = [first_segment(other).path.rsplit("/", 2)[0] for other in others]
        for other in others:
            other.pause()
        partition = leader.partition(AT)
        assert partition is not None
        segment = partition.log.segments.active
        known = len(list(segment.headers(0)))
        stage.producer.is_making = True
        stage.until(lambda: len(list(segment.headers(0))) > known + 2)
        stage.producer.is_making = False
        for other, directory in zip(others, directories, strict=True):
            other.unmount([directory])
            other.start()
        stage.until(lambda: _only_in_sync(stage) == leader.broker_id, 60)
        position = list(segment.headers(0))[known - 1].position
        leader.disk.rot(segment.path, position + HEADER_SIZE + 1, 3)
        consumer = stage.consumer()
        stage.until(lambda: bool(partition.log.damages), 60)
        for other in others:
            other.kill()
            other.mount()
            other.start()
        stage.until(lambda: stage.cluster.is_whole() and not leader.disk.is_rotten(segment.path), 90)
        stage.until(lambda: stage.has_read(consumer) == end_of(leader))
    assert stage.history.violations == []


def _only_in_sync(stage: Stage) -> int:
    """The replica that alone is in sync, while none is eligible; -1 if there is no such replica."""
    state = stage.cluster.states()[AT]
    return state.isr[0] if len(state.isr) == 1 and not state.eligible else -1
