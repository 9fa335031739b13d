"""Offset commits through the real handlers: replicated before acknowledged, and read by the next
coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.handlers.offset_fetch import OffsetFetchHandler
from holdfast_log.broker.requests.parts import PART_ROWS
from holdfast_log.coordinator.groups.offsets import STEP
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.groups.group_broker import (
    GroupBroker,
    commit,
    commit_error,
    commit_request,
    fetch_request,
    fetched,
)
from tests.broker.world import SessionFollower, only_produced, produce_request
from tests.broker.world import fetch_request as records_request
from tests.missed import assert_missed
from tests.models.batches import batch

MANY = 4 * PART_ROWS + 1


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    broker = GroupBroker(tmp_path)
    broker.assign("t", 0)
    broker.assign("t", 1)
    broker.make_offsets_topic()
    return broker


@pytest.fixture
def replicated(tmp_path: Path) -> GroupBroker:
    return replicated_on(tmp_path)


def replicated_on(directory: Path) -> GroupBroker:
    """A broker whose offsets have a second replica on broker 2, which fetches when the test says so."""
    broker = GroupBroker(directory)
    broker.assign("t", 0)
    broker.offsets_replicas = (1, 2)
    broker.make_offsets_topic()
    return broker


def replicate(broker: GroupBroker, group: str) -> None:
    """Fetch as broker 2 until it has all records of the group's partition."""
    index = broker.partition_of(group)
    end_offset = broker.replicas.partition(OFFSETS_TOPIC, index).log.log_end_offset
    request = records_request(broker.topic_id(OFFSETS_TOPIC), end_offset, index, replica_id=2, leader_epoch=0)
    broker.client().ask(request)


def test_a_committed_offset_is_fetched(broker: GroupBroker) -> None:
    client = broker.client()
    assert commit(client, "g", 41, metadata="here") == ErrorCode.NONE
    assert commit(client, "g", 42) == ErrorCode.NONE
    assert fetched(client, "g") == (42, ErrorCode.NONE)
    assert fetched(client, "g", partition=1) == (-1, ErrorCode.NONE)
    assert fetched(client, "nobody") == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(2, 9))
def test_every_version_of_offset_commit_is_answered(broker: GroupBroker, version: int) -> None:
    client = broker.client()
    assert commit_error(client.call(commit_request("g", 7), version)) == ErrorCode.NONE
    assert fetched(client, "g") == (7, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_of_offset_fetch_is_answered(broker: GroupBroker, version: int) -> None:
    client = broker.client()
    commit(client, "g", 7, metadata="m")
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    response = client.call(OffsetFetchRequest(group_id="g", topics=topics), version)
    ((first, second),) = [topic.partitions for topic in response.topics]
    assert (first.committed_offset, first.metadata, first.error_code) == (7, "m", 0)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)


def test_all_partitions_of_several_groups_are_fetched_at_once(broker: GroupBroker) -> None:
    client = broker.client()
    for group, offset in (("a", 1), ("b", 2)):
        commit(client, group, offset)
        commit(client, group, offset + 10, partition=1)
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("a", "b", "c")]

    response = client.call(OffsetFetchRequest(groups=wanted))

    offsets = {
        group.group_id: [found.committed_offset for topic in group.topics for found in topic.partitions]
        for group in response.groups
    }
    assert offsets == {"a": [1, 11], "b": [2, 12], "c": []}


@pytest.mark.parametrize("version", [2, 7, OffsetFetchRequest.api.max_version])
def test_all_partitions_of_a_group_with_many_offsets_are_fetched_a_few_in_each_turn(
    broker: GroupBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client()
    many = [OffsetToCommit(TopicPartition("t", index), index) for index in range(MANY)]
    broker.groups.service.ask(
        "g", lambda shard, waiting, now: shard.commit_offsets(waiting, "g", many, now_ms=now)
    )
    fetched: list[int] = []
    fetch_offsets = GroupShard.fetch_offsets

    def counting(self: GroupShard, request: object, group_id: str, partitions: Any, **how: Any) -> Any:
        fetched.append(len(partitions))
        return fetch_offsets(self, request, group_id, partitions, **how)

    monkeypatch.setattr(GroupShard, "fetch_offsets", counting)
    wanted = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    client.ask(OffsetFetchRequest(group_id="g", topics=None, groups=wanted), version)
    assert client.answers() == []
    broker.clock.pump([0] * MANY)
    (response,) = client.answers()
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [found.committed_offset for topic in topics for found in topic.partitions] == list(range(MANY))
    assert sum(fetched) == MANY
    assert max(fetched) == PART_ROWS


def test_offsets_of_a_deleted_topic_are_deleted_by_one_shard_in_each_turn(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups are those of three shards, each of which has more than a turn's work."""
    service = broker.groups.service
    many = [OffsetToCommit(TopicPartition("t", index), index) for index in range(2 * STEP)]
    for group in map(str, range(9)):
        service.ask(
            group,
            lambda shard, waiting, now, group=group: shard.commit_offsets(waiting, group, many, now_ms=now),
        )
    steps: list[int] = []
    work_off = GroupShard.work_off

    def counting(self: GroupShard, now_ms: int) -> Any:
        result = work_off(self, now_ms)
        steps.append(len(result.records))
        return result

    monkeypatch.setattr(GroupShard, "work_off", counting)
    broker.delete("t")
    assert service.offset_count == 9 * 2 * STEP, "not yet"
    turns = 0
    while service.offset_count:
        done = len(steps)
        now_s = broker.clock.seconds()
        for call in [each for each in broker.clock.calls if each.getTime() <= now_s]:
            broker.clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
        turns += 1
        assert len(steps) - done <= 1
    assert max(steps) == STEP
    assert turns >= 9 * 2


def test_a_group_with_many_offsets_that_is_fetched_in_one_turn_is_missed(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = test_all_partitions_of_a_group_with_many_offsets_are_fetched_a_few_in_each_turn
    assert_missed(
        monkeypatch,
        (AssertionError,),
        OffsetFetchHandler,
        "may_ask_for_all",
        False,
        lambda: fetch(broker, 9, monkeypatch),
    )


def test_all_partitions_of_many_groups_named_twice_are_refused_before_they_are_looked_up(
    broker: GroupBroker,
) -> None:
    commit(broker.client(), "g", 7)
    wanted = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 2
    response = broker.client().call(OffsetFetchRequest(groups=wanted))
    assert {group.error_code for group in response.groups} == {ErrorCode.INVALID_REQUEST}


def test_a_commit_is_answered_when_all_in_sync_replicas_have_it(replicated: GroupBroker) -> None:
    client = replicated.client()
    client.ask(commit_request("g", 5))
    assert client.answers() == []

    replicate(replicated, "g")

    assert [commit_error(answer) for answer in client.answers()] == [ErrorCode.NONE]


def test_an_offset_that_may_still_be_lost_is_not_returned(replicated: GroupBroker) -> None:
    writer, reader = replicated.client(), replicated.client()
    writer.ask(commit_request("g", 5))
    reader.ask(fetch_request("g"))
    assert reader.answers() == []

    replicate(replicated, "g")

    (answer,) = reader.answers()
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_beyond_its_timeout_is_answered_with_an_error(replicated: GroupBroker) -> None:
    client = replicated.client()
    client.ask(commit_request("g", 5))
    replicated.pass_time(5_100)
    assert [commit_error(answer) for answer in client.answers()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    replicate(replicated, "g")  # The commit takes effect although it was answered with a timeout.

    assert fetched(client, "g") == (5, ErrorCode.NONE)


def test_a_commit_waits_for_the_disk_with_flush_before_ack(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, topic_config={"flush.before.ack": True})
    broker.assign("t", 0)
    broker.make_offsets_topic()
    client = broker.client()
    broker.workers.is_held = True
    client.ask(commit_request("g", 5))
    assert client.answers() == []

    broker.workers.release()

    assert [commit_error(answer) for answer in client.answers()] == [ErrorCode.NONE]


def test_a_coordinator_alone_in_sync_without_its_lease_neither_accepts_nor_returns_offsets(
    broker: GroupBroker,
) -> None:
    client, reader = broker.client(), broker.client()
    commit(client, "g", 5)
    broker.set_lease(is_held=False)
    assert commit(client, "g", 6) == ErrorCode.NOT_COORDINATOR
    reader.ask(fetch_request("g"))
    assert reader.answers() == [], "another broker may have it by now, and know better"

    broker.set_lease(is_held=True)

    (answer,) = reader.answers()
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5
    assert commit(client, "g", 6) == ErrorCode.NONE


def test_without_its_lease_a_coordinator_answers_what_its_followers_prove(replicated: GroupBroker) -> None:
    index = replicated.partition_of("g")
    follower = SessionFollower(replicated, index, topic=OFFSETS_TOPIC)
    client, reader = replicated.client(), replicated.client()
    follower.fetch_for(0.3)
    replicated.set_lease(is_held=False)
    client.ask(commit_request("g", 6))
    assert client.answers() == []
    follower.fetch()
    assert [commit_error(answer) for answer in client.answers()] == [ErrorCode.NONE]

    replicated.pass_time(100)
    reader.ask(fetch_request("g"))
    replicated.pass_time(100)
    follower.fetch()
    replicated.pass_time(200)
    assert reader.answers() == [], "the follower may have asked for this fetch before the read came"
    follower.fetch()
    replicated.pass_time(200)
    (answer,) = reader.answers()
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 6


def test_too_few_in_sync_replicas_refuse_a_commit_and_change_nothing(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, topic_config={"min.insync.replicas": 2})
    broker.assign("t", 0)
    broker.make_offsets_topic()
    client = broker.client()

    assert commit(client, "g", 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched(client, "g") == (-1, ErrorCode.NONE)


def test_committed_offsets_are_found_in_the_next_leader_epoch(broker: GroupBroker) -> None:
    client = broker.client()
    for offset in range(100):
        commit(client, "g", offset)
    broker.hand_over("g", leader=2, leader_epoch=1)
    assert commit(client, "g", 1000) == ErrorCode.NOT_COORDINATOR
    assert fetched(client, "g") == (-1, ErrorCode.NOT_COORDINATOR)

    broker.hand_over("g", leader=1, leader_epoch=2)

    assert fetched(client, "g") == (99, ErrorCode.NONE)


def test_waiting_commits_are_sent_to_the_next_coordinator(replicated: GroupBroker) -> None:
    client = replicated.client()
    client.ask(commit_request("g", 5))

    replicated.hand_over("g", leader=2, leader_epoch=1)

    assert [commit_error(answer) for answer in client.answers()] == [ErrorCode.NOT_COORDINATOR]


def test_offset_requests_during_loading_get_a_retriable_error(broker: GroupBroker) -> None:
    client = broker.client()
    commit(client, "g", 5)
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)
    assert commit(client, "g", 6) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert fetched(client, "g") == (-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    broker.workers.release()

    assert fetched(client, "g") == (5, ErrorCode.NONE)


def test_loading_stops_when_the_partition_is_lost(broker: GroupBroker) -> None:
    client = broker.client()
    commit(client, "g", 5)
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)
    broker.hand_over("g", leader=2, leader_epoch=2)
    broker.workers.release()
    assert fetched(client, "g") == (-1, ErrorCode.NOT_COORDINATOR)

    broker.hand_over("g", leader=1, leader_epoch=3)

    assert fetched(client, "g") == (5, ErrorCode.NONE)


def test_groups_of_a_damaged_log_are_not_served(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = broker.client()
    for offset in range(3):
        commit(client, "g", offset)
    log = broker.replicas.partition(OFFSETS_TOPIC, broker.partition_of("g")).log
    path = Path(log.directory) / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)

    broker.hand_over("g", leader=1, leader_epoch=1)

    assert fetched(client, "g") == (-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.clock.pump([0.1] * 10)  # Meanwhile the broker examines the segment.
    assert fetched(client, "g") == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert "cannot be read" in caplog.text


def test_partitions_that_do_not_exist_are_refused_one_by_one(broker: GroupBroker) -> None:
    client = broker.client()
    request = commit_request("g", 5)
    request.topics += commit_request("g", 6, topic="none").topics

    response = client.call(request)

    codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(client, "g", 7, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(client, "g") == (5, ErrorCode.NONE)


def test_deleted_offsets_stay_deleted(broker: GroupBroker) -> None:
    client = broker.client()
    commit(client, "g", 5)
    commit(client, "g", 6, partition=1)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]

    response = client.call(OffsetDeleteRequest(group_id="g", topics=topics))

    ((first, second),) = [topic.partitions for topic in response.topics]
    assert (response.error_code, first.error_code) == (0, 0)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.hand_over("g", leader=1, leader_epoch=1)
    assert fetched(client, "g") == (-1, ErrorCode.NONE)
    assert fetched(client, "g", partition=1) == (6, ErrorCode.NONE)


def test_offsets_of_a_deleted_topic_are_deleted(broker: GroupBroker) -> None:
    client = broker.client()
    commit(client, "g", 5)

    broker.assign("other", 0)
    commit(client, "g", 6, topic="other")

    broker.delete("t")

    assert fetched(client, "g", topic="other") == (6, ErrorCode.NONE)
    assert fetched(client, "g") == (-1, ErrorCode.NONE)
    broker.hand_over("g", leader=1, leader_epoch=1)
    assert fetched(client, "g") == (-1, ErrorCode.NONE)


def test_offsets_unused_beyond_their_retention_are_deleted(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, offsets_retention_minutes=10)
    broker.assign("t", 0)
    broker.make_offsets_topic()
    client = broker.client()
    commit(client, "old", 5)
    broker.clock.advance(6 * 60)
    commit(client, "young", 6)
    broker.clock.advance(6 * 60)

    broker.groups.service.expire_offsets()
    broker.clock.advance(0)

    assert fetched(client, "old") == (-1, ErrorCode.NONE)
    assert fetched(client, "young") == (6, ErrorCode.NONE)
    broker.hand_over("old", leader=1, leader_epoch=1)
    assert fetched(client, "old") == (-1, ErrorCode.NONE), "a tombstone was written"


def test_clients_cannot_write_to_the_offsets_topic(broker: GroupBroker) -> None:
    response = only_produced(broker.client().call(produce_request(OFFSETS_TOPIC, batch(b"mine"))))
    assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.replicas.partition(OFFSETS_TOPIC, 0).log.log_end_offset == 0
