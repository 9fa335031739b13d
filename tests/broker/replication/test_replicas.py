"""The controller's requests applied: roles, in-sync sets, epochs, deletion, and failing disks."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.log.disk import OsDisk, OsFile
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.high_watermark_parts import TOGETHER, high_watermark_parts
from holdfast_log.broker.replication.leadership import REFUSED_PAUSE_MS, IsrProposal, Leadership
from holdfast_log.broker.replication.record_deletions import delete_records
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.world import (
    LAG_MS,
    World,
    fetch_request,
    fired,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.models.batches import batch
from tests.models.orders import leader_and_isr, partition_role


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def led(world: World) -> World:
    """A broker that leads t-0."""
    world.assign("t")
    return world


def follow(world: World, replica: int, offset: int) -> int:
    request = fetch_request(world.topic_id("t"), offset, replica_id=replica)
    return only_fetched(world.client().call(request)).error_code


def append(world: World, value: bytes = b"x") -> int:
    return only_produced(world.client().call(produce_request("t", batch(value), acks=1))).error_code


def stop(
    world: World,
    *,
    delete: bool = True,
    leader_epoch: int = -1,
    controller_epoch: int = 1,
    topic_id: uuid.UUID = ZERO_ID,
) -> ErrorCode | int:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    response = fired(
        world.roles.apply_stop_replica(
            StopReplicaRequest(
                controller_id=1,
                controller_epoch=controller_epoch,
                topic_states=[
                    StopReplicaTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
                ],
            )
        )
    )
    return response.error_code or response.partition_errors[0].error_code


def _deletion_of(world: World, topic: str, partitions: int) -> StopReplicaRequest:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        for index in range(partitions)
    ]
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[
            StopReplicaTopicState(topic_name=topic, topic_id=world.topic_id(topic), partition_states=states)
        ],
    )


def _new_topic(
    world: World, name: str, partitions: int, leader_epoch: int = 0, leader: int = 1
) -> LeaderAndIsrRequest:
    """A LeaderAndIsr request for a topic whose replicas are on this broker and on `leader`."""
    replicas = sorted({1, leader})
    role = {"leader": leader, "leader_epoch": leader_epoch}
    states = [partition_role(index, isr=replicas, replicas=replicas, **role) for index in range(partitions)]
    return leader_and_isr(name, world.topic_id(name), states)


class TestRoles:
    def test_a_new_leader_records_the_start_offset_of_its_epoch(self, world: World) -> None:
        world.assign("t", leader_epoch=3)
        append(world)
        world.assign("t", leader_epoch=5, partition_epoch=1)
        append(world)
        partition = world.replicas.partition("t", 0)
        assert partition.end_offset_for_epoch(3) == (3, 1)
        assert partition.end_offset_for_epoch(5) == (5, 2)
        assert partition.end_offset_for_epoch(4) == (3, 1)

    def test_a_late_request_to_delete_a_topic_spares_the_one_created_after_it(self, world: World) -> None:
        world.assign("t")
        append(world)
        assert stop(world, leader_epoch=-2, topic_id=uuid.UUID(int=77)) == ErrorCode.NONE
        assert world.replicas.partition("t", 0).log.log_end_offset == 1
        assert stop(world, leader_epoch=-2, topic_id=world.topic_id("t")) == ErrorCode.NONE
        assert world.replicas.find("t", 0) is None

    def test_a_broker_logs_one_line_for_all_leaderships_of_a_request(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        request = _new_topic(world, "t", 3, leader_epoch=4)
        with caplog.at_level(logging.INFO):
            for _ in range(2):  # The repeated request begins no role.
                assigned = world.roles.apply_leader_and_isr(request)
                world.clock.advance(0)
                fired(assigned)
        assert [line for line in caplog.messages if line.startswith("Leading")] == [
            "Leading t-0 in leader epoch 4, and 2 more partitions"
        ]

    def test_the_broker_serves_other_requests_while_it_creates_many_logs(self, led: World) -> None:
        assigned = led.roles.apply_leader_and_isr(_new_topic(led, "many", 50))
        assert not assigned.called
        assert 0 < len(led.replicas.of_topic("many")) < 10
        assert append(led) == 0
        led.clock.advance(0)
        response = fired(assigned)
        assert len(led.replicas.of_topic("many")) == 50
        errors = response.topics[0].partition_errors
        assert [(row.partition_index, row.error_code) for row in errors] == [(n, 0) for n in range(50)]

    def test_a_request_that_becomes_outdated_creates_no_further_logs(self, world: World) -> None:
        def check_current() -> None:
            if len(world.replicas.of_topic("many")) > 10:
                raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)

        assigned = world.roles.apply_leader_and_isr(_new_topic(world, "many", 50), check_current)
        world.clock.advance(0)
        with pytest.raises(BrokerError, match="STALE_BROKER_EPOCH"):
            fired(assigned)
        assert len(world.replicas.of_topic("many")) < 20

    def test_copying_starts_for_all_partitions_once_all_roles_have_begun(self, world: World) -> None:
        assigned = world.roles.apply_leader_and_isr(_new_topic(world, "many", 50, leader=2))
        assert (assigned.called, world.copier.followed) == (False, {})
        world.clock.advance(0)
        fired(assigned)
        assert world.copier.followed == {("many", index): (2, 0) for index in range(50)}

        moved = world.roles.apply_leader_and_isr(_new_topic(world, "many", 100, leader_epoch=1, leader=3))
        assert not moved.called
        assert len(world.copier.followed) < 50, "partitions that left broker 2 are no longer fetched from it"
        world.clock.advance(0)
        assert world.copier.followed == {("many", index): (3, 1) for index in range(100)}

    def test_begun_followers_are_copied_when_the_rest_of_the_request_is_outdated(self, world: World) -> None:
        def check_current() -> None:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)

        request = _new_topic(world, "many", 50, leader=2)
        assigned = world.roles.apply_leader_and_isr(request, check_current)
        world.clock.advance(0)
        with pytest.raises(BrokerError, match="STALE_BROKER_EPOCH"):
            fired(assigned)
        assert len(world.copier.followed) == len(world.replicas.of_topic("many")) > 0

    def test_the_broker_serves_other_requests_while_it_deletes_many_logs(self, led: World) -> None:
        assigned = led.roles.apply_leader_and_isr(_new_topic(led, "many", 50))
        led.clock.advance(0)
        fired(assigned)
        stopped = led.roles.apply_stop_replica(_deletion_of(led, "many", 50))
        assert not stopped.called
        assert 20 < len(led.replicas.of_topic("many")) < 50
        assert append(led) == 0
        led.clock.advance(0)
        assert [(row.partition_index, row.error_code) for row in fired(stopped).partition_errors] == [
            (index, 0) for index in range(50)
        ]
        assert not led.replicas.of_topic("many")

    def test_a_request_that_becomes_outdated_deletes_no_further_logs(self, led: World) -> None:
        assigned = led.roles.apply_leader_and_isr(_new_topic(led, "many", 50))
        led.clock.advance(0)
        fired(assigned)

        def check_current() -> None:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)

        stopped = led.roles.apply_stop_replica(_deletion_of(led, "many", 50), check_current)
        left = len(led.replicas.of_topic("many"))
        led.clock.advance(0)
        with pytest.raises(BrokerError, match="STALE_BROKER_EPOCH"):
            fired(stopped)
        assert len(led.replicas.of_topic("many")) == left > 0

    def test_a_stopping_broker_creates_no_further_logs(self, world: World) -> None:
        assigned = world.roles.apply_leader_and_isr(_new_topic(world, "many", 50))
        made = len(world.replicas.of_topic("many"))
        world.roles.stop()
        world.clock.advance(0)
        with pytest.raises(BrokerError, match="stopping"):
            fired(assigned)
        assert len(world.replicas.of_topic("many")) == made

    def test_an_assignment_with_an_older_leader_epoch_is_refused(self, world: World) -> None:
        world.assign("t", leader_epoch=3)
        assert world.assign("t", leader_epoch=2, leader=2) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert append(world) == 0

    def test_requests_of_an_older_controller_epoch_are_refused(self, world: World) -> None:
        world.assign("t", controller_epoch=4)
        stale = world.assign("t", leader_epoch=9, leader=2, controller_epoch=3)
        assert stale == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stop(world, controller_epoch=3) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert append(world) == 0

    def test_a_broker_creates_no_replica_that_is_assigned_to_others(self, world: World) -> None:
        assert world.assign("t", leader=2, replicas=(2, 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.replicas.find("t", 0) is None

    def test_a_repeated_assignment_changes_nothing(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        append(world)
        follow(world, 2, 1)
        world.assign("t", replicas=(1, 2))
        partition = world.replicas.partition("t", 0)
        assert isinstance(partition.role, Leadership)
        assert partition.role.remotes[2].log_end_offset == 1
        assert partition.high_watermark == 1

    def test_a_follower_refuses_producers_and_other_followers(self, world: World) -> None:
        world.assign("t", leader=2, replicas=(1, 2))
        assert append(world) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert follow(world, 3, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestHandOver:
    def test_writes_with_acks_1_are_refused_until_the_hand_over_has_failed(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        assert append(world) == 0
        world.replicas.begin_hand_over()
        assert append(world) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.replicas.end_hand_over()
        assert append(world) == 0

    def test_a_partition_without_other_replicas_takes_writes_until_the_end(self, world: World) -> None:
        world.assign("t", replicas=(1,))
        assert world.replicas.begin_hand_over() == []
        assert append(world) == 0

    def test_every_in_sync_follower_has_to_copy_what_was_acknowledged(self, world: World) -> None:
        world.assign("t", replicas=(1, 2, 3, 4), isr=(1, 2, 3))
        append(world)
        (last,) = world.replicas.begin_hand_over()
        follow(world, 2, 1)
        assert not last.is_copied()
        follow(world, 3, 1)
        assert last.is_copied()

    def test_nothing_needs_to_be_copied_once_another_broker_leads(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        append(world)
        (last,) = world.replicas.begin_hand_over()
        assert not last.is_copied()
        world.assign("t", leader=2, leader_epoch=1, replicas=(1, 2))
        assert last.is_copied()


class TestInSyncSets:
    def test_a_follower_that_has_caught_up_is_proposed_for_the_in_sync_set(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=2, partition_epoch=7)
        append(world)
        follow(world, 2, 0)
        assert world.proposals == []
        follow(world, 2, 1)
        assert world.proposals == [IsrProposal("t", 0, 2, 7, (1, 2), (-1, -1))]
        follow(world, 2, 1)
        assert len(world.proposals) == 1

    def test_an_accepted_proposal_becomes_the_in_sync_set(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        (proposal,) = world.proposals
        world.replicas.settle_isr(proposal, 0, (1, 2), 1)
        append(world)
        assert world.replicas.partition("t", 0).high_watermark == 0
        follow(world, 2, 1)
        assert world.replicas.partition("t", 0).high_watermark == 1

    def test_a_proposed_member_counts_although_a_new_controller_repeats_the_old_state(
        self, world: World
    ) -> None:
        """The proposal is still under way, and the controller may write it at any time."""
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        (proposal,) = world.proposals
        world.clock.advance(2 * LAG_MS / 1000)
        append(world)
        assert world.replicas.partition("t", 0).high_watermark == 0
        world.assign("t", replicas=(1, 2), isr=(1,), controller_epoch=2)
        assert world.replicas.partition("t", 0).high_watermark == 0
        world.replicas.settle_isr(proposal, 0, (1, 2), 1)
        assert world.replicas.partition("t", 0).high_watermark == 0
        follow(world, 2, 1)
        assert world.replicas.partition("t", 0).high_watermark == 1

    def test_a_lagging_follower_counts_until_its_removal_is_written(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        append(world)
        world.clock.advance(LAG_MS / 1000 - 1)
        world.replicas.shrink_in_sync_sets()
        assert world.proposals == []
        world.clock.advance(2)
        world.replicas.shrink_in_sync_sets()
        (proposal,) = world.proposals
        assert proposal.isr == (1,)
        assert world.replicas.partition("t", 0).high_watermark == 0
        world.replicas.settle_isr(proposal, 0, (1,), 1)
        assert world.replicas.partition("t", 0).high_watermark == 1

    def test_a_refused_proposal_is_repeated_after_the_pause(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        world.replicas.withdraw_isr(world.proposals[0])
        follow(world, 2, 0)
        assert len(world.proposals) == 1
        world.clock.advance(REFUSED_PAUSE_MS / 1000)
        follow(world, 2, 0)
        assert len(world.proposals) == 2

    def test_a_refused_proposal_lets_the_high_watermark_advance(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        append(world)
        assert world.replicas.partition("t", 0).high_watermark == 0
        world.replicas.withdraw_isr(world.proposals[0])
        assert world.replicas.partition("t", 0).high_watermark == 1

    def test_the_high_watermark_does_not_rise_with_fewer_members_than_min_insync_replicas(
        self, tmp_path: Path
    ) -> None:
        world = World(tmp_path, topic_config={"min.insync.replicas": 2})
        world.assign("t", replicas=(1, 2, 3), isr=(1,))
        append(world)
        partition = world.replicas.partition("t", 0)
        assert partition.high_watermark == 0
        follow(world, 2, 1)
        world.replicas.settle_isr(world.proposals[0], 0, (1, 2), 1)
        assert partition.high_watermark == 1

    def test_a_lower_min_insync_replicas_lets_the_high_watermark_rise(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"min.insync.replicas": 2})
        world.assign("t", replicas=(1, 2, 3), isr=(1,))
        append(world)
        partition = world.replicas.partition("t", 0)
        partition.log.settings = replace(partition.log.settings, min_insync_replicas=1)
        world.replicas.topic_settings_changed("t")
        assert partition.high_watermark == 1

    def test_a_single_replica_needs_no_other(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"min.insync.replicas": 2})
        world.assign("t", replicas=(1,))
        append(world)
        assert world.replicas.partition("t", 0).high_watermark == 1

    def test_the_high_watermark_does_not_pass_eligible_replicas(self, world: World) -> None:
        """min.insync.replicas is 1 again, but the controller does not know this yet."""
        world.assign("t", replicas=(1, 2, 3), isr=(1,), eligible=(2, 3))
        append(world)
        partition = world.replicas.partition("t", 0)
        assert partition.high_watermark == 0
        world.assign("t", replicas=(1, 2, 3), isr=(1,), partition_epoch=1)
        assert partition.high_watermark == 1

    def test_an_answered_proposal_says_who_is_eligible(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        append(world)
        world.clock.advance(LAG_MS / 1000 + 1)
        world.replicas.shrink_in_sync_sets()
        world.replicas.settle_isr(world.proposals[0], 0, (1,), 1, (2,))
        assert world.replicas.partition("t", 0).high_watermark == 0

    def test_an_answer_to_a_decided_proposal_does_not_touch_the_next_one(self, world: World) -> None:
        world.assign("t", replicas=(1, 2, 3), isr=(1,))
        follow(world, 2, 0)
        (first,) = world.proposals
        assert world.replicas.is_isr_pending(first)
        world.assign("t", replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1)
        assert not world.replicas.is_isr_pending(first)
        follow(world, 3, 0)
        _, second = world.proposals
        world.replicas.settle_isr(first, 0, (1, 2), 1)
        world.replicas.withdraw_isr(first)
        assert world.replicas.is_isr_pending(second)

    def test_a_proposal_ends_with_the_leadership(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        world.assign("t", leader=2, replicas=(1, 2), isr=(2,), leader_epoch=1, partition_epoch=1)
        assert not world.replicas.is_isr_pending(world.proposals[0])

    def test_an_answer_about_an_earlier_leader_epoch_is_ignored(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        follow(world, 2, 0)
        world.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=1, partition_epoch=5)
        world.replicas.settle_isr(world.proposals[0], 0, (1, 2), 1)
        role = world.replicas.partition("t", 0).role
        assert isinstance(role, Leadership)
        assert role.isr == (1,)

    def test_a_fetch_by_a_broker_without_a_replica_is_refused(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        assert follow(world, 3, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestStopping:
    def test_deleting_a_partition_deletes_its_log(self, led: World) -> None:
        append(led)
        assert stop(led, leader_epoch=-2) == ErrorCode.NONE
        assert led.replicas.find("t", 0) is None
        assert led.logs.find(TopicPartition("t", 0)) is None

    def test_stopping_a_replica_without_deletion_keeps_its_log(self, led: World) -> None:
        append(led)
        assert stop(led, delete=False) == ErrorCode.NONE
        assert led.replicas.find("t", 0) is None
        led.assign("t", leader_epoch=1)
        assert led.replicas.partition("t", 0).log.log_end_offset == 1

    @pytest.mark.parametrize("is_restarted", [True, False])
    def test_a_stopped_replica_is_remembered_with_its_high_watermark(
        self, led: World, tmp_path: Path, *, is_restarted: bool
    ) -> None:
        """The controller stops the replicas of a broker that is about to stop."""
        append(led)
        stop(led, delete=False)
        led.logs.close(led.replicas.high_watermarks())
        again = World(tmp_path) if is_restarted else led
        again.assign("t", replicas=(1, 2), leader_epoch=1)
        assert again.replicas.partition("t", 0).high_watermark == 1

    def test_a_late_stop_request_does_not_stop_a_reassigned_replica(self, world: World) -> None:
        world.assign("t", leader_epoch=4)
        assert stop(world, leader_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
        assert append(world) == 0

    def test_waiting_requests_are_answered_when_the_replica_stops(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        producer, consumer = world.client(), world.client()
        producer.ask(produce_request("t", batch(b"a")))
        consumer.ask(fetch_request(world.topic_id("t"), max_wait_ms=60_000))
        stop(world)
        (produced,), (fetched,) = producer.answers(), consumer.answers()
        assert only_produced(produced).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only_fetched(fetched).error_code != 0

    def test_a_recreated_topic_begins_empty(self, led: World) -> None:
        append(led)
        stop(led)
        led.assign("t")
        assert led.replicas.partition("t", 0).log.log_end_offset == 0


class FailingFile(OsFile):
    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        raise OSError(5, "Input/output error")


class FailingDisk(OsDisk):
    """A disk that cannot write the log of partition `broken`."""

    broken = ""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if self.broken and self.broken in path and path.endswith(".log"):
            return FailingFile(path, create=create)
        return super().open(path, create=create)


def test_a_failed_directory_takes_its_partitions_offline_and_closes_no_connection(tmp_path: Path) -> None:
    disk = FailingDisk()
    world = World(tmp_path, disk)
    disk.broken = "t-0"
    world.assign("t", 0)
    consumer = world.client()
    consumer.ask(fetch_request(world.topic_id("t"), max_wait_ms=60_000))
    client = world.client()
    produced = only_produced(client.call(produce_request("t", batch(b"a"))))
    assert produced.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (fetched,) = consumer.answers()
    assert only_fetched(fetched).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        world.replicas.partition("t", 0)
    assert world.assign("t", 0, leader_epoch=1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not client.connection.is_closed


def test_high_watermarks_are_noted_a_few_at_a_time_without_those_that_are_removed_meanwhile(
    world: World,
) -> None:
    count = 2 * TOGETHER + 1
    for index in range(count):
        world.assign("t", index)
    parts = high_watermark_parts(world.replicas)
    assert len(next(parts)) == TOGETHER
    world.replicas.remove(world.replicas.partition("t", count - 1))
    assert list(map(len, parts)) == [TOGETHER, 0]


def test_high_watermarks_are_restored_after_a_restart(world: World, tmp_path: Path) -> None:
    world.assign("t", replicas=(1, 2))
    append(world)
    append(world)
    follow(world, 2, 1)
    assert world.replicas.high_watermarks() == {TopicPartition("t", 0): 1}
    world.logs.close(world.replicas.high_watermarks())
    again = World(tmp_path)
    again.assign("t", replicas=(1, 2), leader_epoch=1)
    partition = again.replicas.partition("t", 0)
    assert (partition.high_watermark, partition.log.log_end_offset) == (1, 2)


def test_a_checkpointed_high_watermark_before_the_log_start_is_raised_to_it(
    world: World, tmp_path: Path
) -> None:
    """The checkpoint of log starts is written at once, that of high watermarks now and then."""
    world.assign("t", replicas=(1, 2))
    for _ in range(3):
        append(world)
    follow(world, 2, 2)
    delete_records(world.replicas.partition("t", 0), 2)
    world.logs.close({TopicPartition("t", 0): 1})
    again = World(tmp_path)
    again.assign("t", replicas=(1, 2), leader_epoch=1)
    partition = again.replicas.partition("t", 0)
    assert (partition.log.log_start_offset, partition.high_watermark) == (2, 2)


class Refusing:
    """A partition's guard that admits the first `limit` appends."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked: list[tuple[int, int]] = []

    def admit(self, origin: Origin | None, acks: int) -> None:
        assert origin is not None
        self.asked.append((origin.id, acks))
        if len(self.asked) > self.limit:
            raise BrokerError(ErrorCode.PRODUCER_FENCED, "not the owner")

    def admits(self, origin: Origin, acks: int) -> bool:
        return False


def test_a_partitions_guard_decides_when_the_offset_is_assigned(world: World) -> None:
    world.assign("t", leader_epoch=2)
    guard = Refusing(1)
    world.replicas.partition("t", 0).admission = guard
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert only_produced(world.client().call(produce_request("t", records))).error_code == 0
    assert append(world) == ErrorCode.PRODUCER_FENCED
    # A retry of a successful append is answered without the guard.
    again = only_produced(world.client().call(produce_request("t", records)))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert guard.asked == [(1, -1), (2, 1)]


def test_fetched_records_are_sent_as_slices_of_the_file(led: World) -> None:
    """The broker does not read the records of a fetch into memory, unless they have only a few kilobytes."""
    append(led, bytes(10_000))
    sent: list[Part] = []
    client = led.client()
    client.wire.send = sent.extend  # type: ignore[method-assign]
    client.ask(fetch_request(led.topic_id("t")))
    assert [type(part).__name__ for part in sent if not isinstance(part, bytes)] == ["FileSlice"]
