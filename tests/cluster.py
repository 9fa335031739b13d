"""Real brokers for a test: processes on loopback ports, with data of their own, against the shared ZooKeeper.

What a broker wrote to its log is shown when its test fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.tools.broker_process import BrokerProcess

__all__ = ["BrokerProcess", "Cluster", "cluster"]


class Cluster:
    """Brokers of one test, numbered from 1, all in one chroot of ZooKeeper."""

    def __init__(self, directory: Path, zookeeper_connect: str) -> None:
        self.zookeeper_connect = zookeeper_connect
        self.brokers: list[BrokerProcess] = []
        self._directory = directory

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def add(self, properties: Mapping[str, str] | None = None) -> BrokerProcess:
        """One more broker, not yet started."""
        number = len(self.brokers) + 1
        broker = BrokerProcess(
            self._directory / f"broker-{number}",
            broker_id=number,
            zookeeper_connect=self.zookeeper_connect,
            properties=properties,
        )
        self.brokers.append(broker)
        return broker

    def start(self, count: int = 1, properties: Mapping[str, str] | None = None) -> list[BrokerProcess]:
        """Start `count` more brokers; they are ready, and know of each other, when this returns."""
        started = [self.add(properties) for _ in range(count)]
        for broker in started:
            broker.start()
        for broker in started:
            broker.wait_ready(len(self.brokers))
        return started

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster: start brokers in it; they are stopped at the end."""
    brokers = Cluster(tmp_path, zookeeper)
    try:
        yield brokers
    finally:
        brokers.stop()
        for broker in brokers.brokers:
            # Shown by pytest with a test that fails.
            print(f"--- log of broker {broker.broker_id}\n{broker.log[-8000:]}")
