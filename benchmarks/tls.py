"""Compares TLS with plaintext, Holdfast's broker and Apache Kafka's: python -m benchmarks.tls --docs docs

Each broker has a listener without TLS and one with it; Holdfast's has a third, on which the kernel encrypts,
where it can. librdkafka writes records of one size with acks=all to one partition, and reads them back, over
each listener in turn. What it sends and receives is the same; the client's own TLS costs the same with both
brokers. Ends with one line of JSON.
"""

from __future__ import annotations

import contextlib
import os
import platform
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.apache_kafka import KAFKAS_OWN, VERSION, KafkaBroker, NoKafkaError
from benchmarks.peer_report import insert
from benchmarks.results import MB, print_json, print_table
from benchmarks.targets import Target, cpu_seconds, create_topic, delete_topic
from benchmarks.tls_report import (
    KERNEL,
    OURS,
    PEER,
    PROTOCOLS,
    Rates,
    TlsReport,
    as_json,
    headings,
    page_section,
    rows,
)
from holdfast_log.broker.network.tls.kernel import lacks
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.tools.zookeeper_process import HOST, ZooKeeperProcess, free_port

_WAIT_S = 300
_PAGE = "security.md"
_QUICK_MEGABYTES = 20


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A running broker, and the address of each of its listeners, by their names."""

    name: str
    addresses: dict[str, str]
    pid: int


@dataclass(frozen=True, slots=True)
class TlsEffort:
    """How much is written and read in each run, and how often. The first round, which is not counted, writes
    a third of it: Java compiles what is used often."""

    megabytes: int
    record_bytes: int
    rounds: int

    @property
    def count(self) -> int:
        return self.megabytes * MB // self.record_bytes


@click.command()
@click.option("--quick", is_flag=True, help=f"One round with {_QUICK_MEGABYTES} MB, in half a minute.")
@click.option(
    "--megabytes",
    default=300,
    show_default=True,
    type=click.IntRange(1),
    help="Values to write and read, in MB.",
)
@click.option(
    "--record-bytes",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="Size of a value in bytes.",
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds that count.")
@click.option("--kafka/--no-kafka", default=True, help="Whether to measure Apache Kafka beside it.")
@click.option(
    "--docs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Directory whose {_PAGE} gets the table.",
)
def main(quick: bool, megabytes: int, record_bytes: int, rounds: int, kafka: bool, docs: Path | None) -> None:
    """Measure TLS beside plaintext, Holdfast beside Apache Kafka. The default takes about five minutes."""
    effort = (
        TlsEffort(_QUICK_MEGABYTES, record_bytes, 1) if quick else TlsEffort(megabytes, record_bytes, rounds)
    )
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        certificate = self_signed(Path(directory))
        zookeeper = ZooKeeperProcess(Path(directory) / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.stop)
        zookeeper.wait_ready()
        connect = zookeeper.connect
        brokers = [stack.enter_context(_broker(Path(directory), OURS, connect, certificate))]
        if kafka:
            try:
                brokers.append(stack.enter_context(_broker(Path(directory), PEER, connect, certificate)))
            except NoKafkaError as error:
                click.echo(f"Apache Kafka is not measured: {error}")
        report = _measured(brokers, certificate, effort)
    print_table("Records over TLS and without it", headings(), rows(report))
    if docs is not None:
        insert(docs / _PAGE, page_section(report))
        click.echo(f"written to {docs / _PAGE}")
    print_json(as_json(report))


def _measured(brokers: Sequence[SecuredBroker], certificate: Path, effort: TlsEffort) -> TlsReport:
    """The brokers take turns; which one is first changes from round to round."""
    found: dict[tuple[str, str], list[Rates]] = {
        (broker.name, protocol): [] for broker in brokers for protocol in broker.addresses
    }
    for number in range(effort.rounds + 1):
        is_counted = number > 0
        count = effort.count if is_counted else max(1, effort.count // 3)
        for broker in brokers if number % 2 else reversed(brokers):
            for protocol in broker.addresses:
                topic = f"{broker.name}-{protocol}-{number}"
                rates = _measure(broker, protocol, topic, certificate, count, effort.record_bytes)
                if is_counted:
                    found[broker.name, protocol].append(rates)
                what = "" if is_counted else " (not counted)"
                click.echo(f"{topic}: {rates.produced:.0f} MB/s in, {rates.consumed:.0f} MB/s out{what}")
    return TlsReport(_conditions(effort, len(brokers) > 1), found)


def _conditions(effort: TlsEffort, has_peer: bool) -> str:
    beside = f", beside Apache Kafka {VERSION}" if has_peer else ""
    return (
        f"{effort.rounds} round{'s' if effort.rounds > 1 else ''} of {effort.megabytes} MB in records of "
        f"{effort.record_bytes:,} bytes{beside}, on {os.cpu_count()} cores ({platform.machine()}), Python "
        f"{platform.python_version()}, load average {os.getloadavg()[2]:.1f} over the last 15 minutes. Cells "
        "have the median of the rounds, and in parentheses the least and the largest; ratios are those of "
        "each round, with the 95 % interval of their median (with fewer than six rounds, the least and the "
        "largest)."
    )


def self_signed(directory: Path) -> Path:
    """A file with a key and a certificate for this machine's loopback address."""
    key, certificate, both = directory / "key.pem", directory / "certificate.pem", directory / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:{HOST} -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def trusting(certificate: Path) -> ssl.SSLContext:
    """A client's context that trusts what `self_signed` has made."""
    return ssl.create_default_context(cafile=str(certificate))


@contextlib.contextmanager
def _broker(directory: Path, name: str, connect: str, certificate: Path) -> Iterator[SecuredBroker]:
    settings: dict[str, Any] = {"broker_id": 1, "zookeeper_connect": f"{connect}/{name.lower()}"}
    broker: BackgroundBroker
    if name == PEER:
        broker = KafkaBroker(directory / name, java_options=KAFKAS_OWN, **settings)
    else:
        broker = BackgroundBroker(directory / name, **settings)
    secured = ["SSL", KERNEL] if name == OURS and lacks() is None else ["SSL"]
    ports = {each: free_port() for each in secured}
    for each, port in ports.items():
        broker.properties["listeners"] += f",{each}://{HOST}:{port}"
        broker.properties["listener.security.protocol.map"] += f",{each}:SSL"
    if KERNEL in secured:
        broker.properties[f"listener.name.{KERNEL.lower()}.ssl.kernel.tls"] = "auto"
    broker.properties["ssl.keystore.type"] = "PEM"
    broker.properties["ssl.keystore.location"] = str(certificate)
    broker.start()
    try:
        broker.wait_ready()
        addresses = {"PLAINTEXT": broker.address, **{each: f"{HOST}:{ports[each]}" for each in ports}}
        yield SecuredBroker(name, addresses, broker.pid)
    finally:
        broker.stop()


def _measure(
    broker: SecuredBroker, protocol: str, topic: str, trusted: Path, count: int, record_bytes: int
) -> Rates:
    target = Target(broker.name, broker.addresses[PROTOCOLS[0]])
    create_topic(target, topic, 1)
    client = {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": "plaintext" if protocol == PROTOCOLS[0] else "ssl",
        "ssl.ca.location": str(trusted),
    }
    took_s, cpu_s = _timed(broker, lambda: _produce(client, topic, count, bytes(record_bytes)))
    read_s, read_cpu_s = _timed(broker, lambda: _consume(client, topic, count))
    delete_topic(target, topic)
    size = count * record_bytes
    gigabytes = size / 1e9
    return Rates(size / MB / took_s, size / MB / read_s, cpu_s / gigabytes, read_cpu_s / gigabytes)


def _timed(broker: SecuredBroker, run: Callable[[], None]) -> tuple[float, float]:
    """The time that a run takes, and the broker's time on processors meanwhile, in seconds."""
    began_s, cpu_s = time.perf_counter(), cpu_seconds([broker.pid]) or 0.0
    run()
    return time.perf_counter() - began_s, (cpu_seconds([broker.pid]) or 0.0) - cpu_s


def _produce(client: dict[str, str], topic: str, count: int, value: bytes) -> None:
    producer = Producer({**client, "acks": "all", "linger.ms": 20, "batch.size": 1_000_000})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(_WAIT_S)
    if left:
        raise TimeoutError(f"{left} records are unacknowledged after {_WAIT_S} s")


def _consume(client: dict[str, str], topic: str, count: int) -> None:
    # Without joining the group: brokers wait for its first members for three seconds, or not at all.
    consumer = Consumer({**client, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    ends_s, seen = time.monotonic() + _WAIT_S, 0
    while seen < count:
        seen += len(consumer.consume(10_000, 0.5))
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{seen} of {count} records were read within {_WAIT_S} s")
    consumer.close()


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.tls")
