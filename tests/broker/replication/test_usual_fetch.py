"""The compiled function and Python answer fetches the same, whatever is sent and whenever, and leave the same
sessions behind."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast_log.broker.replication import usual_fetch
from holdfast_log.broker.replication.fetch_sessions import FetchSession
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import World, fetch_request, only_fetched, produce_request
from tests.models.batches import batch
from tests.models.transactional import PRODUCER, transactional_batch

compiled: Any = usual_fetch._compiled
if compiled is None:
    pytest.skip("broker/replication/_usual_fetch.c was not compiled", allow_module_level=True)

CLIENTS = 4
VERSIONS = (4, 5, 7, 9, 11, 12, 13, 15, 16)


class Counted:
    """Counts the fetches that the compiled function answered or kept, and those that it left to Python."""

    def __init__(self) -> None:
        self.answered = self.kept = self.left = self.in_sessions = 0

    def begin(self, *arguments: Any) -> Any:
        begun = compiled.begin(*arguments)
        if begun is None:
            self.left += 1
        elif isinstance(begun, list):
            self.answered += 1
        else:
            self.kept += 1
            self.in_sessions += begun.session is not None
        return begun


class Refusing:
    """Refuses readers with even numbers."""

    def admit(self, connection: int) -> None:
        if connection % 2 == 0:
            raise BrokerError(ErrorCode.OWNERSHIP_FENCED, "another reader has it")


class Twins(TwinBrokers):
    """Two brokers that are read from alike: the first by the compiled function, the other never."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted = Counted()
        super().__init__(directory, monkeypatch, usual_fetch, self.counted, state_of, CLIENTS)


def state_of(world: World) -> Any:
    replicas = world.replicas
    rows: list[Any] = [len(replicas.readers)]
    for session in replicas.sessions.by_id.values():
        rows += [session.id, session.epoch, session.answered_ms, session.asked_after_ms, session.used_ms]
        rows += [session.reader, session.waiting is None, [each.named for each in session.stirred]]
        rows += [sorted(_needed(world, session))]
        for each in session.partitions.values():
            rows += [each.named, each.wanted, each.high_watermark, each.log_start_offset]
    for partition in replicas:
        traffic = partition.traffic
        rows += [partition.high_watermark, traffic.reads, traffic.bytes_out, traffic.failed_reads]
    times = world.dispatcher.times()
    rows += [(kind, sum(each.count for each in found)) for kind, found in sorted(times.items())]
    return rows


def _needed(world: World, session: FetchSession) -> Iterator[tuple[str, int]]:
    """How many bytes the session's partitions need, if any append may not be enough: that is not noted by the
    compiled function."""
    for each, needed in session.needed.items():
        partition = world.replicas.find("t", each.named[1])
        if partition is None or needed > partition.log.written_bytes + 1:
            yield str(each.named), needed


class Drawing:
    """Draws what clients and the controller do, most of it usual."""

    def __init__(self, rng: random.Random, twins: Twins, *, with_transactions: bool) -> None:
        self._rng = rng
        self._twins = twins
        self._levels = random.Random(3)
        self._with_transactions = with_transactions
        self._written = 0
        """Records of transactions."""
        self._sessions: dict[int, tuple[int, int, int]] = {}
        """By client: the id of its session, the epoch of the next request, and the version."""

    def fetch(self) -> None:
        rng, world = self._rng, self._twins.worlds[0]
        number = rng.randrange(CLIENTS)
        session_id, epoch, version = self._sessions.get(number, (0, -1, rng.choice(VERSIONS)))
        if session_id and rng.random() < 0.04:
            epoch = rng.choice((-1, 0, epoch + 1))
        if not session_id and version >= 7 and rng.random() < 0.4:
            epoch = 0
        request = FetchRequest(
            max_wait_ms=rng.choice((0, 500, 500)),
            min_bytes=rng.choice((0, 1, 1, 1, 300)),
            isolation_level=self._levels.choice((0, 0, 1)),
            max_bytes=rng.choice((1 << 20, 1 << 20, 100, -1 if rng.random() < 0.1 else 1 << 20)),
            topics=self._topics(world, version, is_first=epoch <= 0),
            session_id=session_id,
            session_epoch=epoch,
            rack_id=rng.choice(("", "", "r1", "é" if rng.random() < 0.2 else "")),
        )
        if session_id and rng.random() < 0.03:
            request.forgotten_topics_data = [
                ForgottenTopic(topic="t", topic_id=world.topic_id("t"), partitions=[rng.randrange(2)])
            ]
        if rng.random() < 0.03:
            where = request.replica_state if version >= 15 else request
            where.replica_id = rng.choice((-2, 5))
        frame = bytearray(join_parts(encode_request(request, version, number, "test"))[4:])
        if rng.random() < 0.05:
            frame[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.02:
            del frame[rng.randrange(14, len(frame)) :]
        self._twins.send_both(bytes(frame), number)
        self._find(number, version)

    def _topics(self, world: World, version: int, *, is_first: bool) -> list[FetchTopic]:
        rng = self._rng
        if not is_first and rng.random() < 0.5:
            return []
        wanted = []
        for index in (0, 1) if rng.random() < 0.04 else (0 if rng.random() < 0.95 else rng.choice((1, 7)),):
            partition = world.replicas.find("t", index)
            end = 0 if partition is None else partition.log.log_end_offset
            led = 0 if partition is None or version < 9 else partition.leader_epoch
            wanted.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=rng.choice((-1, led if rng.random() < 0.95 else 1 - led)),
                    fetch_offset=rng.choice(
                        (end, end, end, end, 0, max(0, end - 1), end + (rng.random() < 0.2))
                    ),
                    last_fetched_epoch=0 if version >= 12 and rng.random() < 0.1 else -1,
                    partition_max_bytes=rng.choice((1 << 20, 1 << 20, 150, 0)),
                    owner_token=5 if version >= 12 and rng.random() < 0.02 else -1,
                )
            )
        topic = "t" if rng.random() < 0.97 else rng.choice(("u", "é"))
        topic_id = world.topic_id("t") if topic == "t" else UUID(int=77)
        return [FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)]

    def _find(self, number: int, version: int) -> None:
        """Remember the session that the client has now, if it has one."""
        self._sessions.pop(number, None)
        sessions = list(self._twins.worlds[0].replicas.sessions.by_id.values())
        mine = self._twins.clients[0][number].connection.id
        for session in sessions:
            if session.reader.connection_id == mine and session.by_ids == (version >= 13):
                self._sessions[number] = session.id, session.epoch, version

    def something_else(self) -> None:
        rng, twins = self._rng, self._twins
        kind = rng.random()
        twins.both(lambda world: _set_admission(world, None))
        led_by = twins.worlds[0].replicas.topics["t"][0].leader
        if kind < 0.94 and led_by != 1 and rng.random() < 0.5:
            self._lead(1)
        elif kind < 0.5:
            request = produce_request(
                "t", batch(b"x" * rng.choice((1, 100, 9000))), rng.choice((0, 0, 1)), acks=1
            )
            twins.both(lambda world: world.client().ask(request))
        elif kind < 0.8:
            step = rng.choice((0.05, 0.2, 0.6))
            twins.both(lambda world: world.clock.advance(step))
        elif kind < 0.84:
            admission = rng.choice((None, Refusing()))
            twins.both(lambda world: _set_admission(world, admission))
        elif kind < 0.87:
            offset = rng.randrange(5)
            twins.both(lambda world: _delete(world, offset))
        elif kind < 0.9:
            number = rng.randrange(CLIENTS)
            twins.both(lambda world: twins.client(world, number).connection.connection_lost("it went away"))
            self._sessions.pop(number, None)
        elif kind < 0.94:
            self._lead(2)
        elif kind < 0.97:
            self._lead(1)
        if self._with_transactions and kind > 0.8:
            self._go_on_with_the_transaction()

    def _go_on_with_the_transaction(self) -> None:
        is_end, is_commit = self._rng.random() < 0.5, self._rng.random() < 0.5
        if is_end:
            topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
            marker = WritableTxnMarker(
                producer_id=PRODUCER,
                producer_epoch=0,
                transaction_result=is_commit,
                topics=topics,
                coordinator_epoch=0,
            )
            self._twins.both(lambda world: world.client().ask(WriteTxnMarkersRequest(markers=[marker])))
            return
        request = produce_request("t", bytes(transactional_batch(b"x", sequence=self._written)), acks=1)
        request.transactional_id = "tx"
        self._twins.both(lambda world: world.client().ask(request))
        self._written += 1

    def _lead(self, leader: int) -> None:
        epoch = self._twins.worlds[0].replicas.topics["t"][0].leader_epoch + 1
        self._twins.both(
            lambda world: world.assign(
                "t", 0, leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2), isr=(1,)
            )
        )


def _delete(world: World, offset: int) -> None:
    """Delete records before an offset, or all below the high watermark."""
    offset = min(offset, world.replicas.topics["t"][0].high_watermark)
    world.deletions.tell_readers([world.deletions.begin("t", 0, offset)])


def _set_admission(world: World, admission: Refusing | None) -> None:
    world.replicas.topics["t"][0].read_admission = admission


@pytest.mark.parametrize("seed", (*range(24), 27, 36, 39, 42, 58, 69, 70, 72, 73))
def test_both_answer_the_same_and_leave_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    twins = Twins(tmp_path, monkeypatch)
    drawing = Drawing(rng, twins, with_transactions=seed >= 4)
    for index in (0, 1):
        twins.both(lambda world, index=index: world.assign("t", index))  # type: ignore[misc]
    for _ in range(400):
        if rng.random() < 0.7:
            drawing.fetch()
        else:
            drawing.something_else()
        twins.answers()
        twins.reopen()
    counted = twins.counted
    assert min(counted.answered, counted.kept, counted.left) > 8, vars(counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(usual_fetch, "_compiled", counted)
    return counted


@pytest.fixture
def world(tmp_path: Path, counted: Counted) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


@pytest.mark.parametrize("version", [11, 16])
def test_fetches_of_a_session_are_usual_from_the_second_one_on(
    world: World, counted: Counted, version: int
) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(in_session(world, 0, 0, 0), version)
    for epoch in range(1, 6):
        client.ask(in_session(world, epoch - 1, opened.session_id, epoch), version)
        assert not client.answers()
        producer.call(produce_request("t", batch(b"one")))
        (answer,) = client.answers()
        assert (answer.session_id, only_fetched(answer).high_watermark) == (opened.session_id, epoch)
    assert (counted.left, counted.in_sessions) == (1, 5)
    session = world.replicas.sessions.by_id[opened.session_id]
    assert session.epoch == 6 and session.waiting is None
    client.ask(in_session(world, None, opened.session_id, 6), version)
    (again,) = client.answers()
    assert only_fetched(again).records, "the reader has not moved on: it gets the same once more"
    client.ask(in_session(world, 5, opened.session_id, 7), version)
    world.clock.advance(1)
    (empty,) = client.answers()
    assert (empty.session_id, empty.responses) == (opened.session_id, [])
    client.ask(in_session(world, None, opened.session_id, 9), version)
    (refused,) = client.answers()
    assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def in_session(world: World, offset: int | None, session_id: int, epoch: int) -> FetchRequest:
    """A request that names no partition without an `offset`."""
    request = fetch_request(world.topic_id("t"), offset or 0, max_wait_ms=500 if epoch else 0)
    request.topics[0].topic = "t"
    if offset is None:
        request.topics = []
    request.session_id, request.session_epoch = session_id, epoch
    return request


def test_a_session_that_is_closed_while_its_fetch_waits_has_it_answered(world: World) -> None:
    client, other = world.client(), world.client()
    opened = client.call(in_session(world, 0, 0, 0))
    client.ask(in_session(world, 0, opened.session_id, 1))
    closing = in_session(world, None, opened.session_id, -1)
    other.call(closing)
    (answer,) = client.answers()
    assert (answer.session_id, answer.responses) == (0, [])


def test_waiting_fetches_hold_nothing_once_they_have_ended(world: World) -> None:
    """Their deadlines are far away, and refer to them until then."""
    request = fetch_request(world.topic_id("t"), 0, max_wait_ms=86_400_000)
    for _ in range(3):
        client = world.client()
        client.ask(request)
        client.connection.connection_lost("it went away")
    del client
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, compiled.Kept)]
    assert all(each.connection is None and each.reply is None and each.is_over for each in kept)
