"""The systems that `benchmarks.peers` compares, each a cluster of its own on loopback ports.

Holdfast runs with one process, and with one process for each core; Apache Kafka with ZooKeeper, and in KRaft
mode.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from benchmarks import apache_kafka
from benchmarks.apache_kafka import KAFKAS_OWN, KafkaBroker, KraftBroker
from benchmarks.load_error import LoadError
from benchmarks.targets import Target
from holdfast_log.broker.tools.broker_process import START_TIMEOUT_S, BackgroundBroker
from holdfast_log.coordinator.tools.zookeeper_process import HOST, ZooKeeperProcess, free_port, start_all

HOLDFAST = "holdfast"
HOLDFAST_ALL_CORES = "holdfast-all-cores"
KAFKA_3 = "kafka-3.9"
KAFKA_4 = "kafka-4.1"
LABELS = {
    HOLDFAST: "Holdfast",
    HOLDFAST_ALL_CORES: "Holdfast, a process a core",
    KAFKA_3: f"Kafka {apache_kafka.VERSION}",
    KAFKA_4: f"Kafka {apache_kafka.KRAFT_VERSION}",
}
_SAME = {"log.segment.delete.delay.ms": "200", "message.max.bytes": str(4 << 20)}
"""Settings of every system. What one run wrote should not fill the memory that the next ones need."""
_KAFKA_DEFAULTS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "background.threads": "10",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
"""Kafka's own defaults, in place of the small values that our tests give it."""
_LEADER_TIMEOUT_S = 120.0
_POLL_S = 0.05
_PORT_TRIES = 100


@dataclass(frozen=True, slots=True)
class PeerSystem:
    """A running system. `processes` are those that were started; they may have children."""

    name: str
    bootstrap: str
    processes: tuple[int, ...]
    log_dirs: tuple[Path, ...]

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of all processes of the brokers."""
        return with_descendants(self.processes)

    @property
    def target(self) -> Target:
        return Target(self.name, self.bootstrap, self.pids, self.log_dirs)

    @property
    def memory_mb(self) -> float:
        """Resident memory of all processes, in MB."""
        return sum(_resident_bytes(pid) for pid in self.pids) / 1e6


def with_descendants(pids: Sequence[int]) -> tuple[int, ...]:
    """Processes and all that they and their children have started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = list(pids)
    for pid in found:
        found += children.get(pid, [])
    return tuple(found)


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start(name: str, directory: Path, brokers: int, stack: ExitStack) -> PeerSystem:
    """Start a system with so many brokers, which the stack stops. Raises the errors of the processes."""
    properties = _SAME | {
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
    started, known = _STARTS[name](directory, brokers, properties, stack)
    for broker in started:
        stack.callback(broker.kill)
        broker.start()
    for broker in started:
        broker.wait_ready(known, START_TIMEOUT_S)
    return PeerSystem(
        name,
        ",".join(broker.address for broker in started),
        tuple(broker.pid for broker in started),
        tuple(log_dir for broker in started for log_dir in broker.log_dirs),
    )


def _zookeeper(directory: Path, stack: ExitStack) -> str:
    server = ZooKeeperProcess(directory / "zookeeper")
    stack.callback(server.stop)
    start_all([server])
    return server.connect


_Properties = Mapping[str, str]
_Started = tuple[list[BackgroundBroker], int]
"""The brokers to start, and how many of them know each other in the end."""


def _start_holdfast(directory: Path, brokers: int, properties: _Properties, stack: ExitStack) -> _Started:
    connect = _zookeeper(directory, stack)
    return [
        BackgroundBroker(
            directory / f"broker-{number}",
            broker_id=number,
            zookeeper_connect=connect,
            properties=properties,
        )
        for number in range(1, brokers + 1)
    ], brokers


def _start_all_cores(directory: Path, brokers: int, properties: _Properties, stack: ExitStack) -> _Started:
    """One broker for each core, by `broker.processes`. Several brokers stand for several machines, and are
    started one by one."""
    count = os.cpu_count() or 1
    if brokers > 1:
        return _start_holdfast(directory, brokers, properties, stack)
    together = BackgroundBroker(
        directory / "brokers",
        broker_id=1,
        zookeeper_connect=_zookeeper(directory, stack),
        port=_successive_ports(count),
        properties={**properties, "broker.processes": str(count)},
    )
    return [together], count


def _successive_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    for _ in range(_PORT_TRIES):
        first = free_port()
        if not any(_is_taken(port) for port in range(first + 1, first + count)):
            return first
    raise LoadError(f"there are no {count} free ports in a row")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _start_kafka_3(directory: Path, brokers: int, properties: _Properties, stack: ExitStack) -> _Started:
    connect = _zookeeper(directory, stack)
    return [
        KafkaBroker(
            directory / f"broker-{number}",
            broker_id=number,
            zookeeper_connect=connect,
            properties={**_KAFKA_DEFAULTS, **properties},
            java_options=KAFKAS_OWN,
        )
        for number in range(1, brokers + 1)
    ], brokers


def _start_kafka_4(directory: Path, brokers: int, properties: _Properties, _stack: ExitStack) -> _Started:
    voters = {number: f"{HOST}:{free_port()}" for number in range(1, brokers + 1)}
    return [
        KraftBroker(
            directory / f"broker-{number}",
            broker_id=number,
            voters=voters,
            properties={**_KAFKA_DEFAULTS, **properties},
            java_options=KAFKAS_OWN,
        )
        for number in range(1, brokers + 1)
    ], brokers


_STARTS: dict[str, Callable[[Path, int, _Properties, ExitStack], _Started]] = {
    HOLDFAST: _start_holdfast,
    HOLDFAST_ALL_CORES: _start_all_cores,
    KAFKA_3: _start_kafka_3,
    KAFKA_4: _start_kafka_4,
}


def leaders(system: PeerSystem, topic: str, replicas: int = 1) -> dict[tuple[str, int], list[int]]:
    """The topic's partitions by the address of their leader, once all have one and all replicas are in sync.
    Raises LoadError if that takes long."""
    admin = AdminClient(
        {"bootstrap.servers": system.bootstrap, "broker.address.family": "v4", "log_level": 3}
    )
    deadline = time.monotonic() + _LEADER_TIMEOUT_S
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=_LEADER_TIMEOUT_S)
        partitions = found.topics[topic].partitions.values()
        if partitions and all(
            partition.leader in found.brokers and len(partition.isrs) >= replicas for partition in partitions
        ):
            led: dict[tuple[str, int], list[int]] = {}
            for partition in partitions:
                broker = found.brokers[partition.leader]
                led.setdefault((str(broker.host), int(broker.port)), []).append(partition.id)
            return {address: sorted(led[address]) for address in sorted(led)}
        time.sleep(_POLL_S)
    raise LoadError(f"{system.name}: not all partitions of {topic} have a leader and {replicas} replicas")
