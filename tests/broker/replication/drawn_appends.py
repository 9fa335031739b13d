"""Drawn produce requests, and two brokers that carry them out alike: one by the compiled function."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log import names
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.replication import usual_append
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import World, follow
from tests.models.batches import batch, timed_batch
from tests.models.transactional import transactional_batch

compiled: Any = usual_append._compiled
"""None if it was not compiled, or if HOLDFAST_PURE_PYTHON is set."""

LOG_STATE = ("log_start_offset", "log_end_offset", "recovery_point", "written_bytes", "_waits_for_indexes")
TRAFFIC = ("appends", "messages_in", "bytes_in", "failed_appends")
SEGMENT_STATE = ("size", "next_offset", "_first_timestamp", "_appended")

SIZES = (2, 3, 6, 6, 20, 20, 63, 64, 65, 70)
"""How many partitions a large request names: more than 64 are left to Python."""


def _bytes_of(data: PartitionProduceData) -> bytes:
    assert isinstance(data.records, bytes | memoryview)
    return bytes(data.records)


def _spoil(data: PartitionProduceData, now_ms: int) -> None:
    """Change the last byte of the value, which only the checksum tells; the number of headers follows."""
    records = bytearray(_bytes_of(data))
    records[-2] ^= 1
    data.records = bytes(records)


def _leave_out(data: PartitionProduceData, now_ms: int) -> None:
    data.records = None


def _name_another(data: PartitionProduceData, now_ms: int) -> None:
    data.index = 99


def _compress(data: PartitionProduceData, now_ms: int) -> None:
    data.records = batch(b"a", timestamp=now_ms, compression=Compression.GZIP)


def _mark(data: PartitionProduceData, now_ms: int) -> None:
    data.records = bytes(transactional_batch(b"a", sequence=0))


def _double(data: PartitionProduceData, now_ms: int) -> None:
    data.records = _bytes_of(data) * 2


def _expect(data: PartitionProduceData, now_ms: int) -> None:
    data.expected_offset = 0


def _use_another_producer(data: PartitionProduceData, now_ms: int) -> None:
    data.records = bytes(timed_batch(now_ms, producer_id=2, epoch=0, sequence=5))


def _lag(data: PartitionProduceData, now_ms: int) -> None:
    data.records = bytes(timed_batch(now_ms - 1_000_000))


UNUSUAL: tuple[Callable[[PartitionProduceData, int], None], ...] = (
    _spoil, _leave_out, _name_another, _compress, _mark, _double, _expect, _use_another_producer, _lag,
)  # fmt: skip
"""What makes one partition of a request unusual: each takes the partition and the time of day in ms."""


class Counted:
    """Counts the requests that the function carried out, and those that it left to the handler."""

    def __init__(self, append: Callable[..., Any]) -> None:
        self.done = self.left = 0
        self._append = append

    def append(self, *arguments: Any) -> Any:
        answer = self._append(*arguments)
        if answer is None:
            self.left += 1
        else:
            self.done += 1
        return answer


class Twins(TwinBrokers):
    """Two brokers that append the same: the first by the compiled function, or another `append`, the other by
    the handler."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        config: dict[str, Any] | None = None,
        append: Callable[..., Any] | None = None,
    ) -> None:
        self.counted = Counted(append or compiled.append)
        super().__init__(directory, monkeypatch, usual_append, self.counted, state_of, 2, config)
        monkeypatch.setattr(usual_append, "_in_python", None)

    def send(self, frame: bytes, number: int = 0) -> list[bytes]:
        """Send a frame on the connection of that number. Returns the answers, the same of both."""
        self.send_both(frame, number)
        return [answer for connection in self.answers() for answer in connection]


def state_of(world: World) -> Any:
    rows: list[Any] = []
    for partition in world.replicas:
        log, producers = partition.log, partition.log.producers
        rows += [partition.key, partition.high_watermark, log.failure is None, log.epochs.entries]
        rows += [getattr(partition.traffic, name) for name in TRAFFIC]
        rows += [getattr(log, name) for name in LOG_STATE]
        rows += [getattr(segment, name) for segment in log.segments[-2:] for name in SEGMENT_STATE]
        rows += [producers.map_end_offset, producers.append_ids.known_from]
        rows += [(entry.producer_id, entry.epoch, list(entry.batches)) for entry in producers.entries()]
        rows += [entry.last_write_ms for entry in producers.entries()]
    return rows


def append_drawn(twins: Twins, rng: random.Random) -> None:
    """Have both append drawn requests to four partitions, one of which broker 2 follows, while leaders and
    leases change."""
    requests = Requests(rng)
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
    twins.answers()


def lead(world: World, topic: str, index: int) -> None:
    replicas = (1, 2) if topic == "t" and index == 0 else (1,)
    world.assign(topic, index, replicas=replicas, isr=replicas)


def caught_up(world: World) -> None:
    """Have broker 2 fetch all of t-0, if this broker leads it."""
    partition = world.replicas.partition("t", 0)
    if partition.leader == 1:
        follow(world, partition.log.log_end_offset)


def logs_of(world: World) -> dict[tuple[str, int], list[bytes]]:
    """What the files of all segments have, batches and indexes, by partition. Closes the logs."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for partition in world.replicas:
        close_log(partition.log)
        paths = [Path(each.path) for each in partition.log.segments]
        kinds = (names.LOG, names.INDEX, names.TIME_INDEX)
        found[partition.key] = [path.with_suffix(kind).read_bytes() for path in paths for kind in kinds]
    return found


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
        return self._damaged(frame_of(request, rng.randrange(3, 13)))

    def draw_large(self, world: World, topics: Sequence[str], indexes: int) -> bytes:
        """A request of 2 to 70 partitions of these topics, in any order, at most one of them unusual."""
        rng = self._rng
        places = rng.sample(
            [(topic, index) for topic in topics for index in range(indexes)], rng.choice(SIZES)
        )
        named: dict[str, list[PartitionProduceData]] = {}
        for topic, index in places:
            data = PartitionProduceData(index=index, records=self._next_batch(world, topic, index))
            named.setdefault(topic, []).append(data)
        acks = rng.choice((1, -1, 1, -1, 1, -1, 0))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=rng.choice((0, 500)),
            topic_data=[TopicProduceData(name=name, partition_data=rows) for name, rows in named.items()],
        )
        change = rng.choice(UNUSUAL) if rng.random() < 0.3 else None
        if change is not None:
            change(rng.choice(rng.choice(request.topic_data).partition_data), world.now_ms())
        first_version = 9 if change is _expect else 3
        return self._damaged(frame_of(request, rng.randrange(first_version, 13)), 0.03)

    def _next_batch(self, world: World, topic: str, index: int) -> bytes:
        """A batch that continues what its producer, if it is an idempotent one, has written."""
        rng, times = self._rng, [world.now_ms()] * self._rng.choice((1, 1, 3))
        if rng.random() < 0.5:
            return bytes(timed_batch(*times, size=rng.choice((1, 100))))
        entry = world.replicas.partition(topic, index).log.producers.get(1)
        sequence = 0 if entry is None else entry.last_sequence + 1
        return bytes(timed_batch(*times, producer_id=1, epoch=0, sequence=sequence))

    def _damaged(self, usual: bytes, share: float = 0.1) -> bytes:
        """The frame, or, of a share, one with bytes that a client wrote wrongly or not at all."""
        rng, frame = self._rng, bytearray(usual)
        if rng.random() < share:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        if rng.random() < share / 3:
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
