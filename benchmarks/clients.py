"""Measures how fast the clients are: python -m benchmarks.clients --help.

Measures ours, confluent-kafka, kafka-python and aiokafka on the same broker process, in turns of short
rounds, so that other work on the machine slows all alike. Prints medians and our ratio to each. Ends with one
line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.client_loads import CHUNK, LOADS, ClientJob, ClientResult
from benchmarks.results import print_json, print_table
from benchmarks.targets import Target, create_topic, delete_topic
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE

OURS = "holdfast"
KINDS = {
    "produce": "produce, record by record",
    "produce_bulk": "produce in bulk",
    "consume": "consume, record by record",
    "consume_bulk": "consume in bulk",
}
PROPERTIES = {"log.segment.bytes": str(512 * 2**20)}
PARTITIONS = 6
_GRACE_S = 120.0


class RunError(RuntimeError):
    """A load failed; the message contains its output."""


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One load, run by each client that supports it in turn."""

    kind: str
    record_bytes: int

    @property
    def name(self) -> str:
        """Name in the first column and in the JSON."""
        return f"{KINDS[self.kind]}, {self.record_bytes} B"

    @property
    def clients(self) -> list[str]:
        """Clients that support this load."""
        return [client for client, kind in LOADS if kind == self.kind]


@click.command()
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(min=0.2), help="Seconds of each load."
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Loads of each client in each case.",
)
@click.option("--only", metavar="TEXT", default="", help="Measure only cases whose name contains TEXT.")
@click.option(
    "--client", "chosen", metavar="NAME", multiple=True, help="Measure only this client; may be repeated."
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Use this broker instead of starting one.")
@click.option("--pure", is_flag=True, help="Run our client without its compiled module.")
@click.option(
    "--megabytes", default=300, show_default=True, help="Records to consume for each record size, in MB."
)
def main(
    seconds: float,
    rounds: int,
    only: str,
    chosen: tuple[str, ...],
    bootstrap: str | None,
    pure: bool,
    megabytes: int,
) -> None:
    """Measure our clients and other clients in turn."""
    if pure:
        os.environ[PURE_PYTHON_VARIABLE] = "1"
    cases = [ClientCase(kind, size) for kind in KINDS for size in (100, 1000)]
    cases = [case for case in cases if only in case.name]
    results: dict[tuple[ClientCase, str], list[ClientResult]] = {}
    with ExitStack() as stack:
        target = Target("holdfast", bootstrap or _own_broker(stack))
        filled = {size: fill(target, size, megabytes) for size in {case.record_bytes for case in cases}}
        for round_number in range(rounds):
            for case in cases:
                clients = [client for client in case.clients if not chosen or client in chosen]
                if round_number % 2:
                    clients.reverse()
                for client in clients:
                    result = run_client(case, client, target, seconds, filled[case.record_bytes])
                    results.setdefault((case, client), []).append(result)
                    click.echo(f"{case.name}, {client}: {result.records / result.seconds:,.0f} records/s")
        for size in filled:
            delete_topic(target, filled_topic(size))
    _report(cases, results)


def _own_broker(stack: ExitStack) -> str:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    return stack.enter_context(LocalCluster(directory, properties=PROPERTIES)).bootstrap


def filled_topic(record_bytes: int) -> str:
    return f"benchmark-filled-{record_bytes}"


def fill(target: Target, record_bytes: int, megabytes: int) -> int:
    """Write the records that the clients will read. Returns their number."""
    from confluent_kafka import Producer

    topic = filled_topic(record_bytes)
    create_topic(target, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": target.bootstrap, "batch.size": 65_536, "linger.ms": 20})
    messages = [{"value": os.urandom(record_bytes)} for _ in range(CHUNK)]
    rounds = max(1, megabytes * 1_000_000 // record_bytes // CHUNK)
    for number in range(rounds):
        rest = messages
        while rest:
            queued = producer.produce_batch(topic, rest, partition=number % PARTITIONS)
            rest = rest[queued:]
            producer.poll(0.01 if rest else 0)
    if producer.flush(60):
        raise RunError("the topic to read could not be filled")
    return rounds * CHUNK


def run_client(case: ClientCase, client: str, target: Target, seconds: float, records: int) -> ClientResult:
    """Run one load in its own process. Raises `RunError`."""
    is_reading = case.kind.startswith("consume")
    topic = filled_topic(case.record_bytes) if is_reading else f"benchmark-{os.urandom(6).hex()}"
    job = ClientJob(
        client, case.kind, target.bootstrap, topic, PARTITIONS, case.record_bytes, seconds, records
    )
    if is_reading:
        return _load(job)
    create_topic(target, topic, PARTITIONS)
    try:
        result = _load(job)
        found = _record_count(target, topic)
        if found != result.records + 1:  # Plus the first record, which opened the connections.
            raise RunError(f"{client} sent {result.records} records, and {found - 1} arrived")
        return result
    finally:
        delete_topic(target, topic)


def _load(job: ClientJob) -> ClientResult:
    command: Sequence[str] = [sys.executable, "-m", "benchmarks.client_loads", json.dumps(asdict(job))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=job.seconds + _GRACE_S, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no word"]
        raise RunError(f"{job.client}, {job.kind}: {lines[-1]}")
    return ClientResult(**json.loads(done.stdout.strip().splitlines()[-1]))


def _record_count(target: Target, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "benchmark-count"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(ends)


def _report(cases: Sequence[ClientCase], results: dict[tuple[ClientCase, str], list[ClientResult]]) -> None:
    """Print the table, and the same as JSON."""
    rows: list[list[str]] = []
    report: list[dict[str, object]] = []
    for case in cases:
        measured = {client: results[case, client] for client in case.clients if (case, client) in results}
        rates = {client: _median_rate(runs) for client, runs in measured.items()}
        for client, runs in measured.items():
            ratio = rates[OURS] / rates[client] if OURS in rates else None
            cpu_us = statistics.median(run.cpu_seconds / run.records for run in runs) * 1e6
            cells = [
                f"{rates[client]:,.0f}",
                f"{rates[client] * case.record_bytes / 1e6:,.1f}",
                f"{cpu_us:.2f}",
                "" if ratio is None or client == OURS else f"{ratio:.2f}",
            ]
            rows.append([f"{case.name}, {client}", *cells])
            report.append(
                {
                    "case": case.name,
                    "client": client,
                    "records_per_second": round(rates[client]),
                    "client_cpu_us_per_record": round(cpu_us, 3),
                    "ours_over_this": None if ratio is None else round(ratio, 2),
                    "runs": [round(run.records / run.seconds) for run in runs],
                }
            )
    print_table("Clients", ["case", "records/s", "MB/s", "CPU us/record", "ours : this"], rows)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print_json({"benchmark": "clients", "machine": machine, "cases": report})


def _median_rate(runs: Sequence[ClientResult]) -> float:
    return statistics.median(run.records / run.seconds for run in runs)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.clients")
