"""The compiled function and Python answer a produce request the same, whatever is sent, and leave the same
logs behind."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.admission import MakeWay, Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.batches import read_header, write_header
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.replication.drawn_appends import (
    Twins,
    append_drawn,
    compiled,
    frame_of,
    lead,
    logs_of,
)
from tests.broker.world import World, fetch_request, only_produced, produce_request
from tests.models.batches import batch
from tests.models.transactional import PRODUCER, transactional_batch

if compiled is None:
    reason = "broker/replication/_usual_append.c was not compiled, or HOLDFAST_PURE_PYTHON is set"
    pytest.skip(reason, allow_module_level=True)

CONFIGS: list[dict[str, Any]] = [
    {},
    {"min.insync.replicas": 2, "segment.bytes": 2000},
    {"flush.messages": 3, "index.interval.bytes": 0, "max.message.bytes": 400},
    {"message.timestamp.before.max.ms": 2000, "message.timestamp.after.max.ms": 1000},
    {"check.expected.offsets": True},
    {"flush.before.ack": True},
    {"message.timestamp.type": "LogAppendTime"},
    {"segment.ms": 3000, "segment.jitter.ms": 1000},
    {"segment.ms": 3000},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_answer_the_same_and_leave_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    rng = random.Random(str(config))
    twins = Twins(tmp_path, monkeypatch, config)
    append_drawn(twins, rng)
    compiled_logs, logs = map(logs_of, twins.worlds)
    assert compiled_logs == logs
    is_usual = twins.worlds[0].replicas.partition("u", 0).log.settings.usual_limits is not None
    assert (twins.counted.done > 10) == is_usual
    assert twins.counted.left > 10


@pytest.mark.parametrize("place", [0, 1])
def test_a_failed_disk_is_answered_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    twins = Twins(tmp_path, monkeypatch)
    for index in (0, 1):
        twins.both(lambda world, index=index: lead(world, "u", index))  # type: ignore[misc]
    rows = [PartitionProduceData(index=index, records=batch(b"a")) for index in (0, 1)]
    request = ProduceRequest(
        acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="u", partition_data=rows)]
    )
    for _ in range(2):
        twins.send(frame_of(request))
    done = twins.counted.done

    for world in twins.worlds:
        # A descriptor that takes no writes.
        file = world.replicas.partition("u", place).log.segments.active.file()
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.dup2(descriptor, file.fileno())
        os.close(descriptor)
    (answer,) = twins.send(frame_of(request))
    assert ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in answer
    assert twins.counted.done == done + 1
    assert all(world.replicas.find("u", place) is not None for world in twins.worlds)


class Nobody:
    """Admits no writer."""

    def admit(self, origin: Origin | None, acks: int) -> MakeWay | None:
        raise unconfirmed()

    def admits(self, origin: Origin, acks: int) -> bool:
        return False


@pytest.fixture
def led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twins:
    """Brokers that lead t-0 alone, to which each producer has written."""
    twins = Twins(tmp_path, monkeypatch)
    twins.both(lambda world: world.assign("t"))
    twins.send(frame_of(produce_request("t", batch(b"first"), acks=1)))
    assert twins.counted.left == 1, "the first append of a leader epoch is not usual"
    return twins


def partition_of(world: World) -> Partition:
    return world.replicas.partition("t", 0)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 12))
def test_the_usual_request_is_carried_out(led: Twins, acks: int, version: int) -> None:
    assert len(led.send(frame_of(produce_request("t", batch(b"a"), acks=acks), version))) == 1
    assert led.counted.done == 1
    assert partition_of(led.worlds[0]).high_watermark == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: setattr(partition_of(world), "admission", Nobody()), id="an owner"),
        pytest.param(lambda world: setattr(partition_of(world).log, "settling", 1), id="a truncation"),
        pytest.param(
            lambda world: setattr(partition_of(world).log, "failure", OSError()), id="a failed disk"
        ),
        pytest.param(lambda world: setattr(partition_of(world), "role", None), id="no leader"),
        pytest.param(lambda world: world.assign("t", leader_epoch=1), id="a new leader epoch"),
        pytest.param(lambda world: world.set_lease(is_held=False), id="no lease"),
        pytest.param(lambda world: setattr(world.replicas, "is_handing_over", True), id="a stop"),
        pytest.param(lambda world: world.replicas.remove(partition_of(world)), id="no partition"),
    ],
)
def test_what_is_unusual_is_left_to_python(led: Twins, change: Callable[[World], object]) -> None:
    led.both(change)
    led.send(frame_of(produce_request("t", batch(b"a"))))
    assert led.counted.done == 0


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_partition_that_this_broker_does_not_lead_is_left_to_python(led: Twins, epoch: int) -> None:
    led.both(lambda world: world.assign("t", leader=2, leader_epoch=epoch, replicas=(1, 2), isr=(1, 2)))
    led.both(lambda world: setattr(partition_of(world), "role", None))
    led.send(frame_of(produce_request("t", batch(b"a"), acks=1)))
    assert led.counted.done == 0


class Owner:
    """Admits the writers whose requests want all acknowledgements."""

    def admit(self, origin: Origin | None, acks: int) -> MakeWay | None:
        return None

    def admits(self, origin: Origin, acks: int) -> bool:
        return acks == -1


def test_the_request_of_an_owner_is_usual(led: Twins) -> None:
    led.both(lambda world: setattr(partition_of(world), "admission", Owner()))
    led.send(frame_of(produce_request("t", batch(b"a"), acks=1)))
    assert led.counted.done == 0
    led.send(frame_of(produce_request("t", batch(b"a"))))
    assert led.counted.done == 1


def usual_of(world: World, held: HeldRequests | None = None) -> usual_append.UsualAppends:
    return usual_append.UsualAppends(world.replicas, held or HeldRequests())


def test_what_comes_behind_a_held_request_is_left_to_python(
    led: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usual_append, "_compiled", compiled)
    world, held, work = led.worlds[0], HeldRequests(), Deferred[None]()
    frame = frame_of(produce_request("t", batch(b"a"), acks=1))
    origin = led.clients[0][0].connection
    held.hold([Append("t", 0, memoryview(b""))], [work], lambda: None)
    assert usual_of(world, held).append(origin, memoryview(bytearray(frame)), 11, 15, 7) is None
    work.callback(None)
    assert usual_of(world, held).append(origin, memoryview(bytearray(frame)), 11, 15, 7) is not None


def test_a_request_that_is_cut_off_is_left_to_python(led: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind its end, in the same memory, are the bytes that it says it has."""
    monkeypatch.setattr(usual_append, "_compiled", compiled)
    world, origin = led.worlds[0], led.clients[0][0].connection
    for version in (8, 11):
        frame = frame_of(produce_request("t", batch(b"a"), acks=1), version)
        for size in range(15, len(frame)):
            cut = memoryview(bytearray(frame))[:size]
            assert usual_of(world).append(origin, cut, version, 14 + (version > 8), 7) is None
    assert partition_of(world).log.log_end_offset == 1


def test_internal_topics_are_left_to_python(led: Twins) -> None:
    led.both(lambda world: world.assign("__consumer_offsets"))
    for _ in range(2):
        led.send(frame_of(produce_request("__consumer_offsets", batch(b"a"), acks=1)))
    assert led.counted.done == 0


def test_a_topic_that_is_named_twice_is_left_to_python(led: Twins) -> None:
    led.both(lambda world: world.assign("t", 1))
    led.send(frame_of(produce_request("t", batch(b"a"), index=1, acks=1)))
    request = produce_request("t", batch(b"a"), acks=1)
    request.topic_data += produce_request("t", batch(b"a"), index=1).topic_data
    (answer,) = led.send(frame_of(request))
    assert led.counted.done == 0
    assert answer.count(b"\x02t") == 1, "both partitions are answered below one topic"


def test_a_transactional_batch_of_a_known_producer_is_left_to_python(led: Twins) -> None:
    first = batch(b"a", producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    for records in (first, transactional_batch(b"a", sequence=1)):
        led.send(frame_of(produce_request("t", bytes(records), acks=1)))
    assert led.counted.done == 0


def test_a_largest_timestamp_that_is_wrong_is_left_to_python(led: Twins) -> None:
    records = bytearray(batch(b"a"))
    header = read_header(records)
    write_header(
        records,
        attributes=header.attributes,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp + 1,
    )
    led.send(frame_of(produce_request("t", bytes(records), acks=1)))
    assert led.counted.done == 0


def test_a_fetch_that_waits_is_answered(led: Twins) -> None:
    for world, clients in zip(led.worlds, led.clients, strict=True):
        reader = world.client()
        reader.ask(fetch_request(world.topic_id("t"), 1, max_wait_ms=60_000))
        clients.append(reader)
    led.send(frame_of(produce_request("t", batch(b"awaited"), acks=1)))
    assert led.counted.done == 1
    assert all(world.replicas.readers is not None and not len(world.replicas.readers) for world in led.worlds)


def test_a_request_of_many_partitions_is_answered_in_its_order(led: Twins) -> None:
    names = ["t", "u" * 200, "v"]
    for name in names:
        for index in range(20):
            led.both(lambda world, name=name, index=index: world.assign(name, index))  # type: ignore[misc]
    for version in (8, 12):
        for acks in (1, -1):
            rows = [PartitionProduceData(index=index, records=batch(b"a")) for index in range(20)]
            topics = [TopicProduceData(name=name, partition_data=rows) for name in names]
            request = ProduceRequest(acks=acks, timeout_ms=0, topic_data=topics)
            led.send(frame_of(request, version))
    assert (led.counted.done, led.counted.left) == (3, 2)


def test_a_batch_that_another_partition_makes_unusual_stays_as_it_was(
    led: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed before all is checked."""
    rows = [PartitionProduceData(index=index, records=batch(b"a")) for index in (0, 1)]
    request = ProduceRequest(
        acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=rows)]
    )
    frame = bytearray(frame_of(request))
    world, before = led.worlds[0], bytes(frame)
    monkeypatch.setattr(usual_append, "_compiled", compiled)
    usual = usual_append.UsualAppends(world.replicas, HeldRequests())
    assert usual.append(led.clients[0][0].connection, memoryview(frame), 11, 15, 7) is None
    assert bytes(frame) == before
    assert partition_of(world).log.log_end_offset == 1


def test_an_unexpected_failure_is_answered_and_the_connection_lives(
    led: Twins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (client, _), world = led.clients[0], led.worlds[0]
    monkeypatch.setattr(usual_append, "_compiled", led.counted)
    with monkeypatch.context() as patch:
        patch.delattr(partition_of(world), "_in_sync_needed_max")
        produced = only_produced(client.call(produce_request("t", batch(b"a"))))
    assert produced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert any(record.exc_info for record in caplog.records)
    assert not client.connection.is_closed


def test_requests_keep_no_objects(led: Twins) -> None:
    usual = frame_of(produce_request("t", batch(b"a"), acks=1))
    unusual = frame_of(produce_request("t", batch(b"a"), index=5))

    def act() -> None:
        for frame in (usual, unusual) * 100:
            led.clients[0][0].send_bytes(frame)
        led.clients[0][0].wire.frames()

    def kept() -> int:
        """How many objects there are more after 200 requests."""
        gc.collect()
        before = len(gc.get_objects())
        act()
        gc.collect()
        return len(gc.get_objects()) - before

    act()
    # Threads of other tests may make objects meanwhile; what requests keep, they keep each time.
    assert min(kept() for _ in range(3)) <= 5


def test_requests_take_no_more_references(led: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they give away references of others, or leave memory behind."""
    world, origin = led.worlds[0], led.clients[0][0].connection
    partition = partition_of(world)
    watched = (partition, partition.role, partition.log, partition.log.producers, origin, None)

    def idempotent(sequence: int) -> bytes:
        records = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=sequence)
        return frame_of(produce_request("t", records, acks=1))

    led.send(idempotent(0))
    monkeypatch.setattr(usual_append, "_compiled", compiled)
    usual, plain = usual_of(world), frame_of(produce_request("t", batch(b"a"), acks=1))
    unusual = frame_of(produce_request("t", batch(b"a"), index=5))

    def act(round_: int) -> None:
        for number in range(200):
            for frame in (idempotent(1 + 200 * round_ + number), plain):
                assert usual.append(origin, memoryview(bytearray(frame)), 11, 15, 1_000_000) is not None
            assert usual.append(origin, memoryview(bytearray(unusual)), 11, 15, 1_000_000) is None
        gc.collect()

    for round_ in range(2):
        act(round_)
    blocks, before = sys.getallocatedblocks(), [sys.getrefcount(each) for each in watched]
    act(2)
    grown, after = sys.getallocatedblocks() - blocks, [sys.getrefcount(each) for each in watched]
    assert max(abs(one - other) for one, other in zip(before, after, strict=True)) < 100, (before, after)
    # Indexes grow, but by an entry for many batches.
    assert grown < 100
