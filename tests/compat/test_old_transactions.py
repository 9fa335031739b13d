"""A log directory with committed, aborted and open transactions moves from Apache Kafka to Holdfast and back.

A producer begins a transaction with one of them and ends it with the other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin
from tests.cluster import Cluster
from tests.compat.apache_kafka import KafkaBroker, class_path
from tests.compat.test_old_logs import check_by_kafka, complaints_about_logs, consumer_of, patiently
from tests.forked_brokers import ForkedBroker
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(1500)

WAIT_S = 120
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.segment.bytes": "4000",
    "log.index.interval.bytes": "200",
}
"""Small segments, so that transactions and their markers lie in several."""
EACH = 30
"""Records of a transaction."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    class_path()  # Skip before anything is started.
    return tmp_path


def producer_of(broker: BackgroundBroker, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "batch.num.messages": 10,
            "log_level": 0,
        }
    )
    patiently(lambda: producer.init_transactions(WAIT_S))
    return producer


def write(producer: Producer, mark: str) -> list[bytes]:
    """Write the records of a transaction, and leave it open. Returns the records."""
    values = [f"{mark}-{number}".encode().ljust(60) for number in range(EACH)]
    producer.begin_transaction()
    for value in values:
        producer.produce("journal", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    return values


def commit_with_offset(broker: BackgroundBroker, producer: Producer, offset: int) -> None:
    member: Any = consumer_of(broker, "bookkeeping")
    position = [TopicPartition("journal", 0, offset)]
    producer.send_offsets_to_transaction(position, member.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    member.close()


def committed_offset(broker: BackgroundBroker) -> int:
    consumer = consumer_of(broker, "bookkeeping")
    (found,) = patiently(lambda: consumer.committed([TopicPartition("journal", 0)], timeout=10))
    consumer.close()
    return int(found.offset)


def committed_values(broker: BackgroundBroker, count: int) -> list[bytes | None]:
    """The records that readers of committed records see: it waits for so many, and a moment for more."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("journal", 0, 0)])
    found: list[bytes | None] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline_s:
        found += [message.value() for message in consumer.consume(500, 1.0) if message.error() is None]
    found += [message.value() for message in consumer.consume(500, 1.0) if message.error() is None]
    consumer.close()
    return found


class History:
    """What is committed in the journal, in the order of its offsets."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def round(self, broker: BackgroundBroker, mark: str, offset: int) -> Producer:
        """Have a broker write three transactions: one that is committed, with an offset of a group, one that
        is aborted, and one that stays open, whose producer is returned."""
        closed = producer_of(broker, f"closed-{mark}")
        self.values += write(closed, f"{mark}-committed")
        commit_with_offset(broker, closed, offset)
        write(closed, f"{mark}-aborted")
        closed.abort_transaction(WAIT_S)
        assert committed_values(broker, len(self.values)) == self.values
        opened = producer_of(broker, f"open-{mark}")
        self.values += write(opened, f"{mark}-open")
        return opened

    def check(self, broker: BackgroundBroker, opened: Producer, offset: int) -> None:
        """A broker that took the directory over: the open transaction is open, and can be committed."""
        closed = len(self.values) - EACH
        assert committed_values(broker, closed) == self.values[:closed]
        assert committed_offset(broker) == offset
        opened.commit_transaction(WAIT_S)
        assert committed_values(broker, len(self.values)) == self.values


def open_transactions(broker: BackgroundBroker) -> list[str]:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        return [each.transactional_id for each in admin.list_transactions(["Ongoing"])]


def test_transactions_move_from_kafka_to_holdfast_and_back(cluster: Cluster, directory: Path) -> None:
    zookeeper, history = cluster.zookeeper_connect, History()
    kafka = KafkaBroker(directory / "1", broker_id=1, zookeeper_connect=zookeeper, properties=SETTINGS)
    properties = {**SETTINGS, "log.dirs": kafka.properties["log.dirs"]}
    ours = ForkedBroker(
        directory / "1", broker_id=1, zookeeper_connect=zookeeper, port=kafka.port, properties=properties
    )
    try:
        kafka.start()
        kafka.wait_ready()
        creator = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
        creator.create_topics([NewTopic("journal", 1, 1)])["journal"].result(WAIT_S)
        opened = history.round(kafka, "kafka", 11)
        kafka.stop()

        ours.start()
        ours.wait_ready()
        until(lambda: open_transactions(ours) == ["open-kafka"])
        history.check(ours, opened, 11)
        opened = history.round(ours, "ours", 22)
        ours.stop()
        check_by_kafka(ours, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")

        kafka.start()
        kafka.wait_ready()
        until(lambda: open_transactions(kafka) == ["open-ours"])
        history.check(kafka, opened, 22)
        opened = history.round(kafka, "again", 33)
        assert complaints_about_logs(kafka) == []
        kafka.kill()

        ours.start()
        ours.wait_ready()
        history.check(ours, opened, 33)
    finally:
        for broker in (kafka, ours):
            broker.stop()
        print(f"--- Kafka's log\n{kafka.log[-6000:]}\n--- ours\n{ours.log[-3000:]}")
