"""Measures what consumer groups cost one broker: python -m benchmarks.groups --help.

Measures the processor share that many idle members cost, the rate and latency of commits, and how long a
broker takes to load the groups of a large partition, with the latency of other requests meanwhile. Ends with
one line of JSON.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.group_load import GroupJob, GroupRun, frame_of, job_json, run_from_json
from benchmarks.results import LatencySummary, percentiles, print_json, print_table
from benchmarks.targets import Target, cpu_seconds, create_topic
from holdfast_log.broker.tools.broker_process import receive
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.records import CommittedOffset, offset_record
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.records import BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition

TOPIC = "read"
_LOADED = re.compile(r"Loaded the groups of \S+: (\d+) records read in (\d+) ms")
_GRACE_S = 300.0
_PROBE_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `broker_cpu_share` is of one core."""

    name: str
    requests_per_second: float
    latency: LatencySummary
    broker_cpu_share: float
    errors: int


@click.command()
@click.option("--groups", default=1000, show_default=True, help="Groups whose members send heartbeats.")
@click.option("--members", default=10, show_default=True, help="Members of each group that sends heartbeats.")
@click.option("--interval-ms", default=3000, show_default=True, help="Heartbeat interval of a member, in ms.")
@click.option("--seconds", default=15.0, show_default=True, help="Seconds for which heartbeats are measured.")
@click.option("--commits", default=100_000, show_default=True, help="Total number of offset commits.")
@click.option("--committers", default=50, show_default=True, help="Clients with one commit in flight each.")
@click.option("--records", default=1_000_000, show_default=True, help="Offset records that the broker loads.")
@click.option(
    "--distinct", default=100_000, show_default=True, help="Distinct group partitions in the records."
)
@click.option("--per-batch", default=1, show_default=True, help="Offset records in each loaded batch.")
@click.option("--only", type=click.Choice(["heartbeats", "commits", "reload"]))
def main(
    groups: int,
    members: int,
    interval_ms: int,
    seconds: float,
    commits: int,
    committers: int,
    records: int,
    distinct: int,
    per_batch: int,
    only: str | None,
) -> None:
    """Measure consumer groups on a broker started for the benchmark."""
    report: dict[str, Any] = {"benchmark": "groups"}
    rows: list[Row] = []
    if only in (None, "heartbeats"):
        name = f"heartbeats of {groups} groups x {members} every {interval_ms} ms"
        job = {"groups": groups, "members": members, "interval_ms": interval_ms, "seconds": seconds}
        rows.append(_measured(name, "heartbeats", job))
    if only in (None, "commits"):
        job = {"groups": committers, "members": committers, "commits": commits}
        rows.append(_measured(f"{commits} commits by {committers} clients", "commits", job))
    if rows:
        headings = ("", "requests/s", "p50 ms", "p99 ms", "broker CPU", "errors")
        print_table("Groups on one broker", headings, [_cells(row) for row in rows])
        report["loads"] = [
            {
                "name": row.name,
                "requests_per_second": round(row.requests_per_second),
                "p50_ms": round(row.latency.p50_ms, 3),
                "p99_ms": round(row.latency.p99_ms, 3),
                "broker_cpu_share": round(row.broker_cpu_share, 3),
                "errors": row.errors,
            }
            for row in rows
        ]
    if only in (None, "reload"):
        report["reload"] = _reload(records, distinct, per_batch)
    print_json(report)


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.requests_per_second:,.0f}",
        f"{row.latency.p50_ms:.2f}",
        f"{row.latency.p99_ms:.2f}",
        f"{row.broker_cpu_share:.0%}",
        str(row.errors),
    ]


@contextlib.contextmanager
def _cluster(properties: Mapping[str, str]) -> Iterator[LocalCluster]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
    try:
        with LocalCluster(directory, properties=properties) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measured(name: str, kind: str, how: Mapping[str, Any]) -> Row:
    with _cluster({"group.initial.rebalance.delay.ms": "1000"}) as cluster:
        (broker,) = cluster.brokers
        target = Target("holdfast", cluster.bootstrap, (broker.pid,))
        create_topic(target, TOPIC, 1)
        host, port = target.first_address
        with _CpuWatch(target) as watch:
            run = _load(GroupJob(kind, host, port, TOPIC, **how))
        seconds = run.ended - run.began
        share = watch.used_between(run.began, run.ended) / seconds
        click.echo(f"{name}: {run.requests / seconds:,.0f} a second, broker CPU {share:.0%}")
        return Row(name, run.requests / seconds, run.latency, share, run.errors)


def _load(job: GroupJob) -> GroupRun:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.group_load", job_json(job)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=job.seconds + _GRACE_S,
        check=True,
    )
    return run_from_json(done.stdout.splitlines()[-1])


class _CpuWatch:
    """Samples a broker's CPU time ten times a second, since the start of a load is not known beforehand."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._seen: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _CpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            self._seen.append((time.time(), cpu_seconds(self._target.pids) or 0.0))

    def used_between(self, began: float, ended: float) -> float:
        """CPU seconds used during the load."""
        inside = [used for at, used in self._seen if began <= at <= ended]
        return inside[-1] - inside[0]


# Reading back


def _reload(records: int, distinct: int, per_batch: int) -> dict[str, Any]:
    """Write a partition as a coordinator does, and measure how long a broker takes to load it."""
    with _cluster({"offsets.topic.num.partitions": "1"}) as cluster:
        (broker,) = cluster.brokers
        host, port = Target("holdfast", cluster.bootstrap).first_address
        _find_coordinator(host, port)
        broker.stop()
        (directory,) = (path for log_dir in broker.log_dirs for path in log_dir.glob(f"{OFFSETS_TOPIC}-0"))
        for path in directory.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                path.unlink()
        size = _write(directory / f"{0:020d}.log", records, distinct, per_batch)
        broker.start()
        with _Probe(host, port) as probe:
            read, took_ms = _loaded(broker)
    click.echo(
        f"{records:,} records ({size / 1e6:.0f} MB, {per_batch} to a batch) about {distinct:,} partitions: "
        f"read back in {took_ms / 1000:.1f} s; other requests meanwhile: p50 {probe.latency.p50_ms:.1f} ms, "
        f"p99 {probe.latency.p99_ms:.1f} ms, longest {max(probe.samples_ms):.1f} ms"
    )
    return {
        "records": records,
        "replayed": read,
        "bytes": size,
        "seconds": took_ms / 1000,
        "others_p99_ms": round(probe.latency.p99_ms, 2),
        "others_longest_ms": round(max(probe.samples_ms), 2),
    }


def _write(path: Path, records: int, distinct: int, per_batch: int) -> int:
    """Write the segment that `records` commits leave."""
    now_ms = int(time.time() * 1000)
    size = 0
    with open(path, "wb") as file:
        for base_offset in range(0, records, per_batch):
            builder = BatchBuilder()
            for number in range(base_offset, min(base_offset + per_batch, records)):
                which = number % distinct
                partition = TopicPartition(f"topic-{which // 50 % 20}", which % 50)
                committed = CommittedOffset(number, 0, "", now_ms)
                builder.append(now_ms, *offset_record(f"group-{which // 1000}", partition, committed))
            batch = builder.build(base_offset=base_offset)
            batch[12:16] = bytes(4)  # leader epoch 0, set as a broker would
            size += len(batch)
            file.write(batch)
    return size


def _loaded(broker: Any) -> tuple[int, int]:
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        found = _LOADED.search(broker.log)
        if found is not None:
            return int(found[1]), int(found[2])
        time.sleep(0.05)
    raise RuntimeError(f"the broker did not load the partition:\n{broker.log[-2000:]}")


class _Probe:
    """A client that repeats a simple request as soon as the broker answers."""

    def __init__(self, host: str, port: int) -> None:
        self.samples_ms: list[float] = []
        self._address = (host, port)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def latency(self) -> LatencySummary:
        return percentiles(self.samples_ms)

    def __enter__(self) -> _Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with socket.create_connection(self._address, timeout=10) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._ask_on(connection)
            except (OSError, EOFError):
                time.sleep(_PROBE_PAUSE_S)

    def _ask_on(self, connection: socket.socket) -> None:
        frame = frame_of(ApiVersionsRequest(), 0)
        while not self._is_over.wait(_PROBE_PAUSE_S):
            sent = time.perf_counter()
            connection.sendall(frame)
            _read(connection)
            self.samples_ms.append((time.perf_counter() - sent) * 1000)


def _find_coordinator(host: str, port: int) -> None:
    """Wait until the broker coordinates groups, and so has created its topic of offsets."""
    request = FindCoordinatorRequest(key="group")
    deadline = time.monotonic() + _GRACE_S
    with socket.create_connection((host, port), timeout=_GRACE_S) as connection:
        while time.monotonic() < deadline:
            connection.sendall(frame_of(request, 1))
            answer = decode_response(FindCoordinatorRequest, 1, _read(connection))
            if answer.error_code == ErrorCode.NONE:
                return
            time.sleep(0.05)
    raise RuntimeError("there is no coordinator")


def _read(connection: socket.socket) -> bytes:
    (size,) = SIZE.unpack(receive(connection, SIZE.size))
    return receive(connection, size)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.groups")
