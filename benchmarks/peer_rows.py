"""The loads of `benchmarks.peers`: what each one does to a system, and which figures it yields."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks import load_generator, stock_client
from benchmarks.cases import run_load
from benchmarks.load_error import LoadError
from benchmarks.load_generator import LoadGroup, LoadPlan, LoadResult
from benchmarks.peer_systems import PeerSystem, leaders
from benchmarks.peer_topics import FIRST_OFFSET, topic_on, write
from benchmarks.raw_client import RECORD_BYTES, batch_of, build_batch, fetch_frame, produce_frame
from benchmarks.results import MB
from benchmarks.stock_client import Job
from benchmarks.targets import cpu_seconds

KB = 1024
Figures = Mapping[str, float]
"""Figures of one run by their key in `UNITS`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a figure is called, and whether less of it is better."""

    name: str
    is_less_better: bool = False


UNITS = {
    "requests": Unit("requests/s"),
    "records": Unit("records/s"),
    "mb": Unit("MB/s"),
    "p50": Unit("p50, ms", True),
    "p99": Unit("p99, ms", True),
    "p999": Unit("p99.9, ms", True),
    "max": Unit("max, ms", True),
    "pause": Unit("longest pause, ms", True),
    "cpu_request": Unit("CPU, µs a request", True),
    "cpu_gb": Unit("CPU, s a GB", True),
    "memory": Unit("MB", True),
    "generator": Unit("CPU of the generator, share of a core", True),
    "late": Unit("p99 of how late the generator sent what was due, ms", True),
}

PAGE_CACHED_BYTES = 1 << 30
_FETCHED_BATCHES = 64
"""Batches of each partition that fetches cycle through."""
_FETCH_BYTES = 1 << 20
_MAX_WAIT_MS = 500
_KEPT_FROM = 100
"""From so many partitions on, a topic serves all rounds: making it takes longer than measuring."""
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run, and of its part before, which is not counted."""

    seconds: float
    warm_up_s: float


class PeerRow(Protocol):
    """One load. `shown` are the figures of the table; `brokers` the number that a system needs."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def shown(self) -> tuple[str, ...]: ...
    @property
    def brokers(self) -> int: ...

    def prepared(self, system: PeerSystem) -> contextlib.AbstractContextManager[str]:
        """What all rounds need: a topic's name, or "" if each round has its own."""

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        """Put the load on the system once. Raises LoadError on any error."""


def _figures(load: LoadResult, name: str) -> dict[str, float]:
    """The figures of a load in a plan."""
    done = load.groups[name]
    if done.requests == 0:
        raise LoadError("no request was answered in the counted time")
    latency = done.latency
    return {
        "requests": done.requests / load.seconds,
        "mb": done.bytes / MB / load.seconds,
        "p50": latency.p50_ms,
        "p99": latency.p99_ms,
        "p999": latency.p999_ms,
        "max": latency.max_ms,
        "pause": done.longest_pause_ms,
        "cpu_request": load.broker_cpu_seconds / done.requests * 1e6,
        "cpu_gb": load.broker_cpu_seconds / (done.bytes / MB / 1000),
        "generator": load.generator_cpu_share,
        "late": done.lateness.p99_ms,
    }


def _plan(system: PeerSystem, groups: list[LoadGroup], timing: Timing) -> LoadPlan:
    return LoadPlan(groups, timing.seconds, timing.warm_up_s, system.pids, silence_s=_SILENCE_S)


def _shares(total: int, parts: int) -> list[int]:
    """`total` in parts as equal as possible, none of them 0."""
    return [max(1, total // parts + (number < total % parts)) for number in range(parts)]


@dataclass(frozen=True, slots=True)
class ProduceRow:
    """Batches of `batch_bytes`, or of one record of `record_bytes`. With `rate`, so many requests a second
    are sent when they are due, instead of as fast as they are answered."""

    name: str
    title: str
    connections: int
    in_flight: int = 1
    batch_bytes: int = 0
    record_bytes: int = 0
    partitions: int = 8
    acks: int = 1
    rate: float = 0.0
    idle: int = 0
    brokers: int = 1
    shown: tuple[str, ...] = ("requests", "cpu_request")

    @contextlib.contextmanager
    def prepared(self, system: PeerSystem) -> Iterator[str]:
        if self.partitions < _KEPT_FROM:
            yield ""
            return
        with topic_on(system, self.partitions, self.brokers) as topic:
            yield topic

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        with contextlib.ExitStack() as stack:
            topic = prepared or stack.enter_context(topic_on(system, self.partitions, self.brokers))
            led = leaders(system, topic, self.brokers)
            batch, records = (
                build_batch(self.batch_bytes) if self.batch_bytes else (batch_of(1, self.record_bytes), 1)
            )
            groups = [
                LoadGroup(
                    "load",
                    "paced" if self.rate else "closed",
                    address,
                    connections,
                    topic,
                    [produce_frame(topic, number, batch, acks=self.acks) for number in partitions],
                    in_flight=self.in_flight,
                    rate=self.rate / len(led),
                    batch_bytes=len(batch),
                    batch_records=records,
                )
                for (address, partitions), connections in zip(
                    led.items(), _shares(self.connections, len(led)), strict=True
                )
            ]
            if self.idle:
                groups.append(LoadGroup("idle", "idle", next(iter(led)), self.idle))
            before = load_generator.end_offsets(system.target, topic, self.partitions)
            load = load_generator.run(_plan(system, groups, timing))
            grown = load_generator.end_offsets(system.target, topic, self.partitions) - before
        sent = load.groups["load"].requests_total * records
        if grown != sent:
            raise LoadError(f"{sent} records were sent, and the log grew by {grown}")
        return _figures(load, "load")


@dataclass(frozen=True, slots=True)
class FetchRow:
    """Fetches of one batch each, from the page cache."""

    name: str
    title: str
    connections: int
    in_flight: int
    batch_bytes: int
    partitions: int = 8
    brokers: int = 1
    shown: tuple[str, ...] = ("mb", "cpu_request")

    @contextlib.contextmanager
    def prepared(self, system: PeerSystem) -> Iterator[str]:
        with topic_on(system, self.partitions) as topic:
            write(system, topic, build_batch(self.batch_bytes)[0], _FETCHED_BATCHES * self.partitions)
            yield topic

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        batch, records = build_batch(self.batch_bytes)
        led = leaders(system, prepared)
        groups = [
            LoadGroup(
                "load",
                "closed",
                address,
                connections,
                prepared,
                [
                    fetch_frame(prepared, FIRST_OFFSET + place * records, len(batch), partition=number)
                    for place in range(_FETCHED_BATCHES)
                    for number in partitions
                ],
                is_fetch=True,
                in_flight=self.in_flight,
                batch_bytes=len(batch),
                batch_records=records,
            )
            for (address, partitions), connections in zip(
                led.items(), _shares(self.connections, len(led)), strict=True
            )
        ]
        return _figures(load_generator.run(_plan(system, groups, timing)), "load")


@dataclass(frozen=True, slots=True)
class CatchUpRow:
    """Consumers that start at the same time and read one partition each from its start to its end, once. A
    run that takes longer than ten times its seconds ends before."""

    name: str
    title: str
    consumers: int
    partitions: int = 8
    brokers: int = 1
    shown: tuple[str, ...] = ("mb", "cpu_gb")

    @contextlib.contextmanager
    def prepared(self, system: PeerSystem) -> Iterator[str]:
        with topic_on(system, self.partitions) as topic:
            batch, _ = build_batch(64 * KB)
            write(system, topic, batch, self._batches_each(batch) * self.partitions)
            yield topic

    def _batches_each(self, batch: bytes) -> int:
        return PAGE_CACHED_BYTES // len(batch) // self.partitions

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        batch, records = build_batch(64 * KB)
        addresses = {
            number: address for address, numbers in leaders(system, prepared).items() for number in numbers
        }
        groups = [
            LoadGroup(
                "load",
                "catch_up",
                addresses[number],
                consumers,
                prepared,
                [fetch_frame(prepared, 0, _FETCH_BYTES, partition=number, max_wait_ms=_MAX_WAIT_MS)],
                is_fetch=True,
                start=FIRST_OFFSET,
                end=FIRST_OFFSET + self._batches_each(batch) * records,
                batch_bytes=len(batch),
                batch_records=records,
            )
            for number, consumers in enumerate(_shares(self.consumers, self.partitions))
        ]
        load = load_generator.run(_plan(system, groups, Timing(timing.seconds * 10, 0.0)))
        return _figures(load, "load")


@dataclass(frozen=True, slots=True)
class TailRow:
    """Consumers that wait at the end of one partition, to which batches of 16 KB are appended at a rate."""

    name: str
    title: str
    consumers: int
    rate: float
    brokers: int = 1
    shown: tuple[str, ...] = ("p50", "p99", "p999", "max", "cpu_gb")

    @contextlib.contextmanager
    def prepared(self, system: PeerSystem) -> Iterator[str]:
        yield ""

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        batch, records = build_batch(16 * KB)
        with topic_on(system, 1) as topic:
            (address,) = leaders(system, topic)
            fetch = fetch_frame(topic, 0, _FETCH_BYTES, max_wait_ms=_MAX_WAIT_MS)
            tails = LoadGroup(
                "load",
                "tail",
                address,
                self.consumers,
                topic,
                [fetch],
                is_fetch=True,
                start=FIRST_OFFSET,
                batch_bytes=len(batch),
                batch_records=records,
            )
            appends = LoadGroup(
                "appends",
                "paced",
                address,
                1,
                topic,
                [produce_frame(topic, 0, batch)],
                rate=self.rate,
                batch_bytes=len(batch),
                batch_records=records,
            )
            load = load_generator.run(_plan(system, [tails, appends], timing))
        return {**_figures(load, "load"), "late": load.groups["appends"].lateness.p99_ms}


@dataclass(frozen=True, slots=True)
class LibrdkafkaRow:
    """What an application sees: librdkafka produces with acks=all, or reads from the page cache."""

    name: str
    title: str
    kind: str
    record_bytes: int
    batch_bytes: int
    partitions: int = 6
    brokers: int = 1
    shown: tuple[str, ...] = ("records", "cpu_gb")

    @contextlib.contextmanager
    def prepared(self, system: PeerSystem) -> Iterator[str]:
        if self.kind == "produce":
            yield ""
            return
        with topic_on(system, self.partitions) as topic:
            batch, _ = build_batch(self.batch_bytes)
            write(system, topic, batch, self._batches(batch))
            yield topic

    def _batches(self, batch: bytes) -> int:
        return PAGE_CACHED_BYTES // len(batch) // self.partitions * self.partitions

    def run(self, system: PeerSystem, prepared: str, timing: Timing) -> Figures:
        with contextlib.ExitStack() as stack:
            topic = prepared or stack.enter_context(topic_on(system, self.partitions, self.brokers))
            batch, batch_records = build_batch(self.batch_bytes)
            job = Job(
                kind="produce" if self.kind == "produce" else "cold_fetch",
                bootstrap=system.bootstrap,
                topic=topic,
                partitions=self.partitions,
                record_bytes=self.record_bytes,
                batch_bytes=self.batch_bytes,
                acks="all",
                seconds=timing.seconds,
                records=self._batches(batch) * batch_records if prepared else 0,
            )
            before = cpu_seconds(system.pids)
            result = run_load("benchmarks.stock_client", stock_client.job_json(job), timing.seconds)
            after = cpu_seconds(system.pids)
        assert before is not None and after is not None, "the system's processes are known"
        return {
            "records": result.records_per_second,
            "mb": result.mb_per_second,
            "cpu_gb": (after - before) / (result.bytes / MB / 1000),
        }


_PACED = ("p50", "p99", "p999", "max", "pause", "cpu_request")
ROWS: tuple[PeerRow, ...] = (
    ProduceRow("produce-16k-1x16", "Produce 16 KB, 1 connection, 16 in flight", 1, 16, 16 * KB),
    ProduceRow("produce-16k-8x4", "Produce 16 KB, 8 x 4", 8, 4, 16 * KB),
    ProduceRow("produce-16k-32x1", "Produce 16 KB, 32 x 1", 32, 1, 16 * KB),
    ProduceRow("produce-64k-8x4", "Produce 64 KB, 8 x 4", 8, 4, 64 * KB, shown=("mb", "cpu_request")),
    ProduceRow("produce-100b-32x1", "Produce 100 B, 32 x 1", 32, record_bytes=100),
    ProduceRow("produce-1k-1x1", "Produce 1 KB, 1 x 1", 1, record_bytes=RECORD_BYTES),
    ProduceRow("produce-1k-10x1", "Produce 1 KB, 10 x 1", 10, record_bytes=RECORD_BYTES),
    ProduceRow("produce-1k-100x1", "Produce 1 KB, 100 x 1", 100, record_bytes=RECORD_BYTES),
    ProduceRow("produce-1k-1000x1", "Produce 1 KB, 1,000 x 1", 1000, record_bytes=RECORD_BYTES),
    ProduceRow(
        "produce-1k-idle",
        "Produce 1 KB, 32 x 1, beside 1,000 idle connections",
        32,
        record_bytes=RECORD_BYTES,
        idle=1000,
    ),
    FetchRow("fetch-16k-8x4", "Fetch 16 KB, 8 x 4", 8, 4, 16 * KB),
    FetchRow("fetch-64k-8x4", "Fetch 64 KB, 8 x 4", 8, 4, 64 * KB),
    FetchRow("fetch-64k-1x16", "Fetch 64 KB, 1 x 16", 1, 16, 64 * KB),
    CatchUpRow("catch-up-50", "50 consumers catch up from the page cache", 50),
    CatchUpRow("catch-up-200", "200 consumers catch up from the page cache", 200),
    TailRow("tail-50-slow", "50 tail consumers, 81 MB/s", 50, 100),
    TailRow("tail-50-fast", "50 tail consumers, 406 MB/s", 50, 500),
    TailRow("tail-200", "200 tail consumers, 324 MB/s", 200, 100),
    ProduceRow(
        "paced",
        "Paced acks=all, 8,000 x 16 KB/s, 8 connections",
        8,
        batch_bytes=16 * KB,
        acks=-1,
        rate=8000,
        shown=_PACED,
    ),
    ProduceRow(
        "partitions-1", "Produce 1 KB, 32 x 1, to 1 partition", 32, record_bytes=RECORD_BYTES, partitions=1
    ),
    ProduceRow("partitions-100", "… to 100 partitions", 32, record_bytes=RECORD_BYTES, partitions=100),
    ProduceRow("partitions-1000", "… to 1,000 partitions", 32, record_bytes=RECORD_BYTES, partitions=1000),
    ProduceRow("partitions-5000", "… to 5,000 partitions", 32, record_bytes=RECORD_BYTES, partitions=5000),
    LibrdkafkaRow("librdkafka-produce-100b", "librdkafka produces 100 B, acks=all", "produce", 100, 64 * KB),
    LibrdkafkaRow(
        "librdkafka-produce-1k", "librdkafka produces 1 KB, acks=all", "produce", RECORD_BYTES, 1024 * KB
    ),
    LibrdkafkaRow(
        "librdkafka-consume-1k",
        "librdkafka consumes 1 KB from 6 partitions",
        "consume",
        RECORD_BYTES,
        64 * KB,
    ),
    ProduceRow(
        "replicated-16k-8x4",
        "Three replicas: produce 16 KB, 8 x 4, acks=all",
        8,
        4,
        16 * KB,
        partitions=12,
        acks=-1,
        brokers=3,
    ),
    LibrdkafkaRow(
        "replicated-librdkafka-1k",
        "Three replicas: librdkafka produces 1 KB, acks=all",
        "produce",
        RECORD_BYTES,
        1024 * KB,
        brokers=3,
    ),
)
