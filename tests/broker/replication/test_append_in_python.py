"""The short way in Python and the handler answer a produce request the same, whatever is sent, and leave the
same logs behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.log.decompression import INLINE_BYTES_MAX
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request, encode_response, request_fields
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.plain_produce import (
    acknowledgement_in_python,
    encode_acknowledgement,
    plain_request,
)
from holdfast_log.protocol.schema import encode
from tests.broker.replication.drawn_appends import Twins, append_drawn, frame_of, logs_of
from tests.broker.world import World, only_produced, produce_request
from tests.models.batches import batch
from tests.models.transactional import transactional_batch

CONFIGS: list[dict[str, Any]] = [
    {},
    {"min.insync.replicas": 2, "segment.bytes": 2000},
    {"flush.messages": 3, "index.interval.bytes": 0, "max.message.bytes": 400},
    {"check.expected.offsets": True},
    {"flush.before.ack": True},
    {"message.timestamp.type": "LogAppendTime"},
]


def twins_in(directory: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None = None) -> Twins:
    return Twins(directory, monkeypatch, config, usual_append.append_in_python)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_answer_the_same_and_leave_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    rng = random.Random(str(config))
    twins = twins_in(tmp_path, monkeypatch, config)
    append_drawn(twins, rng)
    short, long = map(logs_of, twins.worlds)
    assert short == long
    assert twins.counted.done > 10
    assert twins.counted.left > 10


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 13))
def test_a_request_of_one_partition_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    twins = twins_in(tmp_path, monkeypatch)
    twins.both(lambda world: world.assign("t"))
    for values in (batch(b"a", b"b"), batch(b"x" * 200)):
        twins.send(frame_of(produce_request("t", values, acks=acks), version))
    assert (twins.counted.done, twins.counted.left) == (2, 0)


def test_a_request_of_a_partition_that_has_an_owner_is_left_to_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Owned:
        def admit(self, origin: object, acks: int) -> None:
            return None

    twins = twins_in(tmp_path, monkeypatch)
    twins.both(lambda world: world.assign("t"))
    for world in twins.worlds:
        monkeypatch.setattr(world.replicas.partition("t", 0), "admission", Owned())
    twins.send(frame_of(produce_request("t", batch(b"a"), acks=1)))
    assert (twins.counted.done, twins.counted.left) == (0, 1)


def error_in(answer: bytes) -> int:
    """The error code for the only partition of a topic named t, in a version with compact lengths."""
    head = answer.index(b"\x02\x02t\x02") + 4
    return int.from_bytes(answer[head + 4 : head + 6], "big")


def compressed() -> bytes:
    return batch(b"a" * 400_000, compression=Compression.GZIP)


def transactional() -> bytes:
    return bytes(transactional_batch(b"a", sequence=0))


def too_large_for_the_reactor() -> bytes:
    empty = len(batch(b""))
    for size in range(INLINE_BYTES_MAX - empty - 8, INLINE_BYTES_MAX):
        records = batch(b"x" * size)
        if len(records) > INLINE_BYTES_MAX:
            return records
    raise AssertionError("no batch of the size")


@pytest.mark.parametrize("records", [compressed, transactional, too_large_for_the_reactor])
def test_a_batch_that_may_need_a_worker_or_a_coordinator_is_left_to_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: Callable[[], bytes]
) -> None:
    twins = twins_in(tmp_path, monkeypatch)
    twins.both(lambda world: world.assign("t"))
    twins.send(frame_of(produce_request("t", records())))
    assert (twins.counted.done, twins.counted.left) == (0, 1)


class Short:
    """A broker that leads t-0, and what its short way does with the request of a client."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(usual_append, "_compiled", None)
        monkeypatch.setattr(usual_append, "_in_python", usual_append.append_in_python)
        self.world, self.held = World(directory), HeldRequests()
        self.world.assign("t")
        self._origin = self.world.client().connection

    @property
    def end(self) -> int:
        return self.world.replicas.partition("t", 0).log.log_end_offset

    def append(self, may_write: usual_append.MayWrite | None = None) -> object:
        frame = memoryview(bytearray(frame_of(produce_request("t", batch(b"a")))))
        usual = usual_append.UsualAppends(self.world.replicas, self.held, may_write)
        return usual.append(self._origin, frame, 11, request_fields(frame)[-1], 7)


def test_what_comes_behind_a_held_request_is_left_to_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, work = Short(tmp_path, monkeypatch), Deferred[None]()
    short.held.hold([Append("t", 0, memoryview(b""))], [work], lambda: None)
    assert short.append() is None and short.end == 0
    work.callback(None)
    assert short.append() is not None and short.end == 1


def test_a_client_that_may_not_write_to_the_topic_is_left_to_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, asked = Short(tmp_path, monkeypatch), list[str]()

    def may_write(origin: object, topic: str) -> bool:
        asked.append(topic)
        return len(asked) > 1

    assert short.append(may_write) is None and short.end == 0
    assert short.append(may_write) is not None and short.end == 1
    assert asked == ["t", "t"]


def test_with_flush_before_ack_nothing_is_answered_before_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = twins_in(tmp_path, monkeypatch, {"flush.before.ack": True})
    twins.both(lambda world: world.assign("t"))
    for world in twins.worlds:
        world.workers.is_held = True
    assert twins.send(frame_of(produce_request("t", batch(b"a"), acks=1))) == []
    assert twins.counted.done == 1
    for world in twins.worlds:
        world.workers.release()
        world.clock.advance(1)
    assert [len(each) for each in twins.answers()] == [1, 0]


def grow_and_lose_lease(world: World, grown: Callable[[Partition], None], partition: Partition) -> None:
    grown(partition)
    world.holds_lease = False


def test_a_condition_that_held_is_confirmed_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base offset of the batch is the expected end of the log. The lease may end while it is written."""
    twins = twins_in(tmp_path, monkeypatch, {"check.expected.offsets": True})
    twins.both(lambda world: world.assign("t"))
    for world in twins.worlds:
        monkeypatch.setattr(
            world.replicas, "grown", partial(grow_and_lose_lease, world, world.replicas.grown)
        )
    (answer,) = twins.send(frame_of(produce_request("t", batch(b"a"))))
    assert error_in(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert twins.counted.done == 1


def test_a_set_in_sync_that_shrinks_while_a_batch_is_appended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = twins_in(tmp_path, monkeypatch, {"min.insync.replicas": 2})
    twins.both(lambda world: world.assign("t", replicas=(1, 2), isr=(1, 2)))
    for world in twins.worlds:
        role = world.replicas.partition("t", 0).leadership()
        monkeypatch.setattr(world.replicas, "grown", lambda partition, role=role: setattr(role, "isr", (1,)))
    (answer,) = twins.send(frame_of(produce_request("t", batch(b"a"))))
    assert error_in(answer) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert twins.counted.done == 1


def test_the_answer_says_where_the_log_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = twins_in(tmp_path, monkeypatch)
    twins.both(lambda world: world.assign("t"))
    twins.both(lambda world: world.replicas.partition("t", 0).start_at(5, world.now_ms()))
    frame = frame_of(produce_request("t", batch(b"a", b"b")))
    first, second = twins.send(frame) + twins.send(frame)
    assert first.count((5).to_bytes(8, "big")) == 2, "the base offset and the log start"
    assert all((offset).to_bytes(8, "big") in second for offset in (5, 7))
    assert twins.counted.done == 2


def test_it_is_the_way_of_a_broker_without_anything_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def noted(*arguments: Any) -> Any:
        answer = usual_append.append_in_python(*arguments)
        asked.append(answer)
        return answer

    monkeypatch.setattr(usual_append, "_compiled", None)
    monkeypatch.setattr(usual_append, "_in_python", noted)
    world = World(tmp_path)
    world.assign("t")
    client = world.client()
    assert only_produced(client.call(produce_request("t", batch(b"a"), acks=1))).error_code == ErrorCode.NONE
    assert len(asked) == 1 and isinstance(asked[0], list)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("topic", ["", "t", "x" * 126, "x" * 127, "x" * 128, "x" * 249, "\u00e9" * 40])
def test_an_acknowledgement_is_the_same_as_encoded_from_its_message(version: int, topic: str) -> None:
    for index in (0, 1, 128, 0x808080, 2**31 - 1):
        for numbers in ((0, -1, 0), (2**62, 1_700_000_000_000, 12), (2**63 - 1, 2**63 - 1, 2**63 - 1)):
            row = (topic, index, *numbers)
            expected = encode_response(acknowledgement_in_python([row]), version, -7)
            assert encode_acknowledgement(version, -7, row) == expected


@pytest.mark.parametrize("version", range(3, 13))
def test_a_request_is_read_as_it_was_written_and_no_other_is(version: int) -> None:
    def read(request: ProduceRequest, cut: int = 0, rest: bytes = b"") -> object:
        frame = join_parts(encode_request(request, version, 7, "test"))[4:]
        whole = memoryview(bytearray(frame[: len(frame) - cut] + rest))
        return plain_request(whole, version, request_fields(whole)[-1])

    def of(*names: TopicProduceData, transactional_id: str | None = None) -> ProduceRequest:
        return ProduceRequest(
            acks=-1, timeout_ms=9, topic_data=list(names), transactional_id=transactional_id
        )

    def named(name: str, *records: bytes | None) -> TopicProduceData:
        rows = [PartitionProduceData(index=5 + at, records=each) for at, each in enumerate(records)]
        return TopicProduceData(name=name, partition_data=rows)

    for size in (0, 1, 126, 127, 128, 20_000):
        assert read(of(named("t", b"r" * size))) == (-1, 9, "t", 5, b"r" * size)
    usual = of(named("t", b"record"))
    left = [
        of(),
        of(named("t")),
        of(named("t", None)),
        of(named("t", b"a", b"b")),
        of(named("t", b"a"), named("u", b"b")),
        of(named("t", b"a"), transactional_id="mine"),
    ]
    if version >= 9:
        row = PartitionProduceData(index=0, records=b"a", expected_offset=0)
        left.append(of(TopicProduceData(name="t", partition_data=[row])))
    assert [read(each) for each in left] == [None] * len(left)
    assert read(usual, rest=b"\0") is None
    for cut in range(1, len(encode(usual, version))):
        assert read(usual, cut) is None
