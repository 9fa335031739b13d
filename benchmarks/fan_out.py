"""Measures the delivery to many consumers of one partition: python -m benchmarks.fan_out --help.

Each consumer always has one fetch that waits in the broker for the next record. Latencies are from the
moment before a record is written to the socket until a consumer has received it. Clients are plain sockets in
this process, so their share of the latency is the same for every broker. Ends with one line of JSON.
"""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.load_error import LoadError
from benchmarks.pairs import median_ratio
from benchmarks.results import percentiles, print_json, print_table
from benchmarks.targets import Target, cpu_seconds, create_topic, delete_topic
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.records import BatchBuilder

CONSUMERS = (50, 200)
RECORD_BYTES = 200
PRODUCE_VERSION = 8
FETCH_VERSION = 11
_INTERVAL_S = {50: 0.02, 200: 0.08}
"""Time between two records: about 2500 deliveries a second, half the capacity of one processor."""
_MAX_WAIT_MS = 500
_TIMEOUT_S = 30.0
_WATCHED = Path(__file__).with_name("watched_collections.py")


@dataclass(frozen=True, slots=True)
class FanOut:
    """One run: latencies and garbage collections of the broker in ms."""

    p50_ms: float
    p99_ms: float
    deliveries: int
    cpu_us_per_delivery: float | None
    pauses_ms: Sequence[float]
    seconds: float


class Tail:
    """A consumer at the end of a partition, always with one fetch in flight."""

    def __init__(self, address: tuple[str, int], topic: str, offset: int) -> None:
        self.socket = socket.create_connection(address, timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.offset = offset
        self._topic = topic
        self._received = bytearray()

    def ask(self) -> None:
        self.socket.sendall(_fetch_frame(self._topic, self.offset))

    def receive(self) -> bool:
        """Read the response. Returns whether it held a record. After a complete response, with or without a
        record, the next fetch is sent."""
        self._received += self.socket.recv(65536)
        if len(self._received) < SIZE.size:
            return False
        (size,) = SIZE.unpack_from(self._received)
        if len(self._received) < SIZE.size + size:
            return False
        has_record = bool(size > RECORD_BYTES)
        self._received.clear()
        self.offset += has_record
        self.ask()
        return has_record


def measure(target: Target, topic: str, consumers: int, seconds: float, pauses: Path | None) -> FanOut:
    """Write records at a steady rate for `seconds`, each awaited by all consumers."""
    create_topic(target, topic, 1)
    address = target.first_address
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(socket.create_connection(address, timeout=_TIMEOUT_S))
        producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(consumers):
            tail = Tail(address, topic, 0)
            stack.callback(tail.socket.close)
            tail.ask()
            selector.register(tail.socket, selectors.EVENT_READ, tail)
        frame = _produce_frame(topic)
        warm_until = time.monotonic() + min(1.0, seconds / 4)
        while time.monotonic() < warm_until:
            _deliver(producer, frame, selector, consumers)
        latencies_ms: list[float] = []
        cpu_before, began = cpu_seconds(target.pids), time.monotonic()
        due = began
        while (now := time.monotonic()) < began + seconds:
            if now < due:
                time.sleep(due - now)
            due = max(due + _INTERVAL_S.get(consumers, 0.05), time.monotonic())
            latencies_ms += _deliver(producer, frame, selector, consumers)
        ended = time.monotonic()
        cpu_after = cpu_seconds(target.pids)
    delete_topic(target, topic)
    found = percentiles(latencies_ms)
    cpu_us = (
        None
        if cpu_before is None or cpu_after is None
        else (cpu_after - cpu_before) / len(latencies_ms) * 1e6
    )
    paused = [] if pauses is None else pauses_between(pauses, began, ended)
    return FanOut(found.p50_ms, found.p99_ms, len(latencies_ms), cpu_us, paused, ended - began)


def _deliver(
    producer: socket.socket, frame: bytes, selector: selectors.BaseSelector, consumers: int
) -> list[float]:
    """Write one record. Returns the ms until each consumer received it."""
    latencies_ms: list[float] = []
    sent = time.monotonic()
    producer.sendall(frame)
    while len(latencies_ms) < consumers:
        ready = selector.select(_TIMEOUT_S)
        if not ready:
            raise LoadError(f"only {len(latencies_ms)} of {consumers} consumers received a record")
        for key, _ in ready:
            if key.data.receive():
                latencies_ms.append((time.monotonic() - sent) * 1000)
    (size,) = SIZE.unpack(producer.recv(SIZE.size, socket.MSG_WAITALL))
    producer.recv(size, socket.MSG_WAITALL)
    return latencies_ms


def _produce_frame(topic: str) -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, bytes(RECORD_BYTES))
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
    return join_parts(encode_request(request, PRODUCE_VERSION, 0, "fan-out"))


def _fetch_frame(topic: str, offset: int) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return join_parts(encode_request(request, FETCH_VERSION, 0, "fan-out"))


def pauses_between(path: Path, began: float, ended: float) -> list[float]:
    """Duration in ms of each collection that began in a span of time, from the file of a watched process."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [float(lasted) for at, lasted in lines if began <= float(at) < ended]


@click.command()
@click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Directory of another checkout; its broker is measured in turn with this one's.",
)
@click.option(
    "--peer", metavar="HOST:PORT", help="Address of a running broker, measured in turn with this checkout's."
)
@click.option(
    "--seconds", default=4.0, show_default=True, type=click.FloatRange(min=0.5), help="Seconds of each run."
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Runs for each broker and number of consumers.",
)
@click.option(
    "--consumers",
    multiple=True,
    type=click.IntRange(1),
    help="Number of consumers; may be repeated. [default: 50 and 200]",
)
def main(
    beside: Path | None, peer: str | None, seconds: float, rounds: int, consumers: tuple[int, ...]
) -> None:
    """Measure the time from a produce to its delivery to 50 and 200 consumers that wait."""
    checkouts = {"here": IMPORT_ROOT} | ({} if beside is None else {"beside": beside})
    counts = consumers or CONSUMERS
    runs: dict[tuple[int, str], list[FanOut]] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-fan-out-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        targets: list[tuple[Target, Path | None]] = []
        for name, checkout in checkouts.items():
            pauses = directory / f"{name}.collections"
            cluster = stack.enter_context(
                LocalCluster(
                    directory / name, checkout=checkout, python_arguments=[str(_WATCHED), str(pauses)]
                )
            )
            targets.append((Target(name, cluster.bootstrap, (cluster.brokers[0].pid,)), pauses))
        if peer is not None:
            targets.append((Target("peer", peer), None))
        for number in range(rounds):
            for count in counts:
                for target, pauses_of in targets if number % 2 else reversed(targets):
                    run = measure(target, f"fan-out-{count}-{number}", count, seconds, pauses_of)
                    runs.setdefault((count, target.name), []).append(run)
    _report(runs)


def _report(runs: dict[tuple[int, str], list[FanOut]]) -> None:
    rows: list[list[str]] = []
    report = []
    for (count, name), found in runs.items():
        ours = runs[count, "here"]
        p50, p99 = (percentiles([getattr(run, at) for run in found]).p50_ms for at in ("p50_ms", "p99_ms"))
        pauses = [pause for run in found for pause in run.pauses_ms]
        per_second = len(pauses) / sum(run.seconds for run in found)
        cpu = [run.cpu_us_per_delivery for run in found if run.cpu_us_per_delivery is not None]
        ratios = {
            at: median_ratio(
                [getattr(mine, at) / getattr(run, at) for mine, run in zip(ours, found, strict=True)]
            )
            for at in ("p50_ms", "p99_ms")
        }
        rows.append(
            [
                f"{count} consumers, {name}",
                f"{p50:.2f}",
                f"{p99:.2f}",
                f"{min(cpu):.0f}" if cpu else "",
                f"{per_second:.2f}",
                f"{max(pauses, default=0.0):.1f}",
                "" if name == "here" else str(ratios["p50_ms"]),
                "" if name == "here" else str(ratios["p99_ms"]),
            ]
        )
        report.append(
            {
                "consumers": count,
                "broker": name,
                "p50_ms": round(p50, 3),
                "p99_ms": round(p99, 3),
                "cpu_us_per_delivery": round(min(cpu), 1) if cpu else None,
                "collections_per_second": round(per_second, 3),
                "longest_collection_ms": round(max(pauses, default=0.0), 3),
                "p50_ratio_of_here": round(ratios["p50_ms"].median, 3),
                "p99_ratio_of_here": round(ratios["p99_ms"].median, 3),
            }
        )
    headings = ["", "p50 ms", "p99 ms", "CPU us", "collections/s", "longest ms", "p50 here/it", "p99 here/it"]
    print_table("From produce to delivery, median of the runs", headings, rows)
    print_json({"benchmark": "fan_out", "rows": report})


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.fan_out")
