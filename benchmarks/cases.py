"""What is measured: the matrix of cases, and how one case is run against one target."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks import raw_client, stock_client
from benchmarks.raw_client import RawJob
from benchmarks.results import Result, from_json
from benchmarks.stock_client import Job
from benchmarks.targets import Target, cpu_seconds, create_topic, delete_topic, empty_page_cache

KB = 1024
RECORD_BYTES = (100, 1000)
BATCH_BYTES = (16 * KB, 64 * KB, 1024 * KB)
PARTITIONS = (1, 6)
ACKS = ("0", "1", "all")
_GRACE_S = 180.0
"""Maximum time, in seconds, that a run may take beyond its load."""


class CaseError(RuntimeError):
    """A run failed; the message contains the load generator's output."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the result. `client` is librdkafka or raw; `kind` produce, fetch, tail_fetch or cold_fetch."""

    client: str
    kind: str
    record_bytes: int
    batch_bytes: int
    partitions: int
    acks: str

    @property
    def name(self) -> str:
        """Name in the first column and in the JSON."""
        parts = [self.client, self.kind.replace("_", " "), f"{self.record_bytes} B", _size(self.batch_bytes)]
        parts.append(f"{self.partitions} partition{'s' if self.partitions > 1 else ''}")
        if self.kind == "produce":
            parts.append(f"acks={self.acks}")
        return ", ".join(parts)


def _size(number: int) -> str:
    return f"{number // (KB * KB)} MB" if number >= KB * KB else f"{number // KB} KB"


def raw_cases() -> list[Case]:
    """Cases measured with raw sockets: the broker is the limit."""
    produce = [
        Case("raw", "produce", raw_client.RECORD_BYTES, batch_bytes, partitions, "1")
        for batch_bytes, partitions in itertools.product(BATCH_BYTES, PARTITIONS)
    ]
    return produce + [
        Case("raw", "fetch", raw_client.RECORD_BYTES, batch_bytes, 1, "1") for batch_bytes in BATCH_BYTES
    ]


def librdkafka_cases() -> list[Case]:
    """Cases measured with librdkafka, as an application sees them."""
    shapes = list(itertools.product(RECORD_BYTES, BATCH_BYTES, PARTITIONS))
    produce = [Case("librdkafka", "produce", *shape, acks) for shape in shapes for acks in ACKS]
    fetch = [
        Case("librdkafka", kind, *shape, "1") for kind in ("tail_fetch", "cold_fetch") for shape in shapes
    ]
    return produce + fetch


def quick_cases() -> list[Case]:
    """A few representative cases."""
    return [
        Case("raw", "produce", raw_client.RECORD_BYTES, 16 * KB, 1, "1"),
        Case("raw", "produce", raw_client.RECORD_BYTES, 1024 * KB, 1, "1"),
        Case("raw", "fetch", raw_client.RECORD_BYTES, 64 * KB, 1, "1"),
        Case("librdkafka", "produce", 100, 64 * KB, 6, "all"),
        Case("librdkafka", "produce", 1000, 1024 * KB, 1, "all"),
        Case("librdkafka", "tail_fetch", 1000, 64 * KB, 1, "1"),
        Case("librdkafka", "cold_fetch", 1000, 1024 * KB, 1, "1"),
    ]


def run(case: Case, target: Target, topic: str, seconds: float, replicas: int = 1) -> Result:
    """Run a case once, on a new topic. Raises `CaseError`."""
    create_topic(target, topic, case.partitions, replicas)
    try:
        if case.client == "raw":
            return _run_raw(case, target, topic, seconds)
        return _run_stock(case, target, topic, seconds)
    finally:
        delete_topic(target, topic)


def _run_raw(case: Case, target: Target, topic: str, seconds: float) -> Result:
    host, port = target.first_address
    window = 4 if case.batch_bytes >= 1024 * KB else 16
    job = RawJob(case.kind, host, port, topic, case.partitions, case.batch_bytes, window, seconds)
    return _measured(target, "benchmarks.raw_client", raw_client.job_json(job), seconds)


def _run_stock(case: Case, target: Target, topic: str, seconds: float) -> Result:
    job = Job(
        kind=case.kind,
        bootstrap=target.bootstrap,
        topic=topic,
        partitions=case.partitions,
        record_bytes=case.record_bytes,
        batch_bytes=case.batch_bytes,
        acks=case.acks,
        seconds=seconds,
    )
    if case.kind == "cold_fetch":
        written = run_load(
            "benchmarks.stock_client", stock_client.job_json(replace(job, kind="produce")), seconds
        )
        empty_page_cache(target, topic)
        job = replace(job, records=written.records)
    return _measured(target, "benchmarks.stock_client", stock_client.job_json(job), seconds)


def _measured(target: Target, module: str, job: str, seconds: float) -> Result:
    before = cpu_seconds(target.pids)
    result = run_load(module, job, seconds)
    after = cpu_seconds(target.pids)
    if before is None or after is None:
        return result
    return replace(result, broker_cpu_seconds=after - before)


def run_load(module: str, job: str, seconds: float) -> Result:
    """Run a load generator in its own process, so that it shares Python's global lock with no other code."""
    command: Sequence[str] = [sys.executable, "-m", module, job]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds + _GRACE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CaseError(f"{module} did not end within {seconds + _GRACE_S:.0f} s") from None
    if done.returncode != 0:
        raise CaseError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{module} failed")
    return from_json(done.stdout.strip().splitlines()[-1])
