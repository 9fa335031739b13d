"""Consumers read from a follower in their rack, where the leader is in another one (KIP-392)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.handlers.fetch import FetchHandler
from holdfast_log.broker.replication import one_fetch, replica_choice, replicas, usual_fetch
from holdfast_log.broker.replication.following import take
from holdfast_log.broker.replication.replica_choice import ReplicaChoice
from holdfast_log.broker.replication.settings import LEADER_ONLY, RACK_AWARE
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, PartitionData
from tests.broker.world import World, fetch_request, follow, only_fetched, only_produced, produce_request
from tests.models.batches import batch

NEAR, FAR = "near", "far"
NOBODY = -1


def world_of(path: Path, selector: str = RACK_AWARE, single_reader: str = "off") -> World:
    return World(path, topic_config={"single.reader": single_reader}, replica_selector=selector)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_of(tmp_path)


def assign(world: World, **role: Any) -> None:
    """Assign t-0 to brokers 1, in the rack "far", and 2, in the rack "near"."""
    world.assign("t", replicas=(1, 2), **role)
    racks = {1: FAR, 2: NEAR}
    world.metadata.brokers = {
        number: dataclasses.replace(node, rack=racks[number])
        for number, node in world.metadata.brokers.items()
    }


def written(world: World, *values: bytes) -> None:
    """Have values committed by the leader and broker 2."""
    client = world.client()
    for value in values:
        client.ask(produce_request("t", batch(value)))
    end = world.replicas.partition("t", 0).log.log_end_offset
    follow(world, end)
    assert {only_produced(answer).error_code for answer in client.answers()} == {0}


def asked(world: World, offset: int = 0, rack: str = NEAR, **how: Any) -> FetchRequest:
    request = fetch_request(world.topic_id("t"), offset, **({"min_bytes": 0} | how))
    request.rack_id = rack
    return request


def fetched(world: World, offset: int = 0, rack: str = NEAR, **how: Any) -> PartitionData:
    return only_fetched(world.client().call(asked(world, offset, rack, **how)))


def in_session(request: FetchRequest) -> FetchRequest:
    request.session_epoch = 0
    return request


@pytest.mark.parametrize("session", [False, True])
def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(world: World, session: bool) -> None:
    assign(world)
    written(world, b"a", b"b")
    request = asked(world, 1, min_bytes=1, max_wait_ms=500)
    found = only_fetched(world.client().call(in_session(request) if session else request))
    assert (found.error_code, found.preferred_read_replica, found.records) == (0, 2, b"")
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)


@pytest.mark.parametrize("rack", [FAR, "", "elsewhere"])
def test_a_consumer_elsewhere_reads_from_the_leader(world: World, rack: str) -> None:
    assign(world)
    written(world, b"a")
    found = fetched(world, 0, rack)
    assert found.preferred_read_replica == NOBODY
    assert found.records


def test_a_follower_that_is_out_of_sync_or_behind_is_not_preferred(world: World) -> None:
    assign(world)
    written(world, b"a")
    client = world.client()
    client.ask(produce_request("t", batch(b"b"), acks=1))
    assert fetched(world, 1).preferred_read_replica == 2
    assert fetched(world, 2).preferred_read_replica == NOBODY
    assign(world, isr=(1,), partition_epoch=1)
    assert fetched(world, 0).preferred_read_replica == NOBODY


def test_a_follower_without_the_clients_listener_is_not_preferred(world: World) -> None:
    assign(world)
    written(world, b"a")
    near = world.metadata.brokers[2]
    world.metadata.brokers[2] = dataclasses.replace(near, endpoints={"OTHER": ("127.0.0.1", 1)})
    assert fetched(world, 0).preferred_read_replica == NOBODY


def test_a_leader_epoch_is_checked_first(world: World) -> None:
    assign(world, leader_epoch=3)
    follow(world, 0)
    request = asked(world)
    request.topics[0].partitions[0].current_leader_epoch = 2
    found = only_fetched(world.client().call(request))
    assert (found.error_code, found.preferred_read_replica) == (ErrorCode.FENCED_LEADER_EPOCH, NOBODY)


def following(world: World, *values: bytes, high_watermark: int) -> None:
    """Broker 1 follows broker 2, and has copied these values."""
    assign(world, leader=2, leader_epoch=5)
    partition = world.replicas.partition("t", 0)
    for value in values:
        copy(world, value, high_watermark=0)
    partition.take_high_watermark(high_watermark)


def copy(world: World, value: bytes | None, high_watermark: int, log_start_offset: int = 0) -> None:
    """Broker 1 gets a record, or none, and a high watermark and a log start from its leader."""
    partition = world.replicas.partition("t", 0)
    records = b""
    if value is not None:
        records = bytearray(batch(value))
        records[:8] = partition.log.log_end_offset.to_bytes(8)
        records[12:16] = (5).to_bytes(4)
    known, start = partition.high_watermark, partition.log.log_start_offset
    data = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        records=memoryview(records),
    )
    take(partition, data, world.now_ms())
    if partition.high_watermark > known:
        world.replicas.high_watermark_taken(partition)
    if partition.log.log_start_offset > start:
        world.replicas.start_moved(partition)


@pytest.mark.parametrize("rack", ["", NEAR])
def test_a_follower_serves_records_up_to_its_high_watermark(world: World, rack: str) -> None:
    following(world, b"a", b"b", b"c", high_watermark=2)
    found = fetched(world, 0, rack)
    assert (found.error_code, found.high_watermark, found.preferred_read_replica) == (0, 2, NOBODY)
    assert found.records is not None
    assert len(bytes(found.records)) == 2 * len(batch(b"a"))
    for offset in (2, 3):
        found = fetched(world, offset, rack)
        assert (found.error_code, bytes(found.records or b"")) == (0, b"")
    assert fetched(world, 4, rack).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("session", [False, True])
def test_a_fetch_that_waits_at_a_follower_is_answered_when_records_are_committed(
    world: World, session: bool
) -> None:
    following(world, b"a", high_watermark=1)
    client = world.client()
    request = asked(world, 1, min_bytes=1, max_wait_ms=60_000)
    if session:
        client.ask(in_session(asked(world, 1)))
        (first,) = client.answers()
        request.session_id, request.session_epoch, request.topics = first.session_id, 1, []
        assert first.session_id
    client.ask(request)
    copy(world, b"b", high_watermark=1)
    assert client.answers() == []
    copy(world, None, high_watermark=2)
    (answer,) = client.answers()
    assert len(bytes(only_fetched(answer).records or b"")) == len(batch(b"b"))


def test_a_fetch_that_waits_at_a_follower_for_records_that_the_leader_has_deleted_is_refused(
    world: World,
) -> None:
    following(world, b"a", b"b", high_watermark=2)
    client = world.client()
    client.ask(asked(world, 0, min_bytes=1 << 20, max_wait_ms=60_000))
    assert client.answers() == []
    copy(world, None, high_watermark=2, log_start_offset=1)
    (answer,) = client.answers()
    assert only_fetched(answer).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_refuses_old_clients_and_other_epochs(world: World) -> None:
    following(world, b"a", high_watermark=1)
    old = asked(world)
    old.topics[0].topic = "t"
    found = only_fetched(world.client().call(old, 10))
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    request = asked(world)
    request.topics[0].partitions[0].current_leader_epoch = 4
    assert only_fetched(world.client().call(request)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    request.topics[0].partitions[0].current_leader_epoch = 6
    assert only_fetched(world.client().call(request)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("selector", "single_reader"),
    [(LEADER_ONLY, "off"), (RACK_AWARE, "claimed"), (RACK_AWARE, "required")],
)
def test_a_topic_that_may_have_an_exclusive_reader_is_served_by_its_leader(
    tmp_path: Path, selector: str, single_reader: str
) -> None:
    world = world_of(tmp_path, selector, single_reader)
    assign(world)
    written(world, b"a")
    assert fetched(world).preferred_read_replica == NOBODY
    following(world, high_watermark=1)
    assert fetched(world).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fence_is_checked_by_the_leader(world: World) -> None:
    assign(world)
    written(world, b"a")
    request = asked(world)
    request.topics[0].partitions[0].owner_token = 7
    assert only_fetched(world.client().call(request)).preferred_read_replica == NOBODY
    following(world, high_watermark=1)
    found = only_fetched(world.client().call(request))
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _closed(path: Path) -> None:
    test_a_topic_that_may_have_an_exclusive_reader_is_served_by_its_leader(path, RACK_AWARE, "claimed")


def _woken(path: Path) -> None:
    test_a_fetch_that_waits_at_a_follower_is_answered_when_records_are_committed(world_of(path), False)


def _sent(path: Path) -> None:
    test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(world_of(path), False)


_choose = ReplicaChoice.preferred


def _in_any_state(self: ReplicaChoice, partition: Any, wanted: Any, place: Any) -> int | None:
    for remote in getattr(partition.role, "remotes", {}).values():
        remote.log_end_offset = remote.log_start_offset = wanted.fetch_offset
    return _choose(self, partition, wanted, place)


BESIDE_COMPILED = "the compiled way answers consumers that name a rack"
MUTATIONS: dict[str, tuple[list[tuple[object, str, object]], Callable[[Path], None]]] = {
    "followers serve topics with exclusive readers": (
        [(module, "may_follow", lambda *_: True) for module in (one_fetch, replica_choice, replicas)],
        _closed,
    ),
    BESIDE_COMPILED: (
        [(FetchHandler, "shortcut", lambda self: _usual_shortcut(self))],
        _sent,
    ),
    "a follower's consumers are not woken": (
        [(replicas.Replicas, "high_watermark_taken", lambda *_: None)],
        _woken,
    ),
    "a follower that lags is preferred": (
        [(ReplicaChoice, "preferred", _in_any_state)],
        lambda path: test_a_follower_that_is_out_of_sync_or_behind_is_not_preferred(world_of(path)),
    ),
}


def _usual_shortcut(handler: FetchHandler) -> Any:
    handler.fetches.choice.is_on, known = False, handler.fetches.choice.is_on
    try:
        return _shortcut(handler)
    finally:
        handler.fetches.choice.is_on = known


_shortcut = FetchHandler.shortcut


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == BESIDE_COMPILED and usual_fetch._compiled is None:
        pytest.skip("broker/replication/_usual_fetch.c was not compiled")
    changes, check = MUTATIONS[name]
    check(tmp_path / "sound")
    for place, attribute, mutant in changes:
        monkeypatch.setattr(place, attribute, mutant)
    with pytest.raises((AssertionError, ValueError)):
        check(tmp_path / "mutated")
