"""Compares transactional writing with Apache Kafka's: python -m benchmarks.transactions --help.

One producer (librdkafka) writes records as fast as they are taken, to all partitions of a topic in turns, and
commits whenever the interval has passed; only committed records count. All systems run at the same time, each
a single broker; in every round they take turns, in an order that changes from round to round, after one load
that does not count. The producer and the measured system share the machine's cores. The table has the medians
of the rounds, and the median of the rounds' ratios. Ends with one line of JSON.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from confluent_kafka import KafkaException, Producer

from benchmarks.apache_kafka import NoKafkaError
from benchmarks.load_error import LoadError
from benchmarks.peer_systems import HOLDFAST, HOLDFAST_ALL_CORES, KAFKA_3, KAFKA_4, LABELS, PeerSystem, start
from benchmarks.results import percentiles, print_json
from benchmarks.targets import cpu_seconds, create_topic, delete_topic

_TIMEOUT_S = 60.0
_QUEUE_FULL_WAIT_S = 0.001
_CHECK_EVERY = 50
"""Records between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class TransactionLoad:
    """What one run does: commits every `interval_ms`, to so many partitions."""

    interval_ms: int
    partitions: int
    record_bytes: int

    @property
    def name(self) -> str:
        plural = "" if self.partitions == 1 else "s"
        return f"{self.partitions} partition{plural}, {self.interval_ms} ms"


@dataclass(frozen=True, slots=True)
class TransactionFigures:
    """What one run measured. Latencies are those of commits; CPU seconds are the broker's, for one commit."""

    records_per_second: float
    commits_per_second: float
    commit_p50_ms: float
    commit_p99_ms: float
    cpu_ms_per_commit: float


def run_load(system: PeerSystem, load: TransactionLoad, seconds: float, topic: str) -> TransactionFigures:
    """Write to a new topic for so long. Raises LoadError and KafkaException."""
    create_topic(system.target, topic, load.partitions)
    producer = Producer(
        {
            "bootstrap.servers": system.bootstrap,
            "broker.address.family": "v4",
            "transactional.id": topic,
            "linger.ms": 1,
            "queue.buffering.max.messages": 20_000,
            "log_level": 3,
        }
    )
    try:
        producer.init_transactions(_TIMEOUT_S)
        _transaction(producer, load, topic)  # The first one finds the leaders.
        cpu_before = cpu_seconds(system.pids) or 0.0
        began = time.perf_counter()
        records, commits = 0, []
        while time.perf_counter() - began < seconds:
            written, commit_ms = _transaction(producer, load, topic)
            records += written
            commits.append(commit_ms)
        elapsed = time.perf_counter() - began
        used = (cpu_seconds(system.pids) or 0.0) - cpu_before
    finally:
        delete_topic(system.target, topic)
    latency = percentiles(commits)
    return TransactionFigures(
        records / elapsed,
        len(commits) / elapsed,
        latency.p50_ms,
        latency.p99_ms,
        used / len(commits) * 1000,
    )


def _transaction(producer: Producer, load: TransactionLoad, topic: str) -> tuple[int, float]:
    """One transaction. Returns its records, and how many ms the commit took."""
    value = bytes(load.record_bytes)
    producer.begin_transaction()
    ends = time.perf_counter() + load.interval_ms / 1000
    written = 0
    while time.perf_counter() < ends:
        for _ in range(_CHECK_EVERY):
            if not _written(producer, topic, value, written % load.partitions):
                break
            written += 1
    began = time.perf_counter()
    producer.commit_transaction(_TIMEOUT_S)
    return written, (time.perf_counter() - began) * 1000


def _written(producer: Producer, topic: str, value: bytes, partition: int) -> bool:
    try:
        producer.produce(topic, value, partition=partition)
    except BufferError:
        producer.poll(_QUEUE_FULL_WAIT_S)
        return False
    return True


def _orders(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """The systems' order in each round: each is first equally often."""
    for number in range(rounds):
        turn = number % len(names)
        yield [*names[turn:], *names[:turn]]


def measure(
    systems: dict[str, PeerSystem], load: TransactionLoad, rounds: int, seconds: float
) -> dict[str, list[TransactionFigures]]:
    """The figures of each round, by system."""
    found: dict[str, list[TransactionFigures]] = {name: [] for name in systems}
    for name, system in systems.items():
        run_load(system, load, seconds, f"warm-{load.partitions}-{load.interval_ms}-{name}")
    for number, order in enumerate(_orders(list(systems), rounds)):
        for name in order:
            topic = f"tx-{load.partitions}-{load.interval_ms}-{number}"
            found[name].append(run_load(systems[name], load, seconds, topic))
    return found


def _median(figures: Sequence[TransactionFigures], field: str) -> float:
    return float(statistics.median(getattr(each, field) for each in figures))


def _rows(load: TransactionLoad, found: dict[str, list[TransactionFigures]]) -> Iterator[str]:
    """The lines of the table for one load, with the ratio of our records to each other system's."""
    ours = found.get(HOLDFAST)
    for name, figures in found.items():
        ratio = ""
        if ours is not None and name != HOLDFAST:
            ratios = [
                mine.records_per_second / other.records_per_second
                for mine, other in zip(ours, figures, strict=True)
            ]
            ratio = f"{statistics.median(ratios):.2f}"
        yield (
            f"| {load.name} | {LABELS[name]} | {_median(figures, 'records_per_second'):,.0f} "
            f"| {_median(figures, 'commits_per_second'):.1f} | {_median(figures, 'commit_p50_ms'):.1f} "
            f"| {_median(figures, 'commit_p99_ms'):.1f} | {_median(figures, 'cpu_ms_per_commit'):.2f} "
            f"| {ratio} |"
        )


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds of each load.")
@click.option(
    "--seconds", type=click.FloatRange(0.2), default=3.0, show_default=True, help="Seconds of each run."
)
@click.option(
    "--interval-ms",
    "intervals",
    type=click.IntRange(1),
    multiple=True,
    default=(10, 100),
    show_default=True,
    help="Time between two commits; may be repeated.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 20),
    show_default=True,
    help="Partitions of a transaction; may be repeated.",
)
@click.option(
    "--record-bytes", type=click.IntRange(1), default=100, show_default=True, help="Bytes of a record."
)
@click.option(
    "--system",
    "names",
    type=click.Choice([HOLDFAST, HOLDFAST_ALL_CORES, KAFKA_3, KAFKA_4]),
    multiple=True,
    default=(HOLDFAST, KAFKA_3),
    show_default=True,
    help="What to measure; may be repeated.",
)
def main(
    rounds: int,
    seconds: float,
    intervals: tuple[int, ...],
    partitions: tuple[int, ...],
    record_bytes: int,
    names: tuple[str, ...],
) -> None:
    """Measure transactional writing, of Holdfast beside Apache Kafka."""
    everything = []
    print("| Load | System | records/s | commits/s | commit p50, ms | p99, ms | CPU, ms a commit | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    try:
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            systems = {name: start(name, Path(directory) / name, 1, stack) for name in names}
            for count in partitions:
                for interval in intervals:
                    load = TransactionLoad(interval, count, record_bytes)
                    found = measure(systems, load, rounds, seconds)
                    print("\n".join(_rows(load, found)), flush=True)
                    runs = {name: [asdict(each) for each in found[name]] for name in found}
                    everything.append({"load": asdict(load), "runs": runs})
    except (NoKafkaError, LoadError, KafkaException) as error:
        sys.exit(f"not measured: {error}")
    print_json({"loads": everything})


if __name__ == "__main__":
    main()
