"""Fetches of followers: the leader's responses, and its record of each follower's log end."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.replication.leadership import UNKNOWN_OFFSET, Leadership
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, PartitionData
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.world import (
    LAG_MS,
    Client,
    World,
    fetch_request,
    fired,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.models.batches import batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def request(
    world: World,
    offset: int,
    *,
    topic: str = "t",
    broker_epoch: int = -1,
    max_wait_ms: int = 0,
    epoch: int = -1,
) -> FetchRequest:
    wanted = fetch_request(
        world.topic_id(topic),
        offset,
        replica_id=2,
        max_wait_ms=max_wait_ms,
        last_fetched_epoch=epoch,
        min_bytes=1 if max_wait_ms else 0,
    )
    wanted.replica_state.replica_epoch = broker_epoch
    return wanted


def fetch(world: World, follower: Client, offset: int, **wanted: int) -> PartitionData:
    return only_fetched(follower.call(request(world, offset, **wanted)))  # type: ignore[arg-type]


def append(world: World, *values: bytes, topic: str = "t") -> None:
    produced = only_produced(world.client().call(produce_request(topic, batch(*values), acks=1)))
    assert produced.error_code == ErrorCode.NONE


def known_end(world: World) -> int:
    """Log end offset of the follower, as the leader knows it."""
    role = world.replicas.partition("t", 0).role
    assert isinstance(role, Leadership)
    return role.remotes[2].log_end_offset


def test_a_followers_new_fetch_ends_the_wait_of_its_previous_fetch(world: World) -> None:
    world.assign("t", replicas=(1, 2))
    world.assign("u", replicas=(1, 2))
    follower = world.client()
    follower.ask(request(world, 0, max_wait_ms=500))
    assert follower.answers() == []
    follower.ask(request(world, 0, topic="u"))
    assert len(follower.answers()) == 2
    follower.ask(request(world, 0, max_wait_ms=500))
    assert follower.answers() == []
    world.clock.advance(0.5)
    assert len(follower.answers()) == 1


def test_a_fetch_of_another_follower_ends_no_wait(world: World) -> None:
    world.assign("t", replicas=(1, 2))
    one, other = world.client(), world.client()
    one.ask(request(world, 0, max_wait_ms=500))
    fetch(world, other, 0)
    assert one.answers() == []


def test_a_consumers_second_fetch_does_not_end_the_wait_of_its_first(world: World) -> None:
    world.assign("t")
    consumer = world.client()
    consumer.ask(fetch_request(world.topic_id("t"), max_wait_ms=500))
    consumer.ask(fetch_request(world.topic_id("t"), max_wait_ms=100))
    assert consumer.answers() == []


def test_a_followers_disconnection_removes_its_waiting_fetch_and_timer(world: World) -> None:
    world.assign("t", replicas=(1, 2))
    follower = world.client()
    follower.ask(request(world, 0, max_wait_ms=500))
    assert len(world.replicas.followers) == 1
    follower.connection.connection_lost("gone")
    assert len(world.replicas.followers) == 0
    assert world.clock.getDelayedCalls() == []


def test_a_follower_outside_the_leaders_log_receives_the_log_start_offset(world: World) -> None:
    world.assign("t", replicas=(1, 2), isr=(1,))
    append(world, b"a", b"b")
    append(world, b"c")
    world.deletions.begin("t", 0, 2)
    answered = fetch(world, world.client(), 0)
    assert (answered.error_code, answered.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
    assert known_end(world) == UNKNOWN_OFFSET


def test_a_diverging_follower_has_no_known_log_end_and_is_not_proposed(world: World) -> None:
    world.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=1)
    append(world, b"a")
    world.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=3, partition_epoch=1)
    append(world, b"b")
    answered = fetch(world, world.client(), 2, epoch=2)
    assert (answered.diverging_epoch.epoch, answered.diverging_epoch.end_offset) == (1, 1)
    assert known_end(world) == UNKNOWN_OFFSET
    assert world.proposals == []
    fetch(world, world.client(), 1, epoch=1)
    assert known_end(world) == 1


def test_a_fetch_with_an_older_broker_epoch_is_refused(world: World) -> None:
    world.assign("t", replicas=(1, 2), isr=(1,))
    append(world, b"a")
    follower = world.client()
    assert fetch(world, follower, 0, broker_epoch=8).error_code == ErrorCode.NONE
    assert fetch(world, follower, 1, broker_epoch=7).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert known_end(world) == 0
    assert world.proposals == []


def test_a_proposal_carries_the_broker_epoch_in_which_each_follower_caught_up(world: World) -> None:
    world.assign("t", replicas=(1, 2), isr=(1,))
    fetch(world, world.client(), 0, broker_epoch=8)
    (proposal,) = world.proposals
    assert proposal.isr == (1, 2)
    assert proposal.broker_epochs == (-1, 8)


def test_a_follower_outside_the_in_sync_set_does_not_hold_back_a_new_leaders_watermark(world: World) -> None:
    """A new leader counts only members of the in-sync set as recently caught up."""
    world.assign("t", replicas=(1, 2), isr=(1,))
    append(world, b"a")
    append(world, b"b")
    world.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=1, partition_epoch=1)
    fetch(world, world.client(), 0)
    append(world, b"c")
    assert world.replicas.partition("t", 0).high_watermark == 3


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_change_removes_no_replica_from_the_in_sync_set(world: World, seconds: int) -> None:
    world.assign("t", replicas=(1, 2))
    follower = world.client()
    fetch(world, follower, 0)
    append(world, b"a")
    world.set_clock_forward(seconds)
    world.replicas.shrink_in_sync_sets()
    assert world.proposals == []
    world.clock.advance(LAG_MS / 1000 + 1)
    world.replicas.shrink_in_sync_sets()
    assert [proposal.isr for proposal in world.proposals] == [(1,)]


def test_a_broker_copies_from_the_leader_that_the_controller_names(world: World) -> None:
    world.assign("t", leader=2, leader_epoch=4, replicas=(1, 2, 3))
    assert world.copier.followed == {("t", 0): (2, 4)}
    world.assign("t", leader=3, leader_epoch=5, replicas=(1, 2, 3), partition_epoch=1)
    assert world.copier.followed == {("t", 0): (3, 5)}
    world.assign("t", leader=1, leader_epoch=6, replicas=(1, 2, 3), partition_epoch=2)
    assert world.copier.followed == {}


def test_a_replica_whose_directory_fails_is_no_longer_copied(world: World) -> None:
    world.assign("t", leader=2, replicas=(1, 2))
    (directory,) = world.logs.directories
    world.logs.fail_directory(directory, OSError("the disk is gone"))
    assert world.copier.followed == {}


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_a_failed_directory_is_one_line_of_the_log_however_many_replicas_it_has(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for index in range(67):
        world.assign("t", index, leader=2, replicas=(1, 2))
    (directory,) = world.logs.directories
    world.logs.fail_directory(directory, OSError("the disk is gone"))
    assert errors_in(caplog) == [
        f"Log directory {directory.path} is offline, with the logs of t-0, t-1, t-2 and 64 more partitions: "
        "the disk is gone"
    ]


def test_lost_logs_are_one_line_of_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.logs.lost = ("/mnt/lost",)
    orders = [world.leader_and_isr("t", index, replicas=(1, 2), isr=(1, 2)) for index in range(67)]
    states = [order.topic_states[0].partition_states[0] for order in orders]
    for state in states:
        state.is_new = False
    orders[0].topic_states[0].partition_states = states
    applied = world.roles.apply_leader_and_isr(orders[0])
    world.clock.pump([0.0] * len(states))
    answer = fired(applied)
    codes = {each.error_code for each in answer.topics[0].partition_errors}
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    (line,) = errors_in(caplog)
    assert line.startswith("The logs of t-0, t-1, t-2 and 64 more partitions are missing, though")


@pytest.mark.parametrize(
    ("version", "error"), [(7, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_reports_no_log_end_before_it_knows_the_high_watermark(
    world: World, version: int, error: ErrorCode
) -> None:
    """The high watermark that it knows may lie below one that clients have already been given."""
    world.assign("t", replicas=(1, 2))
    append(world, b"a")
    world.assign("t", replicas=(1, 2), leader_epoch=1, partition_epoch=1)
    consumer = world.client()
    assert latest(consumer, version) == (error, -1)
    fetch(world, world.client(), 1)
    append(world, b"b")
    assert latest(consumer, version) == (ErrorCode.NONE, 1)


def latest(consumer: Client, version: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
    response = consumer.call(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), version)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset
