"""The judge of promised records reports replicas that lack them, and nothing in a cluster that works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.coordinator.znodes.topics import NO_LEADER, encode_partition_state, partition_state_path
from holdfast_log.coordinator.zookeeper.interface import SetData
from tests.models.world import World
from tests.sim.cluster import logs_in_trace
from tests.sim.committed_judge import CommittedJudge
from tests.sim.history import Incarnation
from tests.sim.test_cluster import AT, Stage


class Judged:
    """Three brokers whose partition has acknowledged records, and the judge."""

    def __init__(self, world: World) -> None:
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.judge = CommittedJudge(self.stage.cluster, self.stage.history)
        self.leader_id = self.stage.leader()
        self.follower_id = next(each for each in (1, 2, 3) if each != self.leader_id)

    def partition(self, broker_id: int) -> Partition:
        partition = self.stage.cluster.machine(broker_id).partition(AT)
        assert partition is not None
        return partition

    @property
    def leader(self) -> Partition:
        return self.partition(self.leader_id)

    @property
    def follower(self) -> Partition:
        return self.partition(self.follower_id)

    def elect(self, partition: Partition) -> None:
        epoch = self.stage.epoch() + 1
        partition.lead(LeaderAndIsr(partition.local_id, epoch, (1, 2, 3), 9, (1, 2, 3)), 0)

    def write(self, **changes: Any) -> None:
        """Write the partition's state with these changes."""
        cluster = self.stage.cluster
        data = encode_partition_state(replace(cluster.states()[AT], **changes))
        cluster.zookeeper.write([SetData(partition_state_path(*AT), data)], 0)

    def found(self) -> list[str]:
        """The violations found, without the numbers of records."""
        return [violation.split(" s: ", 1)[1] for violation in self.stage.history.violations]


@pytest.fixture
def judged() -> Iterator[Judged]:
    world = World(7)
    with logs_in_trace(world):
        judged = Judged(world)
        with judged.judge.watching():
            assert judged.stage.produce(2) > 10
            assert judged.found() == []
            yield judged


def test_a_member_that_has_everything_may_lead(judged: Judged) -> None:
    judged.elect(judged.follower)
    assert judged.found() == []


def test_a_leader_whose_log_is_too_short_is_found(judged: Judged) -> None:
    follower = judged.follower
    end_offset = follower.log.log_end_offset
    truncate_to(follower.log, end_offset - 1)
    judged.elect(follower)
    first, second = judged.found()
    assert f"t-0: broker {follower.local_id} leads in epoch 1 with a log that ends at" in first
    assert first.endswith(f"committed is everything before {end_offset}, the last record of epoch 0")
    assert "without batch" in second


@pytest.mark.parametrize("is_deleted", [True, False])
def test_only_a_record_that_was_deleted_may_have_no_leader_epoch(judged: Judged, *, is_deleted: bool) -> None:
    """After a crash a log may begin before the records that were deleted last, which its epochs omit."""
    follower = judged.follower
    end_offset = follower.log.log_end_offset
    if is_deleted:
        place = Incarnation(follower.key, follower.topic_id)
        judged.stage.history.deletes(place, end_offset)
    follower.log.epochs.advance_start(end_offset)

    judged.elect(follower)

    assert bool(judged.found()) is not is_deleted


def test_a_leader_with_another_record_at_an_acknowledged_offset_is_found(judged: Judged) -> None:
    follower, leader = judged.follower, judged.leader
    batch = next(each for each in judged.stage.history.batches if each.offset)
    disk = judged.stage.cluster.machine(follower.local_id).disk
    (path,) = [segment.path for segment in follower.log.segments]
    position = follower.log.segments.active.position_of(batch.offset or 0)
    assert position is not None
    disk.rewrite(path, position + 20, 0)  # This byte is in the batch's checksum.
    judged.elect(leader)
    assert judged.found() == []
    judged.elect(follower)
    assert len(judged.found()) == 1
    assert f"without {batch}, acknowledged at offset {batch.offset}" in judged.found()[0]


def test_a_leader_of_an_earlier_epoch_may_begin_late(judged: Judged) -> None:
    role = judged.leader.role
    assert isinstance(role, Leadership)
    truncate_to(judged.follower.log, 0)
    judged.follower.leader_epoch = role.leader_epoch - 2
    judged.follower.lead(LeaderAndIsr(judged.follower_id, -1, (1, 2, 3), 9, (1, 2, 3)), 0)
    assert judged.found() == []


def test_an_acknowledgement_that_the_present_leader_lacks_is_found(judged: Judged) -> None:
    batch = judged.stage.history.batches[-1]
    batch.offset = judged.leader.log.log_end_offset + 5
    judged.judge.acknowledged(batch, 0)
    assert len(judged.found()) == 1
    assert "was acknowledged at offset" in judged.found()[0]


@pytest.mark.parametrize("acks", [0, 1])
def test_an_acknowledgement_by_the_leader_alone_promises_nothing(judged: Judged, acks: int) -> None:
    batch = judged.stage.history.batches[-1]
    batch.acks, batch.offset = acks, judged.leader.log.log_end_offset + 5
    judged.judge.acknowledged(batch, 0)
    assert judged.found() == []


def test_a_high_watermark_that_decreases_is_found(judged: Judged) -> None:
    leader = judged.leader
    before = leader.high_watermark
    leader.high_watermark = before - 3
    role = leader.role
    assert isinstance(role, Leadership)
    for remote in role.remotes.values():
        remote.log_end_offset = before - 2
    leader.advance_high_watermark(0, 1000)
    assert judged.found() == [
        f"t-0: the high watermark of the leader {leader.local_id} in epoch 0 goes back from {before} to "
        f"{before - 2}"
    ]


def test_a_commit_that_an_in_sync_member_lacks_is_found(judged: Judged) -> None:
    leader, follower = judged.leader, judged.follower
    truncate_to(follower.log, follower.log.log_end_offset - 1)
    leader.high_watermark -= 1
    leader.advance_high_watermark(0, 1000)
    assert len(judged.found()) == 0, "the high watermark is the one that was known already"
    judged.judge._highest.clear()
    leader.high_watermark -= 1
    leader.advance_high_watermark(0, 1000)
    (found,) = judged.found()
    assert f"its in-sync member {follower.local_id} has a log that ends at" in found


def test_a_commit_is_found_where_an_in_sync_member_has_another_record(judged: Judged) -> None:
    leader, follower = judged.leader, judged.follower
    end_offset = follower.log.log_end_offset
    follower.log.epochs.truncate_to(0)
    follower.log.epochs.assign(-1, 0)
    follower.log.epochs.assign(5, end_offset - 1)
    judged.judge._highest.clear()
    leader.high_watermark -= 1
    leader.advance_high_watermark(0, 1000)
    (found,) = judged.found()
    assert f"has a log whose record {end_offset - 1} is of epoch 5" in found


def test_a_follower_that_truncates_committed_records_is_found(judged: Judged) -> None:
    follower = judged.follower
    offset = max(each.offset or 0 for each in judged.stage.history.batches)
    follower.truncate_to(offset, 0)
    (found,) = judged.found()
    assert found.startswith(f"t-0: broker {follower.local_id} truncates its log to {offset} in epoch 0")


@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_damaged_follower_may_truncate_committed_records_only_out_of_sync(
    judged: Judged, is_in_sync: bool
) -> None:
    follower, state = judged.follower, judged.stage.cluster.states()[AT]
    offset = follower.log.log_end_offset - 1
    follower.log.segments[0].damage = Damage(0, 0, 0, "a bit has changed")
    if not is_in_sync:
        judged.write(isr=tuple(member for member in state.isr if member != follower.local_id))
    follower.truncate_to(offset, 0)
    assert len(judged.found()) == is_in_sync


def test_a_follower_may_truncate_records_that_were_never_committed(judged: Judged) -> None:
    follower = judged.follower
    offset = max(each.offset or 0 for each in judged.stage.history.batches)
    disk = judged.stage.cluster.machine(follower.local_id).disk
    (path,) = [segment.path for segment in follower.log.segments]
    position = follower.log.segments.active.position_of(offset)
    assert position is not None
    disk.rewrite(path, position + 15, 3)  # This byte is in the batch's leader epoch.
    follower.truncate_to(offset, 0)
    assert judged.found() == []


def test_a_replica_that_joins_without_committed_records_is_found(judged: Judged) -> None:
    follower, isr = judged.follower, judged.stage.cluster.states()[AT].isr
    others = tuple(member for member in isr if member != follower.local_id)
    judged.write(isr=isr)
    judged.write(isr=others)
    judged.write(isr=isr)
    assert judged.found() == []
    judged.write(isr=others)
    truncate_to(follower.log, follower.log.log_end_offset - 1)
    judged.write(isr=isr)
    (found,) = judged.found()
    assert found.startswith(f"t-0: broker {follower.local_id} joins the in-sync set")


@pytest.mark.parametrize(
    ("isr", "eligible", "unclean", "is_judged"),
    [
        ((1, 2, 3), (), (), True),
        ((0,), (1, 2, 3), (), True),
        ((0,), (), (), False),
        ((1, 2, 3), (), (1, 2, 3), False),
    ],
    ids=["in sync", "eligible", "out of sync", "unclean"],
)
def test_a_follower_without_committed_records_is_found_if_it_may_be_elected_without_a_comparison(
    judged: Judged, isr: tuple[int, ...], eligible: tuple[int, ...], unclean: tuple[int, ...], is_judged: bool
) -> None:
    follower = judged.follower
    judged.write(leader=NO_LEADER, isr=isr, eligible=eligible, unclean=unclean)
    follower.follow(LeaderAndIsr(NO_LEADER, judged.stage.epoch() + 1, isr, 9, (1, 2, 3)))
    assert judged.found() == []

    end_offset = follower.log.log_end_offset
    truncate_to(follower.log, end_offset - 1)
    follower.follow(LeaderAndIsr(NO_LEADER, judged.stage.epoch() + 2, isr, 9, (1, 2, 3)))

    assert len(judged.found()) == is_judged
    assert all(f"broker {follower.local_id} may be elected" in violation for violation in judged.found())


def test_topics_that_may_lose_records_are_not_judged(judged: Judged) -> None:
    judged.stage.history.may_lose = frozenset({"t"})
    truncate_to(judged.follower.log, 0)
    judged.elect(judged.follower)
    judged.follower.truncate_to(0, 0)
    assert judged.found() == []
