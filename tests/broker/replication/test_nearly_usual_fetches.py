"""Fetches of one partition and of two that differ from usual ones in one thing: compiled functions must leave
them to Python. In either form the broker answers them alike."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from holdfast_log.broker.replication.fetch_sessions import SessionLimits
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from tests.broker.world import World, fetch_request, produce_request
from tests.models.batches import batch
from tests.models.orders import broker_metadata, partition_metadata, update_metadata

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for index in (0, 1):
        world.assign("t", index)
    return world


@pytest.fixture(params=[1, 2], ids=["one partition", "two partitions"])
def count(request: pytest.FixtureRequest) -> int:
    """How many partitions the fetch is about."""
    number: int = request.param
    return number


def asked(topic_id: uuid.UUID, count: int, session: tuple[int, int] = (0, -1), **more: int) -> FetchRequest:
    """A fetch from the first offset. `session` are the id and the epoch of its session."""
    request = fetch_request(topic_id, 0, **more)
    request.topics[0].partitions += [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(1, count)
    ]
    request.session_id, request.session_epoch = session
    return request


def codes(answer: FetchResponse) -> list[int]:
    return [each.error_code for topic in answer.responses for each in topic.partitions]


def test_no_reader_waits_for_records_of_a_log_that_has_failed(world: World, count: int) -> None:
    """A log may have failed before its partition has been told."""
    world.replicas.partition("t", 0).log.fail(OSError("the disk is gone"))
    answer = world.client().call(asked(world.topic_id("t"), count, max_wait_ms=500))
    assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR, 0][:count]


def test_a_reader_at_the_high_watermark_is_told_if_the_log_starts_later(world: World, count: int) -> None:
    for index in (0, 1):
        world.assign("r", index, replicas=(1, 2))
    world.client().ask(produce_request("r", batch(b"not committed"), acks=1))
    partition = world.replicas.partition("r", 0)
    partition.log.log_start_offset = 1
    assert partition.high_watermark == 0
    answer = world.client().call(asked(world.topic_id("r"), count, max_wait_ms=500))
    assert codes(answer) == [ErrorCode.OFFSET_OUT_OF_RANGE, 0][:count]


@pytest.mark.parametrize("has_records", [False, True])
def test_a_topic_id_that_a_partition_does_not_have_yet_reads_nothing(
    world: World, count: int, has_records: bool
) -> None:
    """The metadata of the topic that was created anew has come before the partition's role."""
    if has_records:
        world.client().call(produce_request("t", batch(b"of the topic that is deleted")))
    new_id = uuid.UUID(int=99)
    told = [partition_metadata(index, replicas=(1,), isr=(1,)) for index in (0, 1)]
    world.metadata.update(update_metadata("t", new_id, told, [broker_metadata(1)]))
    answer = world.client().call(asked(new_id, count, max_wait_ms=500))
    assert codes(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID] * count
    assert not any(each.records for each in answer.responses[0].partitions)


def test_a_session_that_another_connection_continues_ends_with_that_one(world: World, count: int) -> None:
    topic_id, first, second = world.topic_id("t"), world.client(), world.client()
    session_id = first.call(asked(topic_id, count, (0, 0))).session_id
    assert first.call(asked(topic_id, count, (session_id, 1))).error_code == ErrorCode.NONE
    assert second.call(asked(topic_id, count, (session_id, 2))).error_code == ErrorCode.NONE
    first.connection.connection_lost("it went away")
    assert second.call(asked(topic_id, count, (session_id, 3))).error_code == ErrorCode.NONE
    second.connection.connection_lost("it went away")
    assert not len(world.replicas.sessions)


@pytest.mark.parametrize("is_session", [False, True])
def test_a_fetch_that_names_more_partitions_than_the_setting_allows_is_refused(
    tmp_path: Path, is_session: bool
) -> None:
    """It counts what is named, even if that is the same partition again."""
    world = World(tmp_path, session_limits=SessionLimits(consumer_partitions_max=2))
    for index in (0, 1):
        world.assign("t", index)
    topic_id, client, session = world.topic_id("t"), world.client(), (0, -1)
    if is_session:
        session = client.call(asked(topic_id, 2, (0, 0))).session_id, 1
    request = asked(topic_id, 2, session)
    request.topics[0].partitions *= 2
    answer = client.call(request)
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_REQUEST, [])
