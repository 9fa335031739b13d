"""Fetches of consumers, and what else happens to two brokers that have to answer them alike: drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from holdfast_log.broker.replication.session_partitions import FetchSession
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
from tests.broker.world import World, produce_request
from tests.models.batches import batch
from tests.models.transactional import PRODUCER, transactional_batch

CLIENTS = 4
VERSIONS = (4, 5, 7, 9, 11, 12, 13, 15, 16)


class Refusing:
    """Refuses readers with even numbers."""

    def admit(self, connection: int) -> None:
        if connection % 2 == 0:
            raise BrokerError(ErrorCode.OWNERSHIP_FENCED, "another reader has it")


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
        partition = None if each.key is None else world.replicas.find(*each.key)
        if partition is None or needed > partition.log.written_bytes + 1:
            yield str(each.named), needed


class DrawnFetches:
    """Draws what clients and the controller do, most of it usual."""

    def __init__(self, rng: random.Random, twins: TwinBrokers, *, with_transactions: bool) -> None:
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
