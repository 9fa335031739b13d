"""The compiled function and Python answer a produce request the same, whatever is sent, and leave the same
logs behind."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.admission import MakeWay, Origin
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import World, follow, only_produced, produce_request
from tests.models.batches import batch, timed_batch

compiled: Any = usual_append._compiled
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
]
LOG_STATE = ("log_start_offset", "log_end_offset", "recovery_point", "written_bytes", "_waits_for_indexes")
SEGMENT_STATE = ("size", "next_offset", "_first_timestamp", "_appended")


class Counted:
    """Counts the requests that the compiled function carried out, and those that it left to Python."""

    def __init__(self) -> None:
        self.done = self.left = 0

    def append(self, *arguments: Any) -> Any:
        answer = compiled.append(*arguments)
        if answer is None:
            self.left += 1
        else:
            self.done += 1
        return answer


class Twins(TwinBrokers):
    """Two brokers that append the same: the first by the compiled function, the other never."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None = None
    ) -> None:
        self.counted = Counted()
        super().__init__(directory, monkeypatch, usual_append, self.counted, state_of, 2, config)

    def send(self, frame: bytes, number: int = 0) -> list[bytes]:
        """Send a frame on the connection of that number. Returns the answers, the same of both."""
        self.send_both(frame, number)
        return [answer for connection in self.answers() for answer in connection]


def state_of(world: World) -> Any:
    rows: list[Any] = []
    for partition in world.replicas:
        log, producers = partition.log, partition.log.producers
        rows += [partition.key, partition.high_watermark, log.failure is None, log.epochs.entries]
        rows += [getattr(log, name) for name in LOG_STATE]
        rows += [getattr(segment, name) for segment in log.segments[-2:] for name in SEGMENT_STATE]
        rows += [producers.map_end_offset, producers.append_ids.known_from]
        rows += [(entry.producer_id, entry.epoch, list(entry.batches)) for entry in producers.entries()]
        rows += [entry.last_write_ms for entry in producers.entries()]
    return rows


def frame_of(request: ProduceRequest, version: int = 11, client_id: str = "test") -> bytes:
    return join_parts(encode_request(request, version, 7, client_id))[4:]


class Requests:
    """Draws requests, most of them usual."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sequences: dict[tuple[str, int, int], int] = {}

    def draw(self, now_ms: int) -> bytes:
        rng = self._rng
        topics: dict[str, list[PartitionProduceData]] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            topic = rng.choice(
                ("t", "t", "t", "u", "unknown", "__consumer_offsets") if rng.random() < 0.2 else "tu"
            )
            index = rng.choice((0, 0, 1, 1, 2 if rng.random() < 0.1 else 0))
            rows = topics.setdefault(topic, [])
            if rng.random() > 0.02 and any(row.index == index for row in rows):
                continue
            rows.append(PartitionProduceData(index=index, records=self._batch(topic, index, now_ms)))
        names = [TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()]
        if rng.random() < 0.02:
            names.append(TopicProduceData(name="t", partition_data=[]))
        acks = rng.choice((1, -1, 1, -1, 0, 3) if rng.random() < 0.2 else (1, -1))
        request = ProduceRequest(acks=acks, timeout_ms=rng.choice((0, 500)), topic_data=names)
        if rng.random() < 0.02:
            request.transactional_id = "mine"
        frame = bytearray(frame_of(request, rng.randrange(3, 12)))
        if rng.random() < 0.1:
            # Bytes that a client wrote wrongly; the length of the whole stays, or not.
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.03:
            del frame[rng.randrange(14, len(frame)) :]
        return bytes(frame)

    def _batch(self, topic: str, index: int, now_ms: int) -> bytes | None:
        rng = self._rng
        if rng.random() < 0.02:
            return rng.choice((None, b"", b"short", batch(b"a") + batch(b"b")))
        times = [
            now_ms + rng.choice((0, 0, 0, 0, -3000, 3000, -now_ms - 1)) for _ in range(rng.randrange(1, 4))
        ]
        producer: dict[str, int] = {}
        if rng.random() < 0.5:
            producer_id, epoch = rng.randrange(3), int(rng.random() < 0.03)
            at = (topic, index, producer_id)
            sequence = self._sequences.get(at, 0)
            producer = {"producer_id": producer_id, "epoch": epoch, "sequence": sequence}
            self._sequences[at] = max(
                0, sequence + (len(times) if rng.random() < 0.9 else rng.randrange(-1, 3))
            )
        return bytes(timed_batch(*times, size=rng.choice((1, 10, 100, 300)), **producer))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_answer_the_same_and_leave_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    rng = random.Random(str(config))
    twins, requests = Twins(tmp_path, monkeypatch, config), Requests(rng)
    for topic in ("t", "u"):
        for index in (0, 1):
            twins.both(lambda world, topic=topic, index=index: lead(world, topic, index))  # type: ignore[misc]
    epoch = 0
    for _ in range(250):
        twins.both(lambda world: world.clock.advance(0.1))
        frame, number, kind = requests.draw(twins.worlds[0].now_ms()), rng.randrange(2), rng.random()
        twins.send(frame, number)
        if kind < 0.03:
            epoch += 1
            led_by, isr = rng.choice((1, 1, 2)), rng.choice(((1, 2), (1,)))
            twins.both(
                lambda world, epoch=epoch, led_by=led_by, isr=isr: world.assign(  # type: ignore[misc]
                    "t", 0, leader=led_by, leader_epoch=epoch, replicas=(1, 2), isr=isr
                )
            )
        elif kind < 0.05:
            twins.both(lambda world: world.set_lease(is_held=not world.holds_lease))
        elif kind < 0.3:
            twins.both(caught_up)
        twins.answers()
        twins.reopen()
    for world in twins.worlds:
        world.clock.advance(1)
        for partition in world.replicas:
            close_log(partition.log)
    twins.answers()
    is_usual = twins.worlds[0].replicas.partition("u", 0).log.settings.usual_limits is not None
    assert (twins.counted.done > 10) == is_usual
    assert twins.counted.left > 10


def lead(world: World, topic: str, index: int) -> None:
    replicas = (1, 2) if topic == "t" and index == 0 else (1,)
    world.assign(topic, index, replicas=replicas, isr=replicas)


def caught_up(world: World) -> None:
    """Have broker 2 fetch all of t-0, if this broker leads it."""
    partition = world.replicas.partition("t", 0)
    if partition.leader == 1:
        follow(world, partition.log.log_end_offset)


def test_a_failed_disk_is_answered_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        file = world.replicas.partition("u", 0).log.segments.active.file()
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.dup2(descriptor, file.fileno())
        os.close(descriptor)
    (answer,) = twins.send(frame_of(request))
    assert ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in answer
    assert twins.counted.done == done + 1
    assert all(world.replicas.find("u", 0) is not None for world in twins.worlds)


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
