"""The compiled load of the benchmarks: builds `load_generator.c` when it is first used, hands over plans and
reads results.

A plan has groups of connections, each with whole requests that are encoded beforehand, so that the
generator only sends and counts. `LoadResult.generator_cpu_share` shows whether the generator itself was the
limit: it has one thread, so with a share near 1 the figures are its own, not the broker's.

For a look at a running broker:
python -m benchmarks.load_generator HOST:PORT TOPIC --produce 16384 --connections 8 --in-flight 4
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.load_error import LoadError
from benchmarks.raw_client import batch_of, build_batch, fetch_frame, produce_frame
from benchmarks.results import MB, print_json
from benchmarks.targets import Target

SOURCE = Path(__file__).with_suffix(".c")
PARTS = ("load_generator.c", "load_connection.h", "load_plan.h", "load_histogram.h")
"""All files that the program is made of: it is built anew when one of them changes."""
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
_COMPILE_TIMEOUT_S = 120.0
_GRACE_S = 120.0
"""Seconds that a run may take beyond its plan: connecting, and the answers to the last requests."""
_NO_OFFSET = 0x5EED_0FF5_E700_0000
"""An offset that no topic reaches, to find its place in an encoded request."""


@dataclass(frozen=True, slots=True)
class LoadGroup:
    """Connections to one broker with the same kind of load. Groups of the same name are one load on several
    brokers, and have one result.

    `kind` is
    - closed: `in_flight` requests always wait for an answer on each connection;
    - paced: `rate` requests a second on all connections together, sent when they are due, however many
      still wait; latency counts from when a request was due;
    - tail: each connection has one long-poll fetch at the end of the partition, from offset `start` on;
      latency is from when the one paced connection of the plan sent a batch until a consumer has it;
    - catch_up: each connection reads the partition from `start` to `end` once;
    - idle: connections without requests.

    `frames` are sent in a cycle. They all name `topic`, have one partition each, and batches of `batch_bytes`
    and `batch_records` records. A consumer's own offset is written into its one fetch.
    """

    name: str
    kind: str
    address: tuple[str, int]
    connections: int
    topic: str = ""
    frames: Sequence[bytes] = ()
    is_fetch: bool = False
    in_flight: int = 1
    rate: float = 0.0
    start: int = 0
    end: int = 0
    batch_bytes: int = 1
    batch_records: int = 1


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to do at the same time, for `seconds` after a warm-up that is not counted. `pids` are the brokers'
    processes, whose processor time is wanted. With `discard`, the system drops received records instead of
    copying them. Without any answer for `silence_s`, the run fails."""

    groups: Sequence[LoadGroup]
    seconds: float
    warm_up_s: float = 0.0
    pids: Sequence[int] = ()
    discard: bool = False
    silence_s: float = 30.0


@dataclass(frozen=True, slots=True)
class LatencyPercentiles:
    """Percentiles in milliseconds, at most 0.8 % too high; 0 without samples."""

    count: int = 0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What one load did in the counted time. Bytes are those of whole batches. `requests_total` counts
    those of the warm-up too. `lateness` is how late the generator itself sent a paced request;
    `longest_pause_ms` the longest time between two answers while a request waited, at most up to
    the end of that time."""

    name: str
    connections: int
    requests: int
    requests_total: int
    bytes: int
    batches: int
    finished: int
    longest_pause_ms: float
    latency: LatencyPercentiles
    lateness: LatencyPercentiles


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a plan. `generator_cpu_share` is the generator's processor time per second."""

    seconds: float
    broker_user_seconds: float
    broker_system_seconds: float
    generator_cpu_share: float
    groups: dict[str, GroupResult] = field(default_factory=dict)

    @property
    def broker_cpu_seconds(self) -> float:
        return self.broker_user_seconds + self.broker_system_seconds

    def requests_per_second(self, name: str) -> float:
        return self.groups[name].requests / self.seconds

    def mb_per_second(self, name: str) -> float:
        return self.groups[name].bytes / MB / self.seconds


def program() -> Path:
    """The compiled generator, from the user's cache or built now. Raises LoadError without a C compiler."""
    source = b"".join(SOURCE.with_name(name).read_bytes() for name in PARTS)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-benchmarks"
    compiled = cache / f"load_generator-{hashlib.sha256(source).hexdigest()[:16]}"
    if compiled.exists():
        return compiled
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise LoadError("the load generator needs a C compiler: install cc, or set CC")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        built = Path(directory) / "load_generator"
        done = subprocess.run(
            [compiler, *_FLAGS, "-o", str(built), str(SOURCE)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise LoadError(f"{SOURCE.name} was not compiled:\n{done.stderr[-3000:]}")
        built.replace(compiled)
    return compiled


def run(plan: LoadPlan) -> LoadResult:
    """Carry out a plan. Raises LoadError, with the generator's message, on any error of a broker, a
    connection or the plan."""
    with tempfile.TemporaryDirectory(prefix="holdfast-load-") as directory:
        plan_path, frames_path = Path(directory) / "plan", Path(directory) / "frames"
        with open(frames_path, "wb") as frames:
            plan_path.write_text("\n".join(_lines(plan, frames)) + "\n")
        try:
            done = subprocess.run(
                [str(program()), str(plan_path), str(frames_path)],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=plan.seconds + plan.warm_up_s + plan.silence_s + _GRACE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise LoadError(f"the load generator did not end within {error.timeout:.0f} s") from None
    if done.returncode != 0:
        raise LoadError(done.stderr.strip() or f"the load generator ended with status {done.returncode}")
    return _result(json.loads(done.stdout))


def _lines(plan: LoadPlan, frames: Any) -> list[str]:
    """The lines of the plan's file, and the frames into theirs."""
    head = [f"seconds {plan.seconds}", f"warm_up {plan.warm_up_s}", f"silence {plan.silence_s}"]
    head += ["discard"] if plan.discard else []
    head += [f"pid {pid}" for pid in plan.pids]
    frame_lines: list[str] = []
    group_lines: list[str] = []
    for group in plan.groups:
        first = len(frame_lines)
        for frame in group.frames:
            frame_lines.append(f"frame {frames.tell()} {len(frame)}")
            frames.write(frame)
        host, port = group.address
        api = "fetch" if group.is_fetch else "produce"
        offset_at = _offset_at(group.topic) if group.is_fetch else 0
        group_lines.append(
            f"group {group.name} {group.kind} {api} {group.connections} {host} {port} {first} "
            f"{len(group.frames)} {group.in_flight} {len(group.topic)} {group.rate} {offset_at} "
            f"{group.start} {group.end} {group.batch_bytes} {group.batch_records}"
        )
    return head + frame_lines + group_lines


def _offset_at(topic: str) -> int:
    """Where the offset is in a Fetch request as `fetch_frame` encodes it."""
    return fetch_frame(topic, _NO_OFFSET, 1).index(_NO_OFFSET.to_bytes(8))


def _result(values: dict[str, Any]) -> LoadResult:
    groups = {
        group["name"]: GroupResult(
            **{
                **group,
                "latency": LatencyPercentiles(**group["latency"]),
                "lateness": LatencyPercentiles(**group["lateness"]),
            }
        )
        for group in values["groups"]
    }
    return LoadResult(**{**values, "groups": groups})


def end_offsets(target: Target, topic: str, partitions: int) -> int:
    """The sum of the log end offsets of a topic's partitions, to check what a load has written."""
    admin = AdminClient(
        {"bootstrap.servers": target.bootstrap, "broker.address.family": "v4", "log_level": 3}
    )
    spec: Any = OffsetSpec
    latest = {TopicPartition(topic, number): spec.latest() for number in range(partitions)}
    return sum(found.result(60).offset for found in admin.list_offsets(latest).values())


def summarize(nanoseconds: Sequence[int]) -> LatencyPercentiles:
    """The generator's own summary of these samples, for its test."""
    text = "\n".join(map(str, nanoseconds))
    done = subprocess.run(
        [str(program()), "percentiles"], input=text, capture_output=True, text=True, check=True, timeout=60
    )
    return LatencyPercentiles(**json.loads(done.stdout))


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.argument("topic")
@click.option("--produce", metavar="BYTES", type=int, help="Produce batches of so many bytes.")
@click.option("--fetch", metavar="BYTES", type=int, help="Fetch the batch at offset 0, of so many bytes.")
@click.option(
    "--partitions", default=1, show_default=True, help="Partitions of the topic, all on this broker."
)
@click.option("--connections", default=1, show_default=True)
@click.option("--in-flight", default=1, show_default=True, help="Requests in flight on each connection.")
@click.option("--rate", default=0.0, help="Requests a second, sent when due. [default: as fast as answered]")
@click.option("--acks", type=click.Choice(["1", "all"]), default="1", show_default=True)
@click.option("--seconds", default=3.0, show_default=True)
@click.option(
    "--pid", "pids", type=int, multiple=True, help="A process of the broker, for its processor time."
)
def main(
    address: str,
    topic: str,
    produce: int | None,
    fetch: int | None,
    partitions: int,
    connections: int,
    in_flight: int,
    rate: float,
    acks: str,
    seconds: float,
    pids: tuple[int, ...],
) -> None:
    """Put a load on one broker, and print the result as JSON. The topic must exist."""
    size = produce or fetch
    if size is None or (produce and fetch):
        raise click.UsageError("give either --produce or --fetch")
    # Less than 1100 bytes are one record: a batch has a header of 61 bytes.
    batch, records = (batch_of(1, size), 1) if size < 1100 else build_batch(size)
    if produce:
        acks_number = -1 if acks == "all" else 1
        frames = [produce_frame(topic, number, batch, acks=acks_number) for number in range(partitions)]
    else:
        frames = [fetch_frame(topic, 0, len(batch), partition=number) for number in range(partitions)]
    host, _, port = address.rpartition(":")
    group = LoadGroup(
        "load",
        "paced" if rate else "closed",
        (host, int(port)),
        connections,
        topic,
        frames,
        is_fetch=fetch is not None,
        in_flight=in_flight,
        rate=rate,
        batch_bytes=len(batch),
        batch_records=records,
    )
    try:
        result = run(LoadPlan([group], seconds, min(1.0, seconds / 4), pids))
    except LoadError as error:
        raise click.ClickException(str(error)) from None
    load = result.groups["load"]
    requests = max(1, load.requests)
    print_json(
        {
            "requests_per_second": round(load.requests / result.seconds),
            "mb_per_second": round(result.mb_per_second("load"), 1),
            "p50_ms": load.latency.p50_ms,
            "p99_ms": load.latency.p99_ms,
            "p999_ms": load.latency.p999_ms,
            "max_ms": load.latency.max_ms,
            "longest_pause_ms": load.longest_pause_ms,
            "broker_cpu_us_per_request": round(result.broker_cpu_seconds / requests * 1e6, 1)
            if pids
            else None,
            "generator_cpu_share": result.generator_cpu_share,
        }
    )


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.load_generator")
