"""Our own clients while brokers are killed and paused, ZooKeeper is stopped, and connections are cut.

Records of an idempotent producer arrive once and in order; without retries, every loss is reported. The full
campaign sets HOLDFAST_FAULT_RECORDS=10000000 HOLDFAST_FAULT_ROUNDS=2 HOLDFAST_FAULT_PAUSE_S=20, and takes
some minutes: python -m pytest -s --timeout 1800 tests/integration/test_client_faults.py
"""

from __future__ import annotations

import os
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.connection.network import SocketChannel, SystemNetwork
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClientError, UndeliveredError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import BrokerError, TopicExistsError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.forked_brokers import ForkedBroker

RECORDS = int(os.environ.get("HOLDFAST_FAULT_RECORDS", "40000"))
ROUNDS = int(os.environ.get("HOLDFAST_FAULT_ROUNDS", "1"))
PAUSE_S = float(os.environ.get("HOLDFAST_FAULT_PAUSE_S", "4"))
PARTITIONS = 4
STEPS = 100
"""Producer calls for each partition during one fault."""
STEP_S = 0.02
BROKER_PROPERTIES = {
    "zookeeper.session.timeout.ms": "2500",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
}
PATIENT = {
    "delivery.timeout.ms": 900_000,
    "max.block.ms": 600_000,
    "request.timeout.ms": 5000,
    "linger.ms": 2,
}
PATIENCE_MS = 300_000


class CutChannel(SocketChannel):
    """A connection that breaks after it has received a random number of bytes."""

    def __init__(self, *arguments: Any, rng: random.Random, mean_bytes: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._left = max(100, int(rng.expovariate(1 / mean_bytes)))

    def receive_into(self, buffer: memoryview) -> int | None:
        if self._left == 0:
            raise ConnectionResetError(104, "cut by the test")
        count = super().receive_into(buffer[: self._left])
        self._left -= count or 0
        return count


def cut_network(seed: int, mean_bytes: int) -> SystemNetwork:
    return SystemNetwork(secure=partial(CutChannel, rng=random.Random(seed), mean_bytes=mean_bytes))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with a ZooKeeper of their own, which the tests kill."""
    directory = tmp_path_factory.mktemp("faults")
    with LocalCluster(
        directory, brokers=3, properties=BROKER_PROPERTIES, broker_type=ForkedBroker
    ) as cluster:
        yield cluster


class Faults:
    """Faults of the cluster. Each method returns once all processes serve again."""

    def __init__(self, cluster: LocalCluster, topic: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._topic = topic
        self._rng = rng

    def all(self) -> list[Callable[[], None]]:
        return [self.kill_a_leader, self.pause_a_leader, self.take_zookeeper_away]

    def kill_a_leader(self) -> None:
        broker = self._leader()
        broker.kill()
        time.sleep(1)
        broker.start()
        broker.wait_ready(3)

    def pause_a_leader(self) -> None:
        broker = self._leader()
        broker.pause()
        time.sleep(PAUSE_S)
        broker.resume()
        broker.wait_ready(3)

    def take_zookeeper_away(self) -> None:
        self._cluster.zookeepers[0].kill()
        time.sleep(min(PAUSE_S, 5))
        self._cluster.zookeepers[0].start()
        self._cluster.zookeepers[0].wait_ready()

    def _leader(self) -> Any:
        """The leader of a random partition. Waits up to `PATIENCE_MS` for the partition to have one."""
        number = self._rng.randrange(PARTITIONS)
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            with (
                suppress(BrokerError, ClientError),
                Admin({"bootstrap.servers": self._cluster.bootstrap}) as admin,
            ):
                (topic,) = admin.describe_topics([self._topic])
                for broker in self._cluster.brokers:
                    if broker.broker_id == topic.partitions[number].leader:
                        return broker
            assert time.monotonic() < deadline, "the partition has no leader"
            time.sleep(0.2)


def create_topic(cluster: LocalCluster, name: str) -> None:
    """Create a topic, retrying up to `PATIENCE_MS` until all brokers are registered."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        while True:
            try:
                admin.create_topics([NewTopic(name, PARTITIONS, 3)])
                return
            except TopicExistsError:
                return
            except (BrokerError, ClientError):
                assert time.monotonic() < deadline
                time.sleep(0.2)


def column(numbers: range) -> list[bytes]:
    return [number.to_bytes(8, "little") for number in numbers]


def read_numbers(cluster: LocalCluster, topic: str, seed: int) -> dict[int, array[int]]:
    """Read the topic over connections that are cut. Returns the numbers found in each partition."""
    found = {number: array("Q") for number in range(PARTITIONS)}
    properties = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(properties, network=cut_network(seed, 3_000_000)) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        for key in partitions:
            consumer.add_topic(*key)
        ends = consumer.end_offsets(partitions, PATIENCE_MS)
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while any(consumer.position(key, PATIENCE_MS) < ends[key] for key in partitions):
            assert time.monotonic() < deadline
            for batch in consumer.poll_batches(1000):
                found[batch.partition].frombytes(b"".join(value or b"" for value in batch.columns.values))
    if sys.byteorder == "big":
        for numbers in found.values():
            numbers.byteswap()
    return found


def test_records_arrive_once_and_in_order_despite_faults(cluster: LocalCluster) -> None:
    create_topic(cluster, "faults")
    faults = Faults(cluster, "faults", random.Random(7)).all() * ROUNDS
    step = max(1, RECORDS // (len(faults) * PARTITIONS * STEPS))
    properties = {"bootstrap.servers": cluster.bootstrap, **PATIENT}
    failures: list[Exception] = []
    producer = Producer(properties, network=cut_network(3, 20_000))

    def note(done: SendResponse) -> None:
        if done.error is not None:
            failures.append(done.error)

    def send(sent: int) -> int:
        for _ in range(STEPS):
            values = column(range(sent, sent + step))
            for partition in range(PARTITIONS):
                response = producer.send_many("faults", values, partition=partition)
                response.on_completion(note)
            sent += step
            time.sleep(STEP_S)
        return sent

    sent = 0
    # The faults run in this thread, because a started process ends with the thread that started it.
    with ThreadPoolExecutor(1) as pool:
        for fault in faults:
            started = time.monotonic()
            sending = pool.submit(send, sent)
            fault()
            sent = sending.result(PATIENCE_MS / 1000)
            print(f"{fault.__name__}: {sent * PARTITIONS} sent, {time.monotonic() - started:.1f} s")
    assert producer.flush(PATIENCE_MS)
    producer.close()

    assert failures == []
    found = read_numbers(cluster, "faults", seed=4)
    assert {number: len(numbers) for number, numbers in found.items()} == dict.fromkeys(
        range(PARTITIONS), sent
    )
    assert all(numbers == array("Q", range(sent)) for numbers in found.values())
    print(f"{sent * PARTITIONS} records arrived once and in order through {len(faults)} faults")


def test_without_retries_every_lost_record_is_reported(cluster: LocalCluster) -> None:
    create_topic(cluster, "losses")
    properties = {
        **PATIENT,
        "bootstrap.servers": cluster.bootstrap,
        "retries": 0,
        "enable.idempotence": False,
        "batch.size": 500,
    }
    responses: list[SendResponse] = []
    producer = Producer(properties, network=cut_network(5, 3000))

    def send() -> None:
        for number in range(20_000):
            value = number.to_bytes(8, "little")
            responses.append(producer.send(Message("losses", value=value, partition=number % PARTITIONS)))
            if number % 100 == 99:
                time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        Faults(cluster, "losses", random.Random(8)).kill_a_leader()
        sending.result(PATIENCE_MS / 1000)
    with pytest.raises(UndeliveredError) as undelivered:
        producer.flush(PATIENCE_MS)
    producer.close()

    arrived = [number for numbers in read_numbers(cluster, "losses", seed=6).values() for number in numbers]
    failed = {number for number, response in enumerate(responses) if response.error is not None}
    assert undelivered.value.count == len(failed)
    assert all(response.done for response in responses)
    assert all(isinstance(responses[number].error, ClientError | BrokerError) for number in failed)
    assert set(range(len(responses))) - set(arrived) <= failed
    assert len(arrived) == len(set(arrived))
    assert len(failed) > 10, "too few records were lost to test anything"
