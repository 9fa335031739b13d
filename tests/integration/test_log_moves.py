"""Replicas move between the log directories of a broker under load, also while it is killed (KIP-113)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka.admin import KafkaAdminClient

from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.owners import wait_for_leader

TOPIC = "moving"
WAIT_S = 240.0
RECORD = bytes(2_000)
PROPERTIES = {"log.segment.bytes": "1000000", "log.segment.delete.delay.ms": "500"}


class Writer:
    """Writes one partition, and remembers what was acknowledged, by offset."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[int, int] = {}
        self._sent = 0

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self._sent += 1
            key, delivered = b"%d" % self._sent, self._delivered(self._sent)
            self._producer.produce(TOPIC, RECORD, key, partition=0, on_delivery=delivered)
            self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        assert len(self.acknowledged) == self._sent

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.acknowledged[message.offset()] = number

        return delivered


def read(address: str, count: int) -> dict[int, int]:
    """The numbers of the first records, by offset."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([ConfluentPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: dict[int, int] = {}
    end_s = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < end_s, f"{len(found)} of {count}"
        for message in consumer.consume(1_000, 1.0):
            assert message.error() is None, message.error()
            found[message.offset()] = int(message.key())
    consumer.close()
    return found


@pytest.fixture
def broker(cluster: Cluster, tmp_path: Path) -> BackgroundBroker:
    paths = [str(tmp_path / name) for name in ("first", "second")]
    (broker,) = cluster.start(1, {**PROPERTIES, "log.dirs": ",".join(paths)})
    return broker


@pytest.fixture
def writer(broker: BackgroundBroker) -> Iterator[Writer]:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
    writer = Writer(broker.address)
    writer.write(5_000)
    writer.finish()
    yield writer


def places(broker: BackgroundBroker) -> list[Path]:
    """The directories that have the log."""
    return [path for path in broker.log_dirs if (path / f"{TOPIC}-0").exists()]


def other_place(broker: BackgroundBroker) -> Path:
    (place,) = places(broker)
    return next(path for path in broker.log_dirs if path != place)


def move(broker: BackgroundBroker, target: Path) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        (error,) = admin.alter_replica_log_dirs({(TOPIC, 0, broker.broker_id): str(target)}).values()
        assert error.errno == 0, error
    finally:
        admin.close()


def rows(broker: BackgroundBroker) -> dict[tuple[str, bool], int]:
    """The lag of the replica, by its directory and whether it is a future one, as DescribeLogDirs has it."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        (described,) = admin.describe_log_dirs()
    finally:
        admin.close()
    return {
        (directory["log_dir"], partition["is_future_key"]): partition["offset_lag"]
        for directory in described["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
        if topic["name"] == TOPIC
    }


def until(condition: Callable[[], bool], writer: Writer) -> None:
    """Write until the condition holds."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        writer.write(20)
        time.sleep(0.02)


def is_at(broker: BackgroundBroker, place: Path) -> bool:
    return places(broker) == [place] and not (place / f"{TOPIC}-0" / "move-unfinished").exists()


@pytest.mark.timeout(900)
def test_a_replica_moves_there_and_back_while_it_is_written(broker: BackgroundBroker, writer: Writer) -> None:
    for _ in range(2):
        target = other_place(broker)
        move(broker, target)
        assert {is_future for _, is_future in rows(broker)} <= {True, False}
        until(lambda target=target: is_at(broker, target), writer)
        until(lambda target=target: rows(broker) == {(str(target), False): 0}, writer)
    writer.finish()
    assert read(broker.address, len(writer.acknowledged)) == writer.acknowledged
    broker.stop()
    broker.start()
    broker.wait_ready()
    assert read(broker.address, len(writer.acknowledged)) == writer.acknowledged


@pytest.mark.timeout(1_200)
def test_a_broker_that_is_killed_during_a_move_loses_nothing_and_finishes_it(
    broker: BackgroundBroker, writer: Writer
) -> None:
    for number in range(6):
        target = other_place(broker)
        move(broker, target)
        writer.write(200)
        time.sleep(0.05 * number)
        broker.kill()
        broker.start()
        broker.wait_ready()
        wait_for_leader([broker], TOPIC)
        move(broker, target)  # as a tool that has lost its answer
        until(lambda target=target: is_at(broker, target), writer)
    writer.finish()
    assert read(broker.address, len(writer.acknowledged)) == writer.acknowledged
    assert [path.name for place in broker.log_dirs for path in place.glob("*-future")] == []
