"""Floods of short requests: how much longer a well-behaved client waits because they go to its broker.

    python -m tests.hostile.floods --rounds 5 --seconds 3

The programs that flood, and the broker that answers them, take the processors from everybody, also from a
client of another broker. So the same flood goes in turn to a second broker and to the client's own: what the
client waits beside the first is what the machine costs, and the difference is what its broker does to it. How
much its broker worked in a round (processor time) does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_log.protocol.api import Request
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.hostile.attack import Target
from tests.hostile.furnished import Furniture, furnish, probed_broker
from tests.hostile.generator import CLIENT_ID
from tests.hostile.neighbour import Kind, Neighbour, Pace, running_neighbour
from tests.zookeeper import running_server

HEADS = (
    "Flood",
    "p50 beside, ms",
    "p50 in it",
    "p99 beside, ms",
    "p99 in it",
    "p50 of the broker's work beside, ms",
    "in it",
    "its p99 beside, ms",
    "in it",
    "ratio of p99",
    "turn, ms",
)
CONNECTIONS = 3
TOPICS_PER_REQUEST = 25
"""A request creates as many missing topics at most."""


@dataclass(frozen=True, slots=True)
class Flood:
    """One frame again and again, on some connections at once."""

    name: str
    frame: bytes
    reads: bool
    """Whether the answers are read."""

    def send(self, target: Target, seconds: float) -> None:
        """Send it to a broker for so long."""
        threads = [
            threading.Thread(target=self._send, args=(target, seconds), daemon=True)
            for _ in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, target: Target, seconds: float) -> None:
        target.exchange(self.frame, 1 << 40, timeout_s=seconds, reads=self.reads)


def framed(request: Request[Any], version: int, client_id: str = CLIENT_ID) -> bytes:
    """The request as one frame."""
    return join_parts(encode_request(request, version, 1, client_id))


def floods() -> list[Flood]:
    """The shortest requests with long answers, and with short ones."""
    metadata = framed(MetadataRequest(topics=None), 1)
    heartbeat = framed(HeartbeatRequest(group_id="x", generation_id=0, member_id=""), 0)
    return [
        Flood(f"{name}, answers {'read' if reads else 'not read'}", frame, reads)
        for name, frame in (("Metadata of all topics", metadata), ("Heartbeat", heartbeat))
        for reads in (True, False)
    ]


def creating_frames(prefix: str) -> Iterator[bytes]:
    """Requests for the metadata of topics that do not exist, and are created: new names in each, and a client
    id of its own each time, so that no quota of a client id holds them."""
    number = 0
    while True:
        number += 1
        names = [f"{prefix}-{number}-{index}" for index in range(TOPICS_PER_REQUEST)]
        wanted = [MetadataRequestTopic(name=name) for name in names]
        yield framed(MetadataRequest(topics=wanted), 4, f"{prefix}-{number}")


def paces(flood: Flood, target: Target, client: Neighbour, seconds: float) -> Pace:
    """How long the client's rounds take while the flood goes to this broker."""
    began_s = time.monotonic()
    flood.send(target, seconds)
    return client.pace(began_s, time.monotonic())


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a client's times beside floods and in them.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--topics", type=int, default=300)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(running_server(use_docker=False))
        mine, other = (
            stack.enter_context(probed_broker(directory / name, f"{zookeeper}/{name}"))
            for name in ("mine", "other")
        )
        for target in (mine, other):
            furnish(target.broker, Furniture(arguments.partitions, arguments.topics, groups=1))
        client = stack.enter_context(
            running_neighbour(directory, mine.broker.port, Kind.CLIENT, mine.broker.pid)
        )
        client.pace(0, time.monotonic())
        print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.0f}")
        print(f"| {' | '.join(HEADS)} |")
        print(f"| --- |{' ---: |' * (len(HEADS) - 1)}")
        for flood in floods():
            mine.reset()
            pairs = [
                (
                    paces(flood, other, client, arguments.seconds),
                    paces(flood, mine, client, arguments.seconds),
                )
                for _ in range(arguments.rounds)
            ]
            figures = [
                statistics.median(getattr(pair[which], name) for pair in pairs)
                for name in ("p50_ms", "p99_ms", "work_p50_ms", "work_p99_ms")
                for which in (0, 1)
            ]
            ratio = statistics.median(inside.p99_ms / beside.p99_ms for beside, inside in pairs)
            failed = sum(inside.failed for _, inside in pairs)
            cells = [flood.name, *(f"{each:.1f}" for each in figures), f"{ratio:.2f}"]
            print(f"| {' | '.join(cells)} | {mine.turns.longest_ms:.0f} |", flush=True)
            assert not failed, f"{failed} rounds of the client failed"


if __name__ == "__main__":
    main()
