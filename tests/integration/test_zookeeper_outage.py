"""ZooKeeper is down for longer than the session timeout of real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from holdfast_log.coordinator.tools.zookeeper_process import free_port
from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce
from tests.zookeeper import ZooKeeperProcess

PROPERTIES = {"zookeeper.session.timeout.ms": "3000", "min.insync.replicas": "2"}
PARTITIONS = 3
"""Number of partitions: each of the three brokers leads one."""


@pytest.fixture
def server(zookeeper_process: Callable[..., ZooKeeperProcess]) -> ZooKeeperProcess:
    return zookeeper_process()


@pytest.fixture
def brokers(server: ZooKeeperProcess, tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, server.connect)
    try:
        yield started
    finally:
        started.stop()
        for broker in started.brokers:
            print(f"--- log of broker {broker.broker_id}\n{broker.log[-8000:]}")


def expire_sessions(server: ZooKeeperProcess) -> None:
    """Run the killed server on a port unknown to the brokers until all their sessions have expired."""
    hidden = ZooKeeperProcess(server.directory, client_port=free_port())
    hidden.start()
    hidden.wait_ready()
    client = KazooClient(hidden.connect)
    client.start(TIMEOUT_S)
    try:
        while True:
            changed = threading.Event()
            if not client.get_children("/brokers/ids", lambda event, changed=changed: changed.set()):
                return
            assert changed.wait(TIMEOUT_S), f"the brokers' sessions have not expired within {TIMEOUT_S} s"
    finally:
        client.stop()
        client.close()
        hidden.stop()


def values(partition: int, start: int, stop: int) -> list[bytes]:
    return [b"%d-%d" % (partition, number) for number in range(start, stop)]


def test_brokers_that_survive_an_outage_serve_all_partitions_without_the_dead_one(
    server: ZooKeeperProcess, brokers: Cluster
) -> None:
    """The survivors register again, but are the same processes, and have all acknowledged records."""
    dead, *survivors = brokers.start(3, PROPERTIES)
    create_topic(brokers.bootstrap, "events", PARTITIONS, replicas=3)
    once = {"enable.idempotence": True}
    for partition in range(PARTITIONS):
        produce(brokers.bootstrap, "events", values(partition, 0, 100), partition, **once)
    server.kill()
    dead.kill()
    expire_sessions(server)
    server.start()
    server.wait_ready()
    alive = ",".join(broker.address for broker in survivors)
    for partition in range(PARTITIONS):
        offsets = produce(alive, "events", values(partition, 100, 200), partition, **once)
        assert offsets == list(range(100, 200))
        assert consume(alive, "events", 200, partition) == values(partition, 0, 200)
    assert not dead.running
