"""Compares TLS with plaintext, Holdfast's broker and Apache Kafka's: python -m benchmarks.tls

Each broker has a listener without TLS and one with it. librdkafka writes records of one size with acks=all to
one partition, and reads them back, over each listener in turn. What it sends and receives is the same; the
client's own TLS costs the same with both brokers.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer

from benchmarks.apache_kafka import KAFKAS_OWN, KafkaBroker, NoKafkaError
from benchmarks.results import MB, print_table
from benchmarks.targets import Target, cpu_seconds, create_topic
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.tools.zookeeper_process import HOST, ZooKeeperProcess, free_port

_WAIT_S = 300
_PROTOCOLS = ("PLAINTEXT", "SSL")


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A running broker with a listener of each protocol."""

    name: str
    addresses: dict[str, str]
    pid: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What one client has reached over one listener, in MB of values a second and CPU seconds per GB."""

    produced: float
    consumed: float
    produce_cpu: float
    consume_cpu: float


@click.command()
@click.option("--megabytes", default=500, show_default=True, help="Values to write and to read, in MB.")
@click.option("--record-bytes", default=1000, show_default=True, help="Size of a value in bytes.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each; the best one counts.")
@click.option("--kafka/--no-kafka", default=True, help="Whether to measure Apache Kafka beside it.")
def main(megabytes: int, record_bytes: int, rounds: int, kafka: bool) -> None:
    """Measure TLS beside plaintext."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        certificate = _certificate(Path(directory))
        zookeeper = ZooKeeperProcess(Path(directory) / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.stop)
        zookeeper.wait_ready()
        connect = zookeeper.connect
        brokers = [stack.enter_context(_broker(Path(directory), "holdfast", connect, certificate))]
        if kafka:
            try:
                brokers.append(stack.enter_context(_broker(Path(directory), "kafka", connect, certificate)))
            except NoKafkaError as error:
                click.echo(f"Apache Kafka is not measured: {error}")
        found: dict[tuple[str, str], list[Rates]] = {}
        for number in range(rounds):
            for broker in brokers:
                for protocol in _PROTOCOLS:
                    topic = f"{broker.name}-{protocol}-{number}"
                    rates = _measure(broker, protocol, topic, certificate, megabytes, record_bytes)
                    found.setdefault((broker.name, protocol), []).append(rates)
                    click.echo(f"{topic}: {rates.produced:.0f} MB/s in, {rates.consumed:.0f} MB/s out")
        _report(brokers, found)


def _certificate(directory: Path) -> Path:
    """A file with a key and a certificate for this machine's loopback address."""
    key, certificate, both = directory / "key.pem", directory / "certificate.pem", directory / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:{HOST} -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@contextlib.contextmanager
def _broker(directory: Path, name: str, connect: str, certificate: Path) -> Iterator[SecuredBroker]:
    settings: dict[str, Any] = {"broker_id": 1, "zookeeper_connect": f"{connect}/{name}"}
    broker: BackgroundBroker
    if name == "kafka":
        broker = KafkaBroker(directory / name, java_options=KAFKAS_OWN, **settings)
    else:
        broker = BackgroundBroker(directory / name, **settings)
    port = free_port()
    broker.properties["listeners"] += f",SSL://{HOST}:{port}"
    broker.properties["listener.security.protocol.map"] += ",SSL:SSL"
    broker.properties["ssl.keystore.type"] = "PEM"
    broker.properties["ssl.keystore.location"] = str(certificate)
    broker.start()
    try:
        broker.wait_ready()
        addresses = {"PLAINTEXT": broker.address, "SSL": f"{HOST}:{port}"}
        yield SecuredBroker(name, addresses, broker.pid)
    finally:
        broker.stop()


def _measure(
    broker: SecuredBroker, protocol: str, topic: str, trusted: Path, megabytes: int, record_bytes: int
) -> Rates:
    create_topic(Target(broker.name, broker.addresses["PLAINTEXT"]), topic, 1)
    client = {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": protocol.lower(),
        "ssl.ca.location": str(trusted),
    }
    count = megabytes * MB // record_bytes
    took_s, cpu_s = _timed(broker, lambda: _produce(client, topic, count, bytes(record_bytes)))
    read_s, read_cpu_s = _timed(broker, lambda: _consume(client, topic, count))
    size = count * record_bytes
    gigabytes = size / 1e9
    return Rates(size / MB / took_s, size / MB / read_s, cpu_s / gigabytes, read_cpu_s / gigabytes)


def _timed(broker: SecuredBroker, run: Any) -> tuple[float, float]:
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
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    ends_s, seen = time.monotonic() + _WAIT_S, 0
    while seen < count:
        seen += len(consumer.consume(10_000, 0.5))
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{seen} of {count} records were read within {_WAIT_S} s")
    consumer.close()


def _report(brokers: Sequence[SecuredBroker], found: dict[tuple[str, str], list[Rates]]) -> None:
    rows = []
    for broker in brokers:
        plain, secure = (_best(found[broker.name, protocol]) for protocol in _PROTOCOLS)
        for protocol, rates in zip(_PROTOCOLS, (plain, secure), strict=True):
            rows.append(
                [
                    f"{broker.name} {protocol}",
                    f"{rates.produced:.0f}",
                    f"{rates.produced / plain.produced:.2f}",
                    f"{rates.produce_cpu:.2f}",
                    f"{rates.consumed:.0f}",
                    f"{rates.consumed / plain.consumed:.2f}",
                    f"{rates.consume_cpu:.2f}",
                ]
            )
    print_table(
        "Records over TLS and without it",
        ["broker and listener", "in MB/s", "to plain", "CPU s/GB", "out MB/s", "to plain", "CPU s/GB"],
        rows,
    )


def _best(rates: Sequence[Rates]) -> Rates:
    return Rates(
        max(each.produced for each in rates),
        max(each.consumed for each in rates),
        min(each.produce_cpu for each in rates),
        min(each.consume_cpu for each in rates),
    )


if __name__ == "__main__":
    main()
