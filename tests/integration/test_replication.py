"""Replicated partitions on three real brokers: records acknowledged with acks=all survive the loss of one."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce
from tests.integration.waiting import until

PROPERTIES = {
    "replica.lag.time.max.ms": "10000",
    "min.insync.replicas": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
}


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%d" % number for number in range(start, start + count)]


@pytest.fixture
def three(shared_cluster: Cluster) -> Cluster:
    """Three running brokers that tests share."""
    if not shared_cluster.brokers:
        shared_cluster.start(3, PROPERTIES)
    shared_cluster.make_whole()
    return shared_cluster


def test_records_reach_every_replica(three: Cluster, topic: str) -> None:
    create_topic(three.bootstrap, topic, partitions=3, replicas=3)
    for partition in range(3):
        offsets = produce(three.bootstrap, topic, values(1000), partition=partition, acks="all")
        assert offsets == list(range(1000))
        assert consume(three.bootstrap, topic, 1000, partition=partition) == values(1000)


class States:
    """The partition states in ZooKeeper, awaited with watches."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = KazooClient(cluster.zookeeper_connect, timeout=TIMEOUT_S)
        self._client.start(TIMEOUT_S)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def leader(self, topic: str) -> BackgroundBroker:
        """The broker that leads partition 0."""
        data, _ = self._client.get(_path(topic, 0))
        return self._cluster.brokers[json.loads(data)["leader"] - 1]

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """The in-sync set."""
        data, _ = self._client.get(_path(topic, partition))
        return set(json.loads(data)["isr"])

    def wait_for_isr(self, topic: str, partition: int, isr: set[int]) -> None:
        """Return once the in-sync set is `isr`, or raise AssertionError after `TIMEOUT_S`."""
        path = _path(topic, partition)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            changed = threading.Event()
            data, _ = self._client.get(path, lambda event, changed=changed: changed.set())
            found = set(json.loads(data)["isr"])
            if found == isr:
                return
            assert changed.wait(deadline - time.monotonic()), f"the in-sync set is {found}, not {isr}"


def _path(topic: str, partition: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


@contextmanager
def states_in(cluster: Cluster) -> Iterator[States]:
    watched = States(cluster)
    try:
        yield watched
    finally:
        watched.close()


@pytest.fixture
def states(request: pytest.FixtureRequest) -> Iterator[States]:
    """The partition states of the test's brokers: those of `three`, or else of `cluster`."""
    cluster = request.getfixturevalue("three" if "three" in request.fixturenames else "cluster")
    with states_in(cluster) as watched:
        yield watched


def test_no_acknowledged_record_is_lost_when_the_leader_is_killed(
    three: Cluster, states: States, topic: str
) -> None:
    create_topic(three.bootstrap, topic, replicas=3)
    produce(three.bootstrap, topic, values(500), acks="all")
    killed = states.leader(topic)
    three.lose(killed)
    # The producer waits for the new leader.
    produce(three.bootstrap, topic, values(500, 500), **{"enable.idempotence": True})
    assert states.leader(topic) is not killed
    assert consume(three.bootstrap, topic, 1000) == values(1000)
    killed.start()
    killed.wait_ready(3)
    states.wait_for_isr(topic, 0, {1, 2, 3})
    # With the other two stopped, the restarted broker leads, and has the records written during its absence.
    for broker in three.brokers:
        if broker is not killed:
            broker.stop()
    assert consume(killed.address, topic, 1000) == values(1000)


def test_a_replica_with_a_wiped_disk_is_copied_in_full_before_it_is_in_sync(
    three: Cluster, states: States, topic: str
) -> None:
    create_topic(three.bootstrap, topic, replicas=3)
    produce(three.bootstrap, topic, values(2000), acks="all")
    leader = states.leader(topic)
    wiped = next(broker for broker in three.brokers if broker is not leader)
    three.lose(wiped)
    for directory in wiped.log_dirs:
        shutil.rmtree(directory)
    states.wait_for_isr(topic, 0, {1, 2, 3} - {wiped.broker_id})
    # The broker cannot know whether its disk is lost or only not mounted, so it stops until the operator
    # declares the directory lost.
    wiped.start()
    assert wiped.wait() != 0
    lost = re.search(r"set log\.dirs\.lost=(\S+)", wiped.log)
    assert lost is not None
    wiped.properties["log.dirs.lost"] = lost[1]
    wiped.start()
    wiped.wait_ready(3)
    states.wait_for_isr(topic, 0, {1, 2, 3})
    logs = [broker.log_dirs[0] / f"{topic}-0" / "00000000000000000000.log" for broker in (leader, wiped)]
    assert logs[0].read_bytes() == logs[1].read_bytes()


def test_a_rolling_restart_fails_no_write_and_a_broker_that_is_back_alone_serves_every_record(
    three: Cluster, states: States, topic: str
) -> None:
    create_topic(three.bootstrap, topic, partitions=3, replicas=3)
    for stopped in three.brokers:
        for partition in range(3):
            produce(three.bootstrap, topic, values(100), partition=partition, acks="all")
        stopped.stop()
        for partition in range(3):
            # One attempt each: a missing leader would fail it.
            produce(three.bootstrap, topic, values(100), partition=partition, acks="all", retries=0)
        stopped.start()
        stopped.wait_ready(3)
        for partition in range(3):
            states.wait_for_isr(topic, partition, {1, 2, 3})
    for partition in range(3):
        assert consume(three.bootstrap, topic, 600, partition=partition) == values(100) * 6
    # With min.insync.replicas=2 a broker commits nothing alone: it serves what it knows. The last one that is
    # stopped has left the second one eligible to lead.
    for stopped in three.brokers:
        stopped.stop()
    alone = three.brokers[1]
    alone.start()
    alone.wait_ready()
    for partition in range(3):
        assert consume(alone.address, topic, 600, partition=partition) == values(100) * 6
        assert states.in_sync(topic, partition) == {alone.broker_id}


def wait_for_last_broker(last: BackgroundBroker, since: int) -> None:
    """Wait until the last broker, now the controller, has begun its roles. `since` is its log's length from
    before the others were lost."""
    deadline = time.monotonic() + TIMEOUT_S
    while f"brokers are now [{last.broker_id}]: " not in last.log[since:]:
        assert time.monotonic() < deadline, last.log
        time.sleep(0.02)


def test_writes_are_refused_while_too_few_replicas_are_in_sync(
    three: Cluster, states: States, topic: str
) -> None:
    create_topic(three.bootstrap, topic, replicas=3)
    produce(three.bootstrap, topic, values(10), acks="all")
    leader = states.leader(topic)
    others = [broker for broker in three.brokers if broker is not leader]
    since = len(leader.log)
    for broker in others:
        three.lose(broker)
    states.wait_for_isr(topic, 0, {leader.broker_id})
    wait_for_last_broker(leader, since)
    producer = Producer({"bootstrap.servers": leader.address, "acks": "all", "retries": 0})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"refused", on_delivery=lambda error, message: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert [error and error.name() for error in errors] == ["NOT_ENOUGH_REPLICAS"]
    produce(leader.address, topic, [b"not by all"], acks="1")
    others[0].start()
    others[0].wait_ready(2)
    states.wait_for_isr(topic, 0, {leader.broker_id, others[0].broker_id})
    produce(leader.address, topic, [b"by all"], acks="all")
    assert consume(leader.address, topic, 12) == [*values(10), b"not by all", b"by all"]


def _leader_according_to(broker: BackgroundBroker, topic: str) -> int:
    """Wait until this broker's metadata has the topic. Returns the leader of partition 0."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    deadline = time.monotonic() + TIMEOUT_S
    while topic not in (topics := admin.list_topics(timeout=TIMEOUT_S).topics):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    leader: int = topics[topic].partitions[0].leader
    return leader


@pytest.mark.parametrize("unclean", [False, True])
def test_a_replica_out_of_sync_leads_only_if_its_topic_allows_it(
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
    leader = states.leader("events")
    (behind,) = [broker for broker in cluster.brokers if broker is not leader]
    cluster.lose(behind)
    states.wait_for_isr("events", 0, {leader.broker_id})
    produce(cluster.bootstrap, "events", values(10, 10), acks="all")
    cluster.lose(leader)
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
        assert _leader_according_to(behind, "events") == -1
        leader.start()
        leader.wait_ready(2)
        states.wait_for_isr("events", 0, {1, 2})
        assert consume(cluster.bootstrap, "events", 20) == values(20)


def remove_while_written(directory: Path) -> None:
    """Remove a directory to which a broker still writes: a file may come between a look and a removal."""

    def is_removed() -> bool:
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    until(is_removed)


def test_a_broker_stays_up_until_its_last_log_directory_fails(
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
    create_topic(cluster.bootstrap, "events", partitions=4, replicas=2, config={"segment.bytes": "32768"})
    lost = {int(path.name.rpartition("-")[2]) for path in directories[0].glob("events-*")}
    assert 0 < len(lost) < 4
    remove_while_written(directories[0])
    batches: dict[str, object] = {"enable.idempotence": True, "batch.size": 16_000}
    for partition in range(4):
        # This fills a segment, and the next one cannot be created.
        large = [b"%d" % number * 1000 for number in range(40)]
        produce(cluster.bootstrap, "events", large, partition=partition, **batches)
        assert consume(cluster.bootstrap, "events", 40, partition=partition) == large
    for partition in range(4):
        states.wait_for_isr("events", partition, {2} if partition in lost else {1, 2})
    assert broker.running
    remove_while_written(directories[1])
    for partition in range(4):
        produce(cluster.bootstrap, "events", [bytes(20_000)] * 2, partition=partition, **batches)
        states.wait_for_isr("events", partition, {2})
    assert broker.wait() != 0
    assert "all log directories have failed" in broker.log
