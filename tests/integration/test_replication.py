"""Partitions with replicas on three real brokers: what all acknowledged survives any one of them."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from broker.tools.broker_process import BrokerProcess
from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce

PROPERTIES = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
}


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%d" % number for number in range(start, start + count)]


def test_records_reach_every_replica(cluster: Cluster) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", partitions=3, replicas=3)
    for partition in range(3):
        offsets = produce(cluster.bootstrap, "events", values(1000), partition=partition, acks="all")
        assert offsets == list(range(1000))
        assert consume(cluster.bootstrap, "events", 1000, partition=partition) == values(1000)


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> BrokerProcess:
    """The broker that leads a partition, as those that run say."""
    running = ",".join(broker.address for broker in cluster.brokers if broker.running)
    metadata = AdminClient({"bootstrap.servers": running}).list_topics(topic, timeout=TIMEOUT_S)
    return cluster.brokers[metadata.topics[topic].partitions[partition].leader - 1]


class States:
    """The states of partitions as ZooKeeper has them, awaited by its watches."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect)
        self._client.start(TIMEOUT_S)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def wait_for_isr(self, topic: str, partition: int, isr: set[int]) -> None:
        """Return once the in-sync set is this one."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            changed = threading.Event()
            data, _ = self._client.get(path, lambda event, changed=changed: changed.set())
            found = set(json.loads(data)["isr"])
            if found == isr:
                return
            assert changed.wait(deadline - time.monotonic()), f"the in-sync set is {found}, not {isr}"


@pytest.fixture
def states(cluster: Cluster) -> Iterator[States]:
    watched = States(cluster.zookeeper_connect)
    yield watched
    watched.close()


def test_a_killed_leader_takes_nothing_that_was_acknowledged_with_it(
    cluster: Cluster, states: States
) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", replicas=3)
    produce(cluster.bootstrap, "events", values(500), acks="all")
    killed = leader_of(cluster, "events")
    killed.kill()
    # The producer waits for the new leader by itself.
    produce(cluster.bootstrap, "events", values(500, 500), **{"enable.idempotence": True})
    assert leader_of(cluster, "events") is not killed
    assert consume(cluster.bootstrap, "events", 1000) == values(1000)
    killed.start()
    killed.wait_ready(3)
    states.wait_for_isr("events", 0, {1, 2, 3})
    # With the two others gone it leads, and has what was written while it was away.
    for broker in cluster.brokers:
        if broker is not killed:
            broker.stop()
    assert consume(killed.address, "events", 1000) == values(1000)


def test_a_replica_whose_disk_was_wiped_is_copied_in_full_before_it_is_in_sync_again(
    cluster: Cluster, states: States
) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", replicas=3)
    produce(cluster.bootstrap, "events", values(2000), acks="all")
    leader = leader_of(cluster, "events")
    wiped = next(broker for broker in cluster.brokers if broker is not leader)
    wiped.kill()
    for directory in wiped.log_dirs:
        shutil.rmtree(directory)
    states.wait_for_isr("events", 0, {1, 2, 3} - {wiped.broker_id})
    wiped.start()
    wiped.wait_ready(3)
    states.wait_for_isr("events", 0, {1, 2, 3})
    logs = [broker.log_dirs[0] / "events-0" / "00000000000000000000.log" for broker in (leader, wiped)]
    assert logs[0].read_bytes() == logs[1].read_bytes()


def test_a_controlled_stop_moves_leaders_away_without_a_failed_write(
    cluster: Cluster, states: States
) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", partitions=3, replicas=3)
    for stopped in cluster.brokers:
        for partition in range(3):
            produce(cluster.bootstrap, "events", values(100), partition=partition, acks="all")
        stopped.stop()
        for partition in range(3):
            # One attempt each: a leader that is not there would fail it.
            produce(cluster.bootstrap, "events", values(100), partition=partition, acks="all", retries=0)
        stopped.start()
        stopped.wait_ready(3)
        for partition in range(3):
            states.wait_for_isr("events", partition, {1, 2, 3})
    for partition in range(3):
        assert consume(cluster.bootstrap, "events", 600, partition=partition) == values(100) * 6


def wait_until_told(last: BrokerProcess) -> None:
    """The only broker that is left is the controller: wait until it has told itself, and begun its roles."""
    deadline = time.monotonic() + TIMEOUT_S
    while f"brokers are now [{last.broker_id}]: " not in last.log:
        assert time.monotonic() < deadline, last.log
        time.sleep(0.02)


def test_too_few_replicas_in_sync_refuse_writes_until_they_are_back(cluster: Cluster, states: States) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", replicas=3)
    produce(cluster.bootstrap, "events", values(10), acks="all")
    leader = leader_of(cluster, "events")
    others = [broker for broker in cluster.brokers if broker is not leader]
    for broker in others:
        broker.kill()
    states.wait_for_isr("events", 0, {leader.broker_id})
    wait_until_told(leader)
    producer = Producer({"bootstrap.servers": leader.address, "acks": "all", "retries": 0})
    errors: list[KafkaError | None] = []
    producer.produce("events", b"refused", on_delivery=lambda error, message: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert [error and error.name() for error in errors] == ["NOT_ENOUGH_REPLICAS"]
    produce(leader.address, "events", [b"not by all"], acks="1")
    others[0].start()
    others[0].wait_ready(2)
    states.wait_for_isr("events", 0, {leader.broker_id, others[0].broker_id})
    produce(leader.address, "events", [b"by all"], acks="all")
    assert consume(leader.address, "events", 12) == [*values(10), b"not by all", b"by all"]


@pytest.mark.parametrize("unclean", [False, True])
def test_whether_a_replica_out_of_sync_may_lead_is_for_the_topic_to_say(
    cluster: Cluster, states: States, unclean: bool
) -> None:
    cluster.start(2, PROPERTIES)
    create_topic(
        cluster.bootstrap,
        "events",
        replicas=2,
        config={"unclean.leader.election.enable": str(unclean).lower(), "min.insync.replicas": "1"},
    )
    produce(cluster.bootstrap, "events", values(10), acks="all")
    leader = leader_of(cluster, "events")
    (behind,) = [broker for broker in cluster.brokers if broker is not leader]
    behind.kill()
    states.wait_for_isr("events", 0, {leader.broker_id})
    produce(cluster.bootstrap, "events", values(10, 10), acks="all")
    leader.kill()
    behind.start()
    behind.wait_ready(1)
    if unclean:
        states.wait_for_isr("events", 0, {behind.broker_id})
        assert consume(behind.address, "events", 10) == values(10)
        produce(behind.address, "events", [b"instead"], acks="all")
        leader.start()
        leader.wait_ready(2)
        states.wait_for_isr("events", 0, {1, 2})
        assert consume(cluster.bootstrap, "events", 11) == [*values(10), b"instead"]
    else:
        metadata = AdminClient({"bootstrap.servers": behind.address}).list_topics("events", TIMEOUT_S)
        assert metadata.topics["events"].partitions[0].leader == -1
        leader.start()
        leader.wait_ready(2)
        states.wait_for_isr("events", 0, {1, 2})
        assert consume(cluster.bootstrap, "events", 20) == values(20)


def test_partitions_of_a_failed_log_directory_move_and_the_broker_stays(
    cluster: Cluster, states: States, tmp_path: Path
) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    properties = {**PROPERTIES, "min.insync.replicas": "1"}
    broker = cluster.add({**properties, "log.dirs": ",".join(map(str, directories))})
    other = cluster.add(properties)
    for each in (broker, other):
        each.start()
    for each in (broker, other):
        each.wait_ready(2)
    create_topic(cluster.bootstrap, "events", partitions=4, replicas=2, config={"segment.bytes": "16384"})
    lost = {int(path.name.rpartition("-")[2]) for path in directories[0].glob("events-*")}
    assert 0 < len(lost) < 4
    shutil.rmtree(directories[0])
    for partition in range(4):
        # More than a segment holds: the next one cannot be made.
        large = [b"%d" % number * 1000 for number in range(40)]
        produce(cluster.bootstrap, "events", large, partition=partition, **{"enable.idempotence": True})
        assert consume(cluster.bootstrap, "events", 40, partition=partition) == large
    for partition in range(4):
        states.wait_for_isr("events", partition, {2} if partition in lost else {1, 2})
    assert broker.running
    shutil.rmtree(directories[1])
    for partition in range(4):
        produce(cluster.bootstrap, "events", [bytes(20_000)] * 2, partition=partition)
        states.wait_for_isr("events", partition, {2})
    assert broker.wait() != 0
    assert "the last log directory has failed" in broker.log
