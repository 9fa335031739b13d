"""Measures the cleaner of a whole broker beside Apache Kafka's: python -m benchmarks.cleaners --help.

A broker takes a log of records with random keys. Then each program in turn opens a copy of that log with the
same settings, and compacts it: once alone, and once while a client produces and another fetches at a low,
fixed rate. Wall time is what the program's own log line says of the compaction. Processor time is that of the
threads that clean: for Kafka its cleaner thread without Java's compiler and collector, for Holdfast all
threads but the reactor's. Sizes are those of the closed segments, which are what is compacted. Ends with one
line of JSON.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.apache_kafka import KAFKAS_OWN, KafkaBroker, NoKafkaError, class_path
from benchmarks.raw_client import (
    PRODUCE_VERSION,
    build_batch,
    check_produced,
    fetch_frame,
    produce_frame,
    read_frame,
)
from benchmarks.results import MB, LatencySummary, percentiles, print_json, print_table
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, ConfigChange, ConfigResource, NewTopic
from holdfast_log.coordinator.tools.zookeeper_process import HOST
from holdfast_log.protocol.compression import codec_named
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import UnknownTopicOrPartitionError
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.records import BatchBuilder

_TOPIC = "compacted"
_PROBED = "probed"
_PROBE_BYTES = 16 << 10
_IN_FLIGHT = 8
_SEGMENTS = 20
"""Number of segments that the log has, about."""
_TIMEOUT_S = 900.0
_SILENCE_S = 300.0
_POLL_S = 0.05
_SETTLE_S = 3.0
"""Seconds that a program has between its start and its measurement."""

_OURS = re.compile(rf"Compacted {_TOPIC}-0 up to offset (?P<end>\d+) in (?P<ms>\d+) ms")
_KAFKAS = re.compile(
    rf"cleaned log {_TOPIC}-0 \(dirty section = \[\d+, (?P<end>\d+)\]\)\s+"
    r"[\d,.]+ MB of log processed in (?P<s>[\d,.]+) seconds"
)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a program's log says of one compaction: its time, and the offset up to which it went."""

    seconds: float
    end_offset: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """One compaction by one program. Sizes are in bytes. `process_cpu_seconds` are those of all threads."""

    cleaner: str
    bytes_before: int
    bytes_after: int
    seconds: float
    cpu_seconds: float
    process_cpu_seconds: float
    memory_before_bytes: int
    memory_peak_bytes: int

    @property
    def mb_per_second(self) -> float:
        return self.bytes_before / MB / self.seconds

    @property
    def mb_per_cpu_second(self) -> float:
        return self.bytes_before / MB / self.cpu_seconds


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Latencies of requests to one program, without a compaction and during one."""

    cleaner: str
    request: str
    without: LatencySummary
    beside: LatencySummary


@dataclass(frozen=True, slots=True)
class Program:
    """A broker program: how it is started on a directory, and how its log and threads are read."""

    name: str
    broker: Callable[[Path, str, dict[str, str]], BackgroundBroker]
    passes: Callable[[str], list[Pass]]
    cleans: Callable[[Path], bool]
    """Whether the thread with this folder in /proc does the cleaning."""


def passes_of_holdfast(log: str) -> list[Pass]:
    """The compactions of the measured log that a Holdfast broker has logged."""
    return [Pass(int(found["ms"]) / 1000, int(found["end"])) for found in _OURS.finditer(log)]


def passes_of_kafka(log: str) -> list[Pass]:
    """The compactions of the measured log that a broker of Apache Kafka has logged."""
    return [Pass(float(found["s"].replace(",", "")), int(found["end"])) for found in _KAFKAS.finditer(log)]


def _holdfast(directory: Path, zookeeper_connect: str, properties: dict[str, str]) -> BackgroundBroker:
    return BackgroundBroker(
        directory, broker_id=1, zookeeper_connect=zookeeper_connect, properties=properties
    )


def _kafka(directory: Path, zookeeper_connect: str, properties: dict[str, str]) -> BackgroundBroker:
    return KafkaBroker(
        directory,
        broker_id=1,
        zookeeper_connect=zookeeper_connect,
        properties=properties,
        java_options=KAFKAS_OWN,
    )


def _is_not_reactor(task: Path) -> bool:
    return task.name != task.parent.parent.name


def _is_kafkas_cleaner(task: Path) -> bool:
    return (task / "comm").read_text().startswith("kafka-log-clean")


HOLDFAST = Program("holdfast", _holdfast, passes_of_holdfast, _is_not_reactor)
KAFKA = Program("kafka", _kafka, passes_of_kafka, _is_kafkas_cleaner)


# -- the log -----------------------------------------------------------------------------------------------


def batches_of(records: int, keys: int, record_bytes: int, batch_records: int, codec: str) -> Iterator[bytes]:
    """Batches of records with random keys and incompressible values, the same in each run."""
    chance = random.Random(1)
    noise = chance.randbytes(1 << 20)
    now_ms = int(time.time() * 1000)
    for _ in range(records // batch_records):
        builder = BatchBuilder(codec_named(codec))
        for _ in range(batch_records):
            key = b"key-%012d" % chance.randrange(keys)
            start = chance.randrange(len(noise) - record_bytes)
            builder.append(now_ms, key, noise[start : start + record_bytes - len(key)])
        yield bytes(builder.build())


def _write(port: int, batches: Iterator[bytes]) -> None:
    """Produce batches to the measured log, several requests in flight."""
    with _connected(port) as connection:
        in_flight = 0
        for batch in batches:
            connection.sendall(produce_frame(_TOPIC, 0, batch))
            in_flight += 1
            if in_flight == _IN_FLIGHT:
                _take_answer(connection)
                in_flight -= 1
        for _ in range(in_flight):
            _take_answer(connection)


def _take_answer(connection: socket.socket) -> None:
    """Read the response to a Produce request. Raises LoadError if it has an error."""
    check_produced(decode_response(ProduceRequest, PRODUCE_VERSION, read_frame(connection)), 0)


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=_SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _closed_bytes(data: Path) -> int:
    """The size of the measured log's closed segments."""
    files = sorted((data / f"{_TOPIC}-0").glob("*.log"))
    return sum(file.stat().st_size for file in files[:-1])


# -- a process ---------------------------------------------------------------------------------------------


def _cpu_seconds(pid: int, counts: Callable[[Path], bool] = lambda _: True) -> float:
    """Processor time of a process's threads for which `counts` is true."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if counts(task):
                total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # The thread has ended.
    return total / 1e9


def _memory_bytes(pid: int, field: str) -> int:
    """VmRSS or VmHWM of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


def _forget_peak(pid: int) -> None:
    """Have VmHWM begin again at the present size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


# -- requests beside the cleaning --------------------------------------------------------------------------


class Prober:
    """Sends one kind of request over and over, `rate` times a second, in a thread of its own."""

    def __init__(self, port: int, frames: Sequence[bytes], rate: float) -> None:
        self._connection = _connected(port)
        self._frames = itertools.cycle(frames)
        self._period_s = 1 / rate
        self._samples: deque[tuple[float, float]] = deque()
        """When each request was due, by time.monotonic(), and its latency from then on, in ms."""
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._is_stopped.is_set():
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._connection.sendall(next(self._frames))
            read_frame(self._connection)
            # From when it was due: a request that waits because the one before it is slow is slow as well.
            self._samples.append((due_s, (time.monotonic() - due_s) * 1000))
            due_s += self._period_s

    def between(self, began: float, ended: float) -> LatencySummary:
        """The latencies of requests that were due within this time of time.monotonic()."""
        return percentiles([ms for due_s, ms in list(self._samples) if began <= due_s <= ended])

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join(_SILENCE_S)
        self._connection.close()


@contextmanager
def _probers(port: int, rate: float) -> Iterator[dict[str, Prober]]:
    batch, _ = build_batch(_PROBE_BYTES)
    with _connected(port) as connection:
        connection.sendall(produce_frame(_PROBED, 0, batch))
        _take_answer(connection)
    probers = {
        "produce": Prober(port, [produce_frame(_PROBED, 0, batch)], rate),
        "fetch": Prober(port, [fetch_frame(_PROBED, 0, len(batch))], rate),
    }
    try:
        yield probers
    finally:
        for prober in probers.values():
            prober.stop()


# -- the measurement ---------------------------------------------------------------------------------------


def measure(
    program: Program,
    directory: Path,
    written: Path,
    zookeeper_connect: str,
    properties: dict[str, str],
    rate: float | None,
    quiet_seconds: float,
) -> tuple[Cleaning, list[Disturbance]]:
    """Have a program compact a copy of the log in `written`. With `rate`, requests are sent before, for
    `quiet_seconds`, and meanwhile."""
    shutil.copytree(written, directory / "data")
    broker = program.broker(directory, zookeeper_connect, properties)
    try:
        broker.start()
        broker.wait_ready()
        with Admin({"bootstrap.servers": broker.address}) as admin:
            _await_leader(admin)
            time.sleep(_SETTLE_S)
            try:
                if rate is None:
                    return _clean(program, broker, admin)[0], []
                with _probers(broker.port, rate) as probers:
                    quiet_from = time.monotonic()
                    time.sleep(quiet_seconds)
                    quiet_until = time.monotonic()
                    cleaning, ended = _clean(program, broker, admin)
                    return cleaning, [
                        Disturbance(
                            program.name,
                            kind,
                            prober.between(quiet_from, quiet_until),
                            prober.between(ended - cleaning.seconds, ended),
                        )
                        for kind, prober in probers.items()
                    ]
            finally:
                _set_policy(admin, "delete")
    finally:
        broker.stop()
        shutil.rmtree(directory / "data")


def _await_leader(admin: Admin) -> None:
    """Wait until the broker leads the partitions: it may serve before it knows of them."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        with suppress(UnknownTopicOrPartitionError):
            topics = admin.describe_topics([_TOPIC, _PROBED])
            if all(partition.leader >= 0 for topic in topics for partition in topic.partitions):
                return
        if time.monotonic() > deadline:
            raise click.ClickException(f"the partitions have no leader after {_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _clean(program: Program, broker: BackgroundBroker, admin: Admin) -> tuple[Cleaning, float]:
    """Begin the compaction and wait for its end. Returns the end too, as a time of time.monotonic()."""
    (data,) = broker.log_dirs
    bytes_before = _closed_bytes(data)
    memory_before = _memory_bytes(broker.pid, "VmRSS")
    _forget_peak(broker.pid)
    cpu_before, process_before = _cpu_seconds(broker.pid, program.cleans), _cpu_seconds(broker.pid)
    _set_policy(admin, "compact")
    deadline = time.monotonic() + _TIMEOUT_S
    while not (passes := program.passes(broker.log)):
        if time.monotonic() > deadline:
            raise click.ClickException(
                f"{program.name} has not compacted the log in {_TIMEOUT_S:.0f} s:\n{broker.log[-3000:]}"
            )
        time.sleep(_POLL_S)
    ended = time.monotonic()
    return (
        Cleaning(
            program.name,
            bytes_before,
            _closed_bytes(data),
            passes[0].seconds,
            _cpu_seconds(broker.pid, program.cleans) - cpu_before,
            _cpu_seconds(broker.pid) - process_before,
            memory_before,
            _memory_bytes(broker.pid, "VmHWM"),
        ),
        ended,
    )


def _set_policy(admin: Admin, policy: str) -> None:
    admin.alter_configs(
        {ConfigResource(ResourceType.TOPIC, _TOPIC): [ConfigChange("cleanup.policy", policy)]}
    )


@click.command()
@click.option("--megabytes", default=2000, show_default=True, type=click.IntRange(2), help="Size of the log.")
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1), help="Different keys.")
@click.option("--record-bytes", default=1000, show_default=True, type=click.IntRange(20))
@click.option("--batch-records", default=16, show_default=True, type=click.IntRange(1))
@click.option("--codec", default="none", show_default=True, help="none, gzip, snappy, lz4 or zstd.")
@click.option("--rate", default=100.0, show_default=True, help="Requests of each kind per second.")
@click.option("--quiet-seconds", default=10.0, show_default=True, help="Time without a compaction.")
@click.option("--rounds", default=1, show_default=True, help="How often each program is measured.")
@click.option("--alone", is_flag=True, help="Without Apache Kafka.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where logs are written and removed again; by default the system's temporary directory.",
)
def main(
    megabytes: int,
    keys: int,
    record_bytes: int,
    batch_records: int,
    codec: str,
    rate: float,
    quiet_seconds: float,
    rounds: int,
    alone: bool,
    directory: Path | None,
) -> None:
    """Compact a log in a broker of Holdfast and in one of Apache Kafka, and print what it took."""
    try:
        programs = (HOLDFAST,) if alone else (HOLDFAST, KAFKA) if class_path() else ()
    except NoKafkaError as error:
        raise click.ClickException(f"{error}; --alone measures without it") from error
    place = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-", dir=directory))
    properties = {
        "log.segment.bytes": str(max(1 << 20, megabytes * MB // _SEGMENTS)),
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": str(128 << 20),
        "log.retention.ms": "-1",
        "log.retention.bytes": "-1",
    }
    cleanings: list[Cleaning] = []
    disturbances: list[Disturbance] = []
    try:
        # The brokers that are measured have no password for ZooKeeper.
        open_to_all = {**properties, "zookeeper.set.acl": "false"}
        with LocalCluster(place / "writer", properties=open_to_all) as cluster:
            (writer,) = cluster.brokers
            with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
                admin.create_topics(
                    [NewTopic(_TOPIC, 1, 1, {"cleanup.policy": "delete"}), NewTopic(_PROBED, 1, 1)]
                )
                admin.describe_topics([_TOPIC, _PROBED])
            _write(
                writer.port,
                batches_of(megabytes * MB // record_bytes, keys, record_bytes, batch_records, codec),
            )
            writer.stop()
            (written,) = writer.log_dirs
            click.echo(f"a log of {_closed_bytes(written) / MB:.0f} MB in closed segments, codec {codec}")
            for number, program, probed in itertools.product(range(rounds), programs, (None, rate)):
                name = f"{program.name}-{number}-{'probed' if probed else 'alone'}"
                cleaning, latencies = measure(
                    program, place / name, written, cluster.zookeeper_connect, properties, probed,
                    quiet_seconds,
                )  # fmt: skip
                click.echo(f"{name}: {cleaning.seconds:.1f} s, {cleaning.mb_per_second:.0f} MB/s")
                if probed is None:
                    cleanings.append(cleaning)
                disturbances += latencies
    finally:
        shutil.rmtree(place, ignore_errors=True)
    _report(cleanings, disturbances)


def _report(cleanings: Sequence[Cleaning], disturbances: Sequence[Disturbance]) -> None:
    print_table(
        "Compaction",
        ["cleaner", "MB/s", "MB/s per core", "left", "memory before MB", "peak MB"],
        [
            [
                each.cleaner,
                f"{each.mb_per_second:.0f}",
                f"{each.mb_per_cpu_second:.0f}",
                f"{each.bytes_after / each.bytes_before:.0%}",
                f"{each.memory_before_bytes / MB:.0f}",
                f"{each.memory_peak_bytes / MB:.0f}",
            ]
            for each in cleanings
        ],
    )
    print_table(
        "Requests",
        ["broker", "request", "p50 ms", "p99 ms", "p50 beside", "p99 beside", "p99 ratio"],
        [
            [
                each.cleaner,
                each.request,
                f"{each.without.p50_ms:.2f}",
                f"{each.without.p99_ms:.2f}",
                f"{each.beside.p50_ms:.2f}",
                f"{each.beside.p99_ms:.2f}",
                f"{each.beside.p99_ms / each.without.p99_ms:.2f}",
            ]
            for each in disturbances
        ],
    )
    report: dict[str, Any] = {
        "benchmark": "cleaners",
        "cleanings": [asdict(each) for each in cleanings],
        "requests": [asdict(each) for each in disturbances],
    }
    print_json(report)


if __name__ == "__main__":
    main()
