"""Fetch sessions (KIP-227), through the dispatcher: the partitions named, and the responses."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from holdfast_log.broker.replication.fetch_sessions import SessionLimits
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.session_fetch import READS_MAX
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.broker.world import LAG_MS, Client, World, only_produced, produce_request
from tests.models.batches import batch

FOLLOWER = 2
ANYWHERE = 1 << 20


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@dataclass
class Reader:
    """A KIP-227 reader of topic `t`: it names changed partitions only, and counts session epochs."""

    world: World
    replica_id: int = -1
    broker_epoch: int = -1
    client: Client = field(init=False)
    session_id: int = 0
    epoch: int = 0
    version: int | None = None

    def __post_init__(self) -> None:
        self.client = self.world.client()

    def request(
        self,
        offsets: dict[int, int] | None = None,
        *,
        forgotten: Sequence[int] = (),
        max_wait_ms: int = 0,
        max_bytes: int = ANYWHERE,
    ) -> FetchRequest:
        topic_id = self.world.topic_id("t")
        positions = [
            FetchPartition(
                partition=index, fetch_offset=offset, log_start_offset=0, partition_max_bytes=ANYWHERE
            )
            for index, offset in (offsets or {}).items()
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=positions)] if positions else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )
        if self.version is not None and self.version < 15:
            request.replica_id = self.replica_id
        else:
            request.replica_state.replica_id = self.replica_id
            request.replica_state.replica_epoch = self.broker_epoch
        return request

    def ask(self, offsets: dict[int, int] | None = None, **wanted: int) -> None:
        self.client.ask(self.request(offsets, **wanted), self.version)  # type: ignore[arg-type]

    def answer(self) -> dict[int, PartitionData]:
        """The partitions of the only answer, by index; the reader's session id and epoch follow it."""
        (response,) = self.client.answers()
        return self.take(response)

    def take(self, response: FetchResponse) -> dict[int, PartitionData]:
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        self.epoch = self.epoch + 1 if response.session_id else 0
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    def fetch(
        self,
        offsets: dict[int, int] | None = None,
        *,
        forgotten: Sequence[int] = (),
        max_bytes: int = ANYWHERE,
    ) -> dict[int, PartitionData]:
        request = self.request(offsets, forgotten=forgotten, max_bytes=max_bytes)
        return self.take(self.client.call(request, self.version))

    def error(self, offsets: dict[int, int] | None = None) -> ErrorCode:
        """The top-level error code of the response to a fetch."""
        response = self.client.call(self.request(offsets), self.version)
        assert response.responses == []
        return ErrorCode(response.error_code)


def reading(world: World, partitions: int = 1) -> Reader:
    """Create partitions, and a reader that has fetched each once."""
    for index in range(partitions):
        world.assign("t", index)
    reader = Reader(world)
    reader.fetch(dict.fromkeys(range(partitions), 0))
    return reader


def append(world: World, index: int = 0, *values: bytes, topic: str = "t") -> None:
    produced = only_produced(
        world.client().call(produce_request(topic, batch(*values or (b"x",)), index, acks=1))
    )
    assert produced.error_code == ErrorCode.NONE


def leadership(world: World, index: int = 0) -> Leadership:
    role = world.replicas.partition("t", index).role
    assert isinstance(role, Leadership)
    return role


class TestAnswers:
    @pytest.mark.parametrize("version", [7, 11, 12, 13, 16])
    def test_a_sessions_first_answer_is_complete_and_later_ones_hold_only_changes(
        self, world: World, version: int
    ) -> None:
        for index in range(3):
            world.assign("t", index)
        append(world, 0)
        reader = Reader(world, version=version)
        first = reader.fetch({0: 0, 1: 0, 2: 0})
        assert reader.session_id > 0
        assert sorted(first) == [0, 1, 2]
        assert reader.fetch({0: 1}) == {}
        append(world, 2)
        (news,) = reader.fetch().values()
        assert (news.partition_index, news.high_watermark, bool(news.records)) == (2, 1, True)
        assert reader.fetch({2: 1}) == {}

    def test_records_are_sent_again_until_the_readers_offset_advances(self, world: World) -> None:
        """The client may have lost the answer and kept the session."""
        world.assign("t")
        append(world)
        reader = Reader(world)
        again = [reader.fetch(None if number else {0: 0})[0].records for number in range(3)]
        assert again[0]
        assert again == [again[0]] * 3

    def test_a_fetch_reads_only_changed_partitions(self, world: World) -> None:
        reader = reading(world, 100)
        with mock.patch.object(Partition, "read", autospec=True, side_effect=Partition.read) as read:
            assert reader.fetch() == {}
            assert read.call_count == 0
            append(world, 7)
            assert sorted(reader.fetch()) == [7]
            assert read.call_count == 1

    def test_a_changed_log_start_is_returned_once(self, world: World) -> None:
        world.assign("t")
        append(world, 0, b"a", b"b")
        reader = Reader(world)
        reader.fetch({0: 2})
        world.deletions.tell_readers([world.deletions.begin("t", 0, 2)])
        assert reader.fetch()[0].log_start_offset == 2
        assert reader.fetch() == {}

    def test_a_partitions_error_is_returned_until_it_ends_and_then_its_offsets(self, world: World) -> None:
        world.assign("t", 0)
        world.assign("t", 1)
        reader = Reader(world)
        reader.fetch({0: 0, 1: 0})
        world.assign("t", 0, leader=2, leader_epoch=1, replicas=(1, 2))
        for _ in range(2):
            (told,) = reader.fetch().values()
            assert (told.partition_index, told.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.assign("t", 0, leader_epoch=2, replicas=(1, 2), isr=(1,))
        assert reader.fetch()[0].error_code == ErrorCode.NONE
        assert reader.fetch() == {}

    def test_a_session_reads_a_missing_topic_once_it_exists(self, world: World) -> None:
        reader = Reader(world)
        assert reader.fetch({0: 0})[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        world.assign("t")
        assert reader.fetch()[0].error_code == ErrorCode.NONE
        assert reader.fetch() == {}
        append(world)
        assert reader.fetch()[0].records

    def test_a_sessions_fetch_of_a_recreated_topic_is_an_error(self, world: World) -> None:
        reader = reading(world)
        partition = world.replicas.partition("t", 0)
        partition.topic_id = uuid.UUID(int=99)
        append(world)
        assert reader.fetch()[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_partitions_left_out_for_lack_of_room_come_first_in_the_next_response(self, world: World) -> None:
        reader = reading(world, 5)
        for index in range(5):
            append(world, index)
        order: list[int] = []
        moved: dict[int, int] = {}
        for _ in range(5):
            got = [index for index, data in reader.fetch(moved, max_bytes=1).items() if data.records]
            moved = dict.fromkeys(got, 1)
            order += got
        assert order == [0, 1, 2, 3, 4]
        assert reader.fetch(moved) == {}

    def test_a_batch_larger_than_the_remaining_room_is_in_the_next_response(self, world: World) -> None:
        reader = reading(world, 2)
        append(world, 0)
        append(world, 1, b"x" * 1000)
        first = reader.fetch(max_bytes=500)
        assert [index for index, data in first.items() if data.records] == [0]
        assert reader.fetch({0: 1}, max_bytes=500)[1].records


class TestWaiting:
    def test_a_fetch_waits_for_any_partition_of_its_session(self, world: World) -> None:
        reader = reading(world, 3)
        reader.ask(max_wait_ms=500)
        assert len(world.replicas.readers) == 1
        append(world, 1)
        assert sorted(reader.answer()) == [1]
        assert len(world.replicas.readers) == 0

    def test_a_fetch_without_changes_is_answered_empty_after_max_wait_ms(self, world: World) -> None:
        reader = reading(world)
        reader.ask(max_wait_ms=500)
        world.clock.advance(0.5)
        assert reader.answer() == {}

    def test_the_first_fetch_of_a_session_waits_and_returns_all_partitions(self, world: World) -> None:
        for index in range(3):
            world.assign("t", index)
        reader = Reader(world)
        reader.ask({0: 0, 1: 0, 2: 0}, max_wait_ms=500)
        append(world, 1)
        assert sorted(reader.answer()) == [0, 1, 2]
        assert reader.session_id > 0

    def test_an_error_of_a_partition_ends_the_wait_of_a_fetch(self, world: World) -> None:
        reader = reading(world)
        reader.ask(max_wait_ms=500)
        world.assign("t", leader=2, leader_epoch=1, replicas=(1, 2))
        assert reader.answer()[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_later_fetch_of_the_session_ends_the_wait(self, world: World) -> None:
        reader = reading(world)
        reader.ask(max_wait_ms=500)
        reader.epoch += 1
        reader.ask(max_wait_ms=500)
        (first,) = reader.client.answers()
        assert (first.error_code, first.responses) == (0, [])

    def test_a_closed_connection_ends_its_session_and_its_waiting_fetch(self, world: World) -> None:
        reader = reading(world)
        reader.ask(max_wait_ms=500)
        reader.client.connection.connection_lost("gone")
        assert len(world.replicas.sessions) == 0
        assert len(world.replicas.readers) == 0
        assert ("t", 0) not in world.replicas.sessions
        assert world.clock.getDelayedCalls() == []


class TestEpochs:
    def test_an_unknown_session_is_refused(self, world: World) -> None:
        world.assign("t")
        assert Reader(world, session_id=5, epoch=1).error() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_a_session_of_another_principal_is_refused(self, world: World) -> None:
        reader = reading(world)
        other = Reader(world, session_id=reader.session_id, epoch=1)
        other.client.connection.principal = "User:mallory"
        assert other.error() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert reader.fetch() == {}

    @pytest.mark.parametrize("wrong", [1, 3])
    def test_an_unexpected_session_epoch_is_refused(self, world: World, wrong: int) -> None:
        reader = reading(world)
        reader.fetch()
        reader.epoch = wrong
        assert reader.error() == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        reader.epoch = 2
        assert reader.fetch() == {}

    def test_after_the_largest_session_epoch_comes_1(self, world: World) -> None:
        reader = reading(world)
        (session,) = world.replicas.sessions._sessions.values()
        session.epoch = reader.epoch = 2**31 - 1
        reader.fetch()
        reader.epoch = 1
        assert reader.fetch() == {}

    def test_a_session_cannot_switch_from_topic_names_to_topic_ids(self, world: World) -> None:
        world.assign("t")
        reader = Reader(world, version=12)
        reader.fetch({0: 0})
        reader.version = 13
        assert reader.error() == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_the_final_epoch_ends_the_session_and_is_answered_in_full(self, world: World) -> None:
        reader = reading(world)
        reader.epoch = -1
        assert sorted(reader.fetch({0: 0})) == [0]
        assert reader.session_id == 0
        assert len(world.replicas.sessions) == 0

    def test_another_first_fetch_replaces_the_session(self, world: World) -> None:
        reader = reading(world)
        old, reader.epoch = reader.session_id, 0
        reader.fetch({0: 0})
        assert reader.session_id != old
        assert len(world.replicas.sessions) == 1

    def test_a_reader_that_wants_no_session_gets_none(self, world: World) -> None:
        world.assign("t")
        reader = Reader(world, epoch=-1)
        reader.fetch({0: 0})
        assert reader.session_id == 0
        assert len(world.replicas.sessions) == 0


class TestMembers:
    def test_a_fetch_adds_partitions_to_its_session_and_removes_forgotten_ones(self, world: World) -> None:
        for index in range(3):
            world.assign("t", index)
        reader = Reader(world)
        reader.fetch({0: 0, 1: 0})
        assert sorted(reader.fetch({2: 0}, forgotten=[0])) == [2]
        append(world, 0)
        append(world, 1)
        assert sorted(reader.fetch()) == [1]

    def test_a_session_ends_with_its_last_partition(self, world: World) -> None:
        reader = reading(world)
        assert reader.fetch(forgotten=[0]) == {}
        assert reader.session_id == 0
        assert len(world.replicas.sessions) == world.replicas.sessions.partitions == 0

    def test_without_room_for_a_session_every_response_is_complete(self, tmp_path: Path) -> None:
        world = World(tmp_path, session_limits=SessionLimits(sessions_max=0))
        world.assign("t")
        reader = Reader(world)
        for _ in range(2):
            assert sorted(reader.fetch({0: 0})) == [0]
            assert reader.session_id == 0

    def test_a_session_that_grows_too_large_ends(self, tmp_path: Path) -> None:
        world = World(tmp_path, session_limits=SessionLimits(partitions_max=3))
        for index in range(4):
            world.assign("t", index)
        reader = Reader(world)
        reader.fetch({0: 0, 1: 0, 2: 0})
        assert reader.error({3: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(world.replicas.sessions) == world.replicas.sessions.partitions == 0

    def test_a_consumer_with_too_many_partitions_is_refused(self, tmp_path: Path) -> None:
        world = World(tmp_path, session_limits=SessionLimits(consumer_partitions_max=3))
        assert Reader(world).error(dict.fromkeys(range(4), 0)) == ErrorCode.INVALID_REQUEST
        reader = Reader(world)
        reader.fetch(dict.fromkeys(range(3), 0))
        assert reader.error({3: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_one_fetch_answers_for_a_part_of_the_unknown_partitions_of_a_session(self, world: World) -> None:
        """A request of 52 bytes must not have megabytes of errors for an answer."""
        reader = Reader(world)
        count = 3 * READS_MAX
        reader.ask(dict.fromkeys(range(count), 0))
        world.clock.advance(0)  # So many are answered in a later turn.
        assert len(reader.answer()) == count
        told: set[int] = set()
        for _ in range(3):
            reader.ask()
            world.clock.advance(0)
            found = reader.answer()
            assert len(found) == READS_MAX
            told |= set(found)
        assert len(told) == count


class TestFollowers:
    def follower(self, world: World, broker_epoch: int = 7) -> Reader:
        return Reader(world, replica_id=FOLLOWER, broker_epoch=broker_epoch)

    def following(self, world: World) -> Reader:
        """Create a partition, and a follower that has fetched it once."""
        world.assign("t", replicas=(1, FOLLOWER))
        follower = self.follower(world)
        follower.fetch({0: 0})
        return follower

    def test_a_follower_that_fetches_without_naming_partitions_stays_in_sync(self, world: World) -> None:
        """A follower names a partition in a fetch only when it has received records of it."""
        follower = self.following(world)
        for _ in range(10):
            world.clock.advance(LAG_MS / 1000)
            assert follower.fetch() == {}
        append(world)
        world.replicas.shrink_in_sync_sets()
        assert world.proposals == []

    def test_a_follower_that_stops_fetching_is_removed_from_the_in_sync_set(self, world: World) -> None:
        self.following(world)
        world.clock.advance(LAG_MS / 1000 + 1)
        append(world)
        world.replicas.shrink_in_sync_sets()
        (proposal,) = world.proposals
        assert proposal.isr == (1,)

    def test_a_follower_whose_offset_never_advances_is_removed_from_the_in_sync_set(
        self, world: World
    ) -> None:
        follower = self.following(world)
        append(world)
        for _ in range(3):
            world.clock.advance(LAG_MS / 2000 + 1)
            assert follower.fetch()[0].records
        world.replicas.shrink_in_sync_sets()
        (proposal,) = world.proposals
        assert proposal.isr == (1,)

    def test_a_followers_fetch_raises_the_high_watermark_and_returns_it(self, world: World) -> None:
        follower = self.following(world)
        append(world)
        assert follower.fetch()[0].high_watermark == 0
        assert follower.fetch({0: 1})[0].high_watermark == 1
        assert follower.fetch() == {}

    def test_a_new_high_watermark_does_not_end_a_followers_wait(self, world: World) -> None:
        world.assign("t", replicas=(1, FOLLOWER, 3))
        follower, other = self.follower(world), Reader(world, replica_id=3)
        follower.fetch({0: 0})
        append(world)
        follower.fetch()
        follower.fetch({0: 1})
        follower.ask(max_wait_ms=500)
        other.fetch({0: 1})
        assert world.replicas.partition("t", 0).high_watermark == 1
        assert follower.client.answers() == []
        world.clock.advance(0.5)
        assert follower.answer()[0].high_watermark == 1

    def test_a_fetch_that_names_no_partition_can_bring_its_follower_into_the_in_sync_set(
        self, world: World
    ) -> None:
        world.assign("t", replicas=(1, FOLLOWER), isr=(1,))
        follower = self.follower(world)
        role = leadership(world)
        role.propose((1, 3))  # another proposal is under way
        follower.fetch({0: 0})
        assert world.proposals == []
        role.withdraw()
        follower.fetch()
        (proposal,) = world.proposals
        assert (proposal.isr, proposal.broker_epochs) == ((1, FOLLOWER), (-1, 7))

    def test_a_follower_removed_from_the_in_sync_set_joins_it_again(self, world: World) -> None:
        follower = self.following(world)
        world.clock.advance(LAG_MS / 1000 + 1)
        append(world)
        world.replicas.shrink_in_sync_sets()
        (shrunk,) = world.proposals
        follower.fetch()
        world.replicas.settle_isr(shrunk, 0, [1], 1)
        follower.fetch({0: 1})
        assert world.proposals[-1].isr == (1, FOLLOWER)

    def test_the_leader_adopts_a_followers_new_broker_epoch_within_a_session(self, world: World) -> None:
        follower = self.following(world)
        follower.broker_epoch = 8
        follower.fetch()
        assert leadership(world).broker_epoch_of(FOLLOWER) == 8

    def test_a_followers_session_is_fenced_when_the_leader_epoch_changes(self, world: World) -> None:
        world.assign("t", replicas=(1, FOLLOWER))
        follower = self.follower(world)
        request = follower.request({0: 0})
        request.topics[0].partitions[0].current_leader_epoch = 0
        follower.take(follower.client.call(request))
        world.assign("t", replicas=(1, FOLLOWER), leader_epoch=1, partition_epoch=1)
        assert follower.fetch()[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
