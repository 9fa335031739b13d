"""Measures how exactly client quotas hold, and what they cost others: python -m benchmarks.quotas --help.

Five clients use a broker as fast as it lets them, each with a quota; some ignore the throttle times that they
are sent. A sixth client has no quota: its rate is compared with its rate alone. At last the time that a new
quota needs to take effect on every broker is measured. Ends with one line of JSON.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.load_error import LoadError
from benchmarks.raw_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    build_batch,
    fetch_frame,
    produce_frame,
    read_frame,
)
from benchmarks.results import print_json, print_table
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, ClientQuotaEntity, NewTopic
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.produce import ProduceRequest

_BROKERS = 3
_TOPIC = "load"
_PROBES = "probes"
_TIMEOUT_S = 120.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """A client that sends its next request at once, or after the throttle time if it `obeys`."""

    name: str
    kind: str
    bytes_per_s: int
    batch_bytes: int
    obeys: bool
    connections: int = 1

    @property
    def key(self) -> str:
        return "producer_byte_rate" if self.kind == "produce" else "consumer_byte_rate"

    def __str__(self) -> str:
        manner = "obeys" if self.obeys else "ignores throttle times"
        plural = f", {self.connections} connections" if self.connections > 1 else ""
        return f"{self.name}: {self.kind}, {self.batch_bytes // 1024} KB a request, {manner}{plural}"


LOADS = (
    Load("client-1", "produce", 200_000, 16 * 1024, True),
    Load("client-2", "produce", 400_000, 64 * 1024, False),
    Load("client-3", "produce", 800_000, 16 * 1024, True, connections=3),
    Load("client-4", "fetch", 600_000, 64 * 1024, True),
    Load("client-5", "fetch", 1_200_000, 256 * 1024, False),
)
FREE = Load("free", "fetch", 0, 64 * 1024, True)


@click.command()
@click.option(
    "--seconds", default=60.0, show_default=True, help="Seconds for which all clients run together."
)
@click.option(
    "--rounds",
    default=10,
    show_default=True,
    help="How often the client without a quota runs alone, and beside the others.",
)
@click.option(
    "--round-seconds", default=3.0, show_default=True, help="Seconds of each of its runs, alone or beside."
)
@click.option("--changes", default=5, show_default=True, help="Number of new quotas whose effect is timed.")
def main(seconds: float, rounds: int, round_seconds: float, changes: int) -> None:
    """Measure the rates of five clients with quotas and of one without, and the time until a new quota is in
    force on three brokers."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
    try:
        with LocalCluster(directory / "cluster", brokers=_BROKERS) as cluster:
            report = measure(cluster, seconds, rounds, round_seconds, changes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print_json(report)


def measure(
    cluster: LocalCluster, seconds: float, rounds: int, round_seconds: float, changes: int
) -> dict[str, Any]:
    """Run all parts and print their tables. Returns the values for the line of JSON."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(_TOPIC, partitions=1), NewTopic(_PROBES, partitions=_BROKERS)])
        addresses = _leaders(admin, _TOPIC, 1)
        admin.alter_client_quotas(
            {ClientQuotaEntity.of(client_id=load.name): {load.key: load.bytes_per_s} for load in LOADS}
        )
        _fill(addresses[0])
        together = rates(addresses[0], [*LOADS, FREE], seconds)
        pairs = [_free_rates(addresses[0], round_seconds, number) for number in range(rounds)]
        effects_ms = [_effects_ms(admin, number) for number in range(changes)]
    print_table(
        f"Rates over {seconds:g} s",
        ["client", "KB/s", "quota KB/s", "rate / quota"],
        [
            [
                str(load),
                f"{together[load.name] / 1000:.1f}",
                f"{load.bytes_per_s / 1000:.0f}",
                f"{together[load.name] / load.bytes_per_s:.3f}",
            ]
            for load in LOADS
        ],
    )
    ratios = sorted(beside / alone for alone, beside in pairs)
    print_table(
        f"The client without a quota, in runs of {round_seconds:g} s",
        ["runs", "alone KB/s", "beside the others KB/s", "beside / alone", "lowest", "highest"],
        [
            [
                str(2 * rounds),
                f"{median(alone for alone, _ in pairs) / 1000:.0f}",
                f"{median(beside for _, beside in pairs) / 1000:.0f}",
                f"{median(ratios):.3f}",
                f"{ratios[0]:.3f}",
                f"{ratios[-1]:.3f}",
            ]
        ],
    )
    print_table(
        "Time until a new quota is in force, in ms",
        ["change", *(f"broker {number}" for number in range(1, _BROKERS + 1))],
        [[str(number), *(f"{each:.0f}" for each in row)] for number, row in enumerate(effects_ms, start=1)],
    )
    return {
        "benchmark": "quotas",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "seconds": seconds,
        "rate_over_quota": {load.name: round(together[load.name] / load.bytes_per_s, 4) for load in LOADS},
        "free_over_alone": round(median(ratios), 3),
        "free_over_alone_of_each_round": [round(ratio, 3) for ratio in ratios],
        "effect_ms_max": round(max(max(row) for row in effects_ms), 1),
    }


def _free_rates(address: tuple[str, int], seconds: float, number: int) -> tuple[float, float]:
    """The rates of the client without a quota: alone, and beside the others. Every other round begins with
    the others, so that a machine that becomes slower or faster favours neither."""
    loads = ([FREE], [*LOADS, FREE])
    order = loads if number % 2 == 0 else loads[::-1]
    measured = [rates(address, each, seconds)[FREE.name] for each in order]
    alone, beside = measured if number % 2 == 0 else measured[::-1]
    return alone, beside


# -- rates -------------------------------------------------------------------------------------------------


def rates(address: tuple[str, int], loads: Sequence[Load], seconds: float) -> dict[str, float]:
    """Run all loads at once. Returns the bytes per second that each has got through. Raises `LoadError`."""
    until = time.monotonic() + seconds
    counts = {load.name: [0] * load.connections for load in loads}
    failures: list[str] = []

    def run(load: Load, number: int) -> None:
        try:
            counts[load.name][number] = _use(address, load, until)
        except (OSError, LoadError) as error:
            failures.append(f"{load.name}: {error}")

    threads = [
        threading.Thread(target=run, args=(load, number), daemon=True)
        for load in loads
        for number in range(load.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + _TIMEOUT_S)
    if failures:
        raise LoadError("; ".join(failures))
    return {name: sum(each) / seconds for name, each in counts.items()}


def _use(address: tuple[str, int], load: Load, until: float) -> int:
    """Send requests one after the other. Returns the bytes of those that were answered by then: of the
    requests, or of the records fetched."""
    total = 0
    with _connected(address) as connection:
        frame = _frame(load)
        while (now := time.monotonic()) < until:
            connection.sendall(frame)
            size, throttle_ms = _answer(connection, load, frame)
            if time.monotonic() <= until:
                total += size
            if load.obeys and throttle_ms:
                time.sleep(max(0.0, min(throttle_ms / 1000, until - now)))
    return total


def _frame(load: Load) -> bytes:
    if load.kind == "fetch":
        return fetch_frame(_TOPIC, 0, load.batch_bytes, load.name)
    return produce_frame(_TOPIC, 0, build_batch(load.batch_bytes)[0], load.name)


def _answer(connection: socket.socket, load: Load, frame: bytes) -> tuple[int, int]:
    """The bytes that the answered request counts for, and its throttle time in ms. Raises `LoadError`."""
    answer = read_frame(connection)
    partition: Any
    if load.kind == "fetch":
        fetched = decode_response(FetchRequest, FETCH_VERSION, answer)
        (partition,) = fetched.responses[0].partitions
        size, throttle_ms = len(partition.records or b""), fetched.throttle_time_ms
    else:
        produced = decode_response(ProduceRequest, PRODUCE_VERSION, answer)
        (partition,) = produced.responses[0].partition_responses
        size, throttle_ms = len(frame) - SIZE.size, produced.throttle_time_ms
    if partition.error_code:
        raise LoadError(f"{load.kind} failed: {ErrorCode(partition.error_code).name}")
    return size, throttle_ms


def _fill(address: tuple[str, int]) -> None:
    """Write the batches that the consumers read again and again."""
    with _connected(address) as connection:
        load = Load("filler", "produce", 0, 16 * 1024, True)
        frame = _frame(load)
        for _ in range(64):
            connection.sendall(frame)
            _answer(connection, load, frame)


def _connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# -- effect of a change ------------------------------------------------------------------------------------


def _effects_ms(admin: Admin, number: int) -> list[float]:
    """Set a quota. Returns the time in ms until each broker throttles by it. Raises `LoadError`."""
    client_id = f"probe-{number}"
    batch, _ = build_batch(2048)
    addresses = _leaders(admin, _PROBES, _BROKERS)
    found: dict[int, float] = {}
    began = threading.Event()
    begun_at: list[float] = []

    def probe(partition: int) -> None:
        frame = produce_frame(_PROBES, partition, batch, client_id)
        with _connected(addresses[partition]) as connection:
            connection.sendall(frame)
            read_frame(connection)
            began.wait()
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline:
                connection.sendall(frame)
                answer = decode_response(ProduceRequest, PRODUCE_VERSION, read_frame(connection))
                if answer.throttle_time_ms:
                    found[partition] = (time.monotonic() - begun_at[0]) * 1000
                    return
                time.sleep(0.001)

    threads = [threading.Thread(target=probe, args=(index,), daemon=True) for index in range(_BROKERS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    begun_at.append(time.monotonic())
    began.set()
    admin.alter_client_quotas({ClientQuotaEntity.of(client_id=client_id): {"producer_byte_rate": 1}})
    for thread in threads:
        thread.join(_PATIENCE_S + _TIMEOUT_S)
    if len(found) < _BROKERS:
        raise LoadError(f"after {_PATIENCE_S:g} s only {len(found)} brokers throttle by a new quota")
    return [found[index] for index in range(_BROKERS)]


def _leaders(admin: Admin, topic: str, partitions: int) -> list[tuple[str, int]]:
    """The addresses of the partitions' leaders."""
    nodes = {node.id: (node.host, node.port) for node in admin.describe_cluster().nodes}
    (described,) = admin.describe_topics([topic])
    leaders = {each.partition: each.leader for each in described.partitions}
    return [nodes[leaders[index]] for index in range(partitions)]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.quotas")
