"""Consumers that wait for records which are deleted meanwhile are told so at once, by the compiled way and by
Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from holdfast_log.broker.replication import usual_fetch
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.waiting import Waiting
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest
from tests.broker.world import Client, World, fetch_request, produce_request
from tests.models.batches import batch
from tests.models.transactional import transactional_batch

NEVER = 1 << 20
"""More bytes than there are."""


def world_of(path: Path) -> World:
    """A partition with three records, and one without any."""
    world = World(path)
    for index in (0, 1):
        world.assign("t", index)
    for value in (b"a", b"b", b"c"):
        world.client().call(produce_request("t", batch(value)))
    return world


def delete(world: World, *offsets: int) -> None:
    """Delete the records before each of the offsets, by one request."""
    wanted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=1000)
    rows = world.client().call(request).topics[0].partitions
    assert {row.error_code for row in rows} == {0}


def waiting_fetch(world: World, client: Client, offset: int, min_bytes: int = NEVER) -> FetchRequest:
    """A fetch that waits, without a session."""
    request = fetch_request(world.topic_id("t"), offset, min_bytes=min_bytes, max_wait_ms=60_000)
    request.topics[0].topic = "t"
    return request


def of_two_partitions(world: World, client: Client, offset: int) -> FetchRequest:
    request = waiting_fetch(world, client, offset)
    request.topics[0].partitions.insert(
        0, FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=NEVER)
    )
    return request


def in_a_session(world: World, client: Client, offset: int) -> FetchRequest:
    """The second fetch of a session."""
    request = waiting_fetch(world, client, offset)
    request.max_wait_ms = request.session_epoch = 0
    opened = client.call(request)
    request.max_wait_ms, request.session_id, request.session_epoch = 60_000, opened.session_id, 1
    return request


def of_committed_records(world: World, client: Client, offset: int) -> FetchRequest:
    """A reader that waits for the end of a transaction, whose records are deleted."""
    if offset == 2:
        produced = produce_request("t", bytes(transactional_batch(b"x")))
        produced.transactional_id = "tx"
        world.client().call(produced)
        offset = 3
    request = waiting_fetch(world, client, offset, min_bytes=1)
    request.isolation_level = 1
    return request


WAYS = [waiting_fetch, of_two_partitions, in_a_session, of_committed_records]
Fetch = Callable[[World, Client, int], FetchRequest]


def a_waiting_reader_is_told(path: Path, fetch: Fetch) -> None:
    world = world_of(path)
    client = world.client()
    client.ask(fetch(world, client, 2))
    delete(world, 1)
    assert client.answers() == [], "what it waits for is still there"
    delete(world, -1)
    (answer,) = client.answers()
    (found,) = [each for topic in answer.responses for each in topic.partitions if not each.partition_index]
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not world.replicas.readers


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("fetch", WAYS)
def test_a_reader_that_waits_for_deleted_records_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: Fetch, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(usual_fetch, "_compiled", None)
    a_waiting_reader_is_told(tmp_path, fetch)


def looks_of_many_readers(path: Path) -> int:
    """How often fetches that wait for records that stay are looked at while others are deleted."""
    world = world_of(path)
    for _ in range(20):
        client = world.client()
        client.ask(waiting_fetch(world, client, 2))
    assert len(world.replicas.readers) == 20
    with mock.patch.object(Partition, "read", autospec=True, side_effect=Partition.read) as read:
        delete(world, 1, 1, 2, 2)
    return read.call_count


def test_readers_of_records_that_stay_are_not_looked_at(tmp_path: Path) -> None:
    assert looks_of_many_readers(tmp_path) == 0


def test_a_request_that_names_a_partition_often_tells_its_readers_once(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    moved = mock.Mock(side_effect=world.replicas.start_moved)
    with mock.patch.object(Replicas, "start_moved", moved):
        delete(world, *range(1, 3), *range(1, 4))
    assert moved.call_count == 1


def test_told_late_or_all_of_them_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rules that these tests are about they fail."""
    monkeypatch.setattr(usual_fetch, "_compiled", None)
    with monkeypatch.context() as patched:
        patched.setattr(Replicas, "start_moved", lambda self, partition: self.sessions.stir(partition.key))
        for number, fetch in enumerate(WAYS):
            with pytest.raises(ValueError, match="unpack"):
                a_waiting_reader_is_told(tmp_path / str(number), fetch)
    with monkeypatch.context() as patched:
        patched.setattr(Waiting, "wake_before", lambda self, key, offset: self.wake(key))
        assert looks_of_many_readers(tmp_path / "all") > 0
