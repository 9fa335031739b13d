"""The judge of in-sync sets reports a member of the set in ZooKeeper that its leader does not count, and
nothing in a cluster that works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    TopicAssignment,
    encode_partition_state,
    encode_topic,
    partition_state_path,
    topic_path,
)
from holdfast_log.coordinator.zookeeper.interface import Delete, SetData
from tests.models.world import World
from tests.sim.cluster import logs_in_trace
from tests.sim.in_sync_judge import InSyncJudge
from tests.sim.test_cluster import AT, Stage


class Judged:
    """Three brokers with one partition, whose in-sync sets are watched."""

    def __init__(self, world: World) -> None:
        self.found: list[str] = []
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.judge = InSyncJudge(self.stage.cluster, self.found.append)
        state = self.stage.cluster.states()[AT]
        self.write(state.isr)

    @property
    def role(self) -> Leadership:
        partition = self.stage.cluster.machine(self.stage.leader()).partition(AT)
        assert partition is not None and isinstance(partition.role, Leadership)
        return partition.role

    def write(self, isr: tuple[int, ...], *, leader: int | None = None, epochs: int = 0) -> None:
        """Write the partition's state into ZooKeeper, without the controller."""
        state = self.stage.cluster.states()[AT]
        changed = PartitionState(
            state.leader if leader is None else leader,
            state.leader_epoch + epochs,
            isr,
            state.controller_epoch,
        )
        path = partition_state_path(*AT)
        self.stage.cluster.zookeeper.write([SetData(path, encode_partition_state(changed))], 0)

    def assign(self, assignment: ReplicaAssignment) -> None:
        """Write the partition's assignment into ZooKeeper, without the controller."""
        topic = TopicAssignment(self.stage.cluster.topics()[AT[0]].topic_id, {AT[1]: assignment})
        self.stage.cluster.zookeeper.write([SetData(topic_path(AT[0]), encode_topic(topic))], 0)

    def others(self) -> tuple[int, int]:
        """The brokers that are not the leader."""
        first, second = (each for each in (1, 2, 3) if each != self.stage.leader())
        return first, second


@pytest.fixture
def judged() -> Iterator[Judged]:
    world = World(7)
    with logs_in_trace(world):
        judged = Judged(world)
        with judged.judge.watching():
            yield judged


def test_equal_sets_are_no_violation(judged: Judged) -> None:
    judged.write((1, 2, 3))
    judged.stage.produce(1)
    assert judged.found == []


def test_a_set_in_zookeeper_that_is_larger_than_its_leaders_is_found_when_it_is_written(
    judged: Judged,
) -> None:
    leader, (kept, left) = judged.stage.leader(), judged.others()
    judged.role.isr = (leader, kept)
    judged.write((1, 2, 3))
    assert len(judged.found) == 1
    assert f"its leader {leader} in epoch 0 does not count [{left}]" in judged.found[0]


def test_a_set_that_its_leader_settles_too_early_is_found(judged: Judged) -> None:
    leader, (kept, left) = judged.stage.leader(), judged.others()
    judged.role.propose((leader, kept))
    assert judged.found == []
    judged.role.settle((leader, kept), judged.role.partition_epoch + 1)
    assert len(judged.found) == 1
    assert f"does not count [{left}]" in judged.found[0]


def test_a_proposal_that_is_withdrawn_though_zookeeper_has_it_is_found(judged: Judged) -> None:
    leader, (kept, joins) = judged.stage.leader(), judged.others()
    judged.write((leader, kept))
    judged.role.isr = (leader, kept)
    judged.role.propose((leader, kept, joins))
    judged.write((leader, kept, joins))
    assert judged.found == [], "a pending proposal counts"
    judged.role.withdraw()
    assert len(judged.found) == 1
    assert f"does not count [{joins}]" in judged.found[0]


def test_a_leader_may_still_use_a_larger_set_than_the_one_in_zookeeper(judged: Judged) -> None:
    judged.write((judged.stage.leader(), judged.others()[0]))
    assert judged.found == []


def test_a_leader_that_does_not_know_its_latest_epoch_is_judged(judged: Judged) -> None:
    leader, (kept, left) = judged.stage.leader(), judged.others()
    judged.role.isr = (leader, kept)
    judged.write((1, 2, 3), epochs=2)
    assert len(judged.found) == 1
    assert f"in epoch 2, its leader {leader} in epoch 0 does not count [{left}]" in judged.found[0]


def test_a_leader_that_was_replaced_meanwhile_is_not_judged(judged: Judged) -> None:
    leader, (other, _) = judged.stage.leader(), judged.others()
    judged.role.isr = (leader,)
    judged.write((1, 2, 3), leader=other, epochs=1)
    judged.write((1, 2, 3), leader=leader, epochs=1)
    assert judged.found == []


def test_a_partition_without_a_leader_and_a_deleted_partition_are_not_judged(judged: Judged) -> None:
    judged.role.isr = (judged.stage.leader(),)
    judged.write((1, 2, 3), leader=-1, epochs=1)
    path = partition_state_path(*AT)
    judged.stage.cluster.zookeeper.write([Delete(path)], 0)
    assert judged.found == []


def test_a_reassignment_that_ends_before_all_new_replicas_are_in_sync_is_found(judged: Judged) -> None:
    leader, (other, joins) = judged.stage.leader(), judged.others()
    judged.write((leader, other))
    before = ReplicaAssignment((leader, other))
    judged.assign(before)
    judged.assign(before.reassigned_to((leader, joins)))
    judged.assign(ReplicaAssignment((leader, joins)))
    assert len(judged.found) == 1
    assert f"the reassignment to [{leader}, {joins}] is completed, but only" in judged.found[0]


def test_a_reassignment_whose_new_replicas_are_in_sync_may_end(judged: Judged) -> None:
    leader, (other, joins) = judged.stage.leader(), judged.others()
    judged.write((leader, other, joins))
    before = ReplicaAssignment((leader, other))
    judged.assign(before)
    judged.assign(before.reassigned_to((leader, joins)))
    judged.assign(ReplicaAssignment((leader, joins)))
    assert judged.found == []


def test_a_cancelled_reassignment_may_end_before_new_replicas_are_in_sync(judged: Judged) -> None:
    leader, (other, joins) = judged.stage.leader(), judged.others()
    judged.write((leader, other))
    before = ReplicaAssignment((leader, other))
    judged.assign(before)
    judged.assign(before.reassigned_to((leader, joins)))
    judged.assign(before)
    assert judged.found == []
