"""Requests of all APIs and versions, damaged where it hurts: counts, lengths, varints, numbers, batches,
repeated and misplaced elements. The broker answers each or closes the connection, logs little, keeps its
memory, runs on, and serves a neighbour meanwhile.

    scripts/damaged-frames.sh --count 1000000 --seed 1

sends as many as that; each on a connection that is new when the one before was closed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast_log.protocol.api import Api
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.raw_socket import RawSocket, request_frame
from tests.integration.test_bad_input import Neighbour, create, resident_mib, until
from tests.models.batches import batch
from tests.protocol.pieces import Damage, Sensible, pieces_of
from tests.zookeeper import running_server

FRAMES = 6_000
GROWTH_MIB = 96
ANSWER_S = 20.0
MAY_WAIT = ("Fetch", "JoinGroup", "SyncGroup")
"""APIs of Kafka whose requests say how long they may wait, and wait for other clients."""
_PROBE = 0x7FFF_0000
_TOPICS = ("target", "target", "other", "absent")
_WAITS = (0, 1, 5)
_NAMES = {
    "topic": _TOPICS,
    "topics": _TOPICS,
    "topic_names": _TOPICS,
    "name": _TOPICS,
    "topic_name": _TOPICS,
    "resource_name": ("target", "absent"),
    "group_id": ("group", "other"),
    "group": ("group", "other", ""),
    "groups": ("group", "other"),
    "groups_names": ("group", "other"),
    "key": ("group", "other"),
    "protocol_type": ("consumer",),
    "partition": (0, 0, 1, 7),
    "partition_index": (0, 0, 1, 7),
    "partition_indexes": (0, 1, 7),
    "partitions": (0, 1, 7),
    "index": (0, 0, 1),
    "num_partitions": (1, 1, 2, -1),
    "count": (1, 2, 3),
    "replication_factor": (1, -1),
    "acks": (-1, 1, 1),
    "max_wait_ms": _WAITS,
    "timeout_ms": _WAITS,
    "max_wait_time_ms": _WAITS,
    "wait_ms": _WAITS,
    "transactional_id": (None,),
    "session_timeout_ms": (6_000, 1),
    "rebalance_timeout_ms": (1, 5),
    "resource_type": (2,),
    "isolation_level": (0, 1),
    "replica_id": (-1,),
    "allow_auto_topic_creation": (False,),
    "producer_id": (-1, 0, 5),
}
"""What the fields of requests hold before they are damaged. Requests that have a server wait ask for ms."""


def records() -> tuple[bytes, ...]:
    now_ms = int(time.time() * 1000)
    plain = batch(b"one", b"two" * 20, timestamp=now_ms)
    packed = [
        batch(b"value" * 50, b"other", timestamp=now_ms, compression=codec)
        for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
    ]
    numbered = batch(b"one", timestamp=now_ms, producer_id=0, producer_epoch=0, base_sequence=0)
    return (plain, numbered, *packed)


class DamagedRequests:
    """An endless supply of damaged frames of some APIs from one seed."""

    def __init__(self, seed: int, apis: list[Api]) -> None:
        self._rng = random.Random(seed)
        self._apis = apis
        self._sensible = Sensible(self._rng, _NAMES, ("", "name", "target", "ü" * 70), records())
        self._damage = Damage(self._rng)
        self.kinds: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        rng = self._rng
        for number in itertools.count():
            api = rng.choice(self._apis)
            version = rng.randint(api.versions.first, api.versions.last)
            body = self._damage.apply(pieces_of(self._sensible.message(api.request, version), version))
            sent_version = version if rng.random() < 0.98 else rng.choice((-1, version + 1, 32767))
            head = api.key.to_bytes(2) + (sent_version & 0xFFFF).to_bytes(2) + (number % _PROBE).to_bytes(4)
            tags = b"\x00" if api.has_flexible_request_header(version) else b""
            self.kinds[f"{api.name} v{version}"] += 1
            yield head + b"\x00\x04fuzz" + tags + body


class Sender:
    """Sends frames to a broker, each followed by a request that is sound, and notes what became of it."""

    def __init__(self, broker: BackgroundBroker) -> None:
        self._broker = broker
        self._connection: RawSocket | None = None
        self._probe = request_frame(ApiVersionsRequest(), 0, _PROBE)
        self.outcomes: Counter[str] = Counter()
        self.held: Counter[int] = Counter()
        """How many requests of each API key had no answer in time."""
        self.connections = 0

    def send(self, frame: bytes) -> None:
        if self._connection is None:
            self._connection = RawSocket(self._broker.port, timeout_s=ANSWER_S)
            self.connections += 1
        self._connection.send(SIZE.pack(len(frame)) + frame + self._probe)
        outcome = "no answer"
        while True:
            try:
                answer = self._connection.next_frame()
            except TimeoutError:
                answer = None
                outcome = "held"  # Damage can make a fetch that waits for minutes, as it may.
                self.held[int.from_bytes(frame[:2])] += 1
            if answer is None:
                outcome = outcome if outcome == "held" else "closed"
                self._connection.close()
                self._connection = None
                break
            if answer[:4] == _PROBE.to_bytes(4):
                break
            outcome = "answered"
        self.outcomes[outcome] += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def served(broker: BackgroundBroker) -> list[Api]:
    """The APIs that the broker serves to clients."""
    with RawSocket(broker.port) as connection:
        versions = connection.call(ApiVersionsRequest(), 0)
    known = {row.api_key for row in versions.api_keys}
    return [api for key, api in sorted(APIS.items()) if key in known and not api.internal]


PROPERTIES = {
    "auto.create.topics.enable": "false",
    "connection.refused.delay.max.ms": "0",
    "socket.request.max.bytes": str(8 << 20),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "quota.controller.mutation.default": "1000000",
    "log.segment.bytes.min": str(1 << 20),
    "log.segment.ms.min": "1000",
    "log.segment.delete.delay.ms": "0",
}


def attack(
    broker: BackgroundBroker, count: int, seed: int, every: int
) -> tuple[DamagedRequests, Sender, int]:
    """Send so many frames. Every so often, see to it that there is something to hit, and that a neighbour
    gets on. Returns the most MiB by which the broker's memory had grown then."""
    for topic in ("neighbour", "target", "other"):
        create(broker, topic, 2)
    neighbour = Neighbour(broker.port, "neighbour")
    neighbour.gets_on()
    frames, sender = DamagedRequests(seed, served(broker)), Sender(broker)
    memory, grown = 0, 0
    try:
        for number, frame in enumerate(itertools.islice(frames, count), 1):
            sender.send(frame)
            if number % every and number != count:
                continue
            assert broker.running
            neighbour.gets_on(1)
            for topic in ("target", "other"):
                create(broker, topic, 2)
            memory = memory or resident_mib(broker.pid)
            grown = max(grown, resident_mib(broker.pid) - memory)
            if every >= 10_000:
                print(f"{number} frames, {grown} MiB, {dict(sender.outcomes)}", flush=True)
    finally:
        neighbour.stop()
        sender.close()
    return frames, sender, grown


@pytest.mark.parametrize("seed", [1])
def test_damaged_requests_harm_nobody(cluster: Cluster, seed: int) -> None:
    (broker,) = cluster.start(1, PROPERTIES)
    lines = broker.log.count("\n")
    frames, sender, grown = attack(broker, FRAMES, seed, FRAMES // 6)
    check(broker, sender, FRAMES, grown, broker.log.count("\n") - lines)
    apis = {kind.partition(" ")[0] for kind in frames.kinds}
    assert apis == {api.name for api in served(broker)}


def check(broker: BackgroundBroker, sender: Sender, count: int, grown: int, lines: int) -> None:
    outcomes = sender.outcomes
    assert sum(outcomes.values()) == count
    assert outcomes["held"] <= 2 + count // 20_000, outcomes
    held = {APIS[key] for key in sender.held}
    assert all(api.name in MAY_WAIT or api.feature is not None for api in held), held
    assert outcomes["answered"] > count // 10 and outcomes["closed"] > count // 10, outcomes
    assert grown < GROWTH_MIB, f"the broker's memory has grown by {grown} MiB"
    assert "Traceback" not in broker.log
    assert all(line.startswith("[") for line in broker.log.splitlines()), "a client has forged a log line"
    # Changes that clients asked for have a line each; of refusals there is one per cause in 10 s.
    assert lines < count // 4, f"{lines} log lines"
    assert until(lambda: broker.running)


def main() -> int:
    parser = argparse.ArgumentParser(description="Send damaged requests to a broker of its own.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}: {arguments.count} damaged frames", flush=True)
    with tempfile.TemporaryDirectory() as directory, running_server(use_docker=False) as zookeeper:
        cluster = Cluster(Path(directory), f"{zookeeper}/damaged")
        try:
            (broker,) = cluster.start(1, PROPERTIES)
            begun_s = time.monotonic()
            lines = broker.log.count("\n")
            frames, sender, grown = attack(broker, arguments.count, arguments.seed, 10_000)
            lines = broker.log.count("\n") - lines
            seconds = time.monotonic() - begun_s
            print(
                f"{dict(sender.outcomes)} in {seconds:.0f} s on {sender.connections} connections: "
                f"{len(frames.kinds)} kinds of requests, {grown} MiB more memory, {lines} log lines"
            )
            check(broker, sender, arguments.count, grown, lines)
        finally:
            with suppress(OSError):
                print(cluster.brokers[0].log[-3000:])
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
