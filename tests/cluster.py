"""Real brokers for a test: processes on loopback ports, with their own data, on the shared ZooKeeper.

A failing test shows its brokers' logs. Session timeouts are long, except in tests of expiry, so that a live
broker on a busy machine keeps its session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from holdfast_log.broker.process.session_file import SessionFile, boot_id
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.forked_brokers import ForkedBroker

__all__ = ["BackgroundBroker", "Cluster", "cluster", "cluster_of_module", "shared_cluster"]

_TIMEOUT_S = 60.0
_PROPERTIES = {"offsets.topic.num.partitions": "1", "log.segment.bytes.min": "14", "log.segment.ms.min": "1"}
"""Kafka's default of 50 partitions would slow down every test with a group. Tests fill small segments."""


class Cluster:
    """Brokers, numbered from 1, all in one chroot of ZooKeeper."""

    def __init__(self, directory: Path, zookeeper_connect: str) -> None:
        self.zookeeper_connect = zookeeper_connect
        self.brokers: list[BackgroundBroker] = []
        self._directory = directory

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def add(
        self, properties: Mapping[str, str] | None = None, launcher: Sequence[str] = ()
    ) -> BackgroundBroker:
        """One more broker, not yet started. `launcher` is the command that starts its program."""
        number = len(self.brokers) + 1
        broker = ForkedBroker(
            self._directory / f"broker-{number}",
            broker_id=number,
            zookeeper_connect=self.zookeeper_connect,
            properties={**_PROPERTIES, **(properties or {})},
            launcher=launcher,
        )
        self.brokers.append(broker)
        return broker

    def start(self, count: int = 1, properties: Mapping[str, str] | None = None) -> list[BackgroundBroker]:
        """Start `count` more brokers. Returns when all that run are ready and know each other."""
        started = [self.add(properties) for _ in range(count)]
        for broker in started:
            broker.start()
        for broker in self.brokers:
            if broker.running or broker in started:
                broker.wait_ready(len(self.brokers))
        return started

    def make_whole(self) -> None:
        """Start the brokers that are not running, and wait until all are ready."""
        absent = [broker for broker in self.brokers if not broker.running]
        for broker in absent:
            broker.start()
        for broker in self.brokers:
            broker.wait_ready(len(self.brokers))

    def lose(self, broker: BackgroundBroker) -> None:
        """Kill a broker, and end its ZooKeeper session at once instead of after the session timeout."""
        broker.kill()
        key = SessionFile([str(broker.log_dirs[0])], boot_id()).recall()
        assert key is not None, "the broker has no session in ZooKeeper"
        hosts = self.zookeeper_connect.partition("/")[0]
        successor = KazooClient(hosts, client_id=(key.session_id, key.password))
        successor.start(_TIMEOUT_S)
        successor.stop()
        successor.close()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def show(self) -> None:
        """Print the end of each broker's log. pytest shows it with a failing test."""
        for broker in self.brokers:
            print(f"--- log of broker {broker.broker_id}\n{broker.log[-8000:]}")


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster for one test. The brokers that the test starts are stopped at its end."""
    brokers = Cluster(tmp_path, zookeeper)
    try:
        yield brokers
    finally:
        brokers.stop()
        brokers.show()


@pytest.fixture(scope="module")
def cluster_of_module(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of a module, empty at first. `shared_cluster` also shows its logs."""
    directory = tmp_path_factory.mktemp("shared-cluster")
    brokers = Cluster(directory, f"{zookeeper_server}/{directory.name}")
    try:
        yield brokers
    finally:
        brokers.stop()


@pytest.fixture
def shared_cluster(cluster_of_module: Cluster) -> Iterator[Cluster]:
    """A cluster for all tests of a module, empty at first. Each test uses its own topics."""
    yield cluster_of_module
    cluster_of_module.show()
