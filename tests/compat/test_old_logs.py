"""A log directory moves from Apache Kafka to Holdfast and back, and each reads what the other wrote."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin
from holdfast_log.protocol.topic_partition import TopicPartition as Partition
from tests.cluster import Cluster
from tests.compat.apache_kafka import KafkaBroker, class_path, dump
from tests.forked_brokers import ForkedBroker
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(1500)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 150
"""Records that are written in each codec."""
WAIT_S = 240.0
BEFORE = {
    "log.segment.bytes": "16000",
    "log.index.interval.bytes": "200",
    "log.cleaner.enable": "false",
}
"""All records stay, so that they can be compared."""
COMPLAINTS = ("mismatch", "found", "error", "exception", "invalid", "out of order")
"""What DumpLogSegments prints of a file with which something is wrong."""

T = TypeVar("T")
Rows = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value of each record."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    class_path()  # Skip before anything is started.
    return tmp_path


def write(broker: BackgroundBroker, codec: str, mark: str) -> None:
    """Write records of several batches to both topics, with an idempotent producer."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "log_level": 0,
        }
    )
    for number in range(EACH):
        producer.produce("orders", key=f"{mark}-{number}", value=os.urandom(100) + b"x" * 100)
        producer.produce("latest", key=f"{number % 10}", value=f"{mark}-{number}")
    assert producer.flush(WAIT_S) == 0


def consumer_of(broker: BackgroundBroker, group: str = "reader") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )


def patiently(call: Callable[[], T]) -> T:
    """The result of a call that is repeated while a broker that has just started refuses it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def records_of(broker: BackgroundBroker, topic: str) -> Rows:
    """All records of a topic's only partition, from its beginning on."""
    consumer = consumer_of(broker)
    try:
        start, end = patiently(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10))
        consumer.assign([TopicPartition(topic, 0, start)])
        rows: Rows = []
        while not rows or rows[-1][0] < end - 1:
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None, message
            offset = message.offset()
            assert offset is not None
            rows.append((offset, message.key(), message.value()))
        return rows
    finally:
        consumer.close()


def commit(broker: BackgroundBroker, offset: int) -> None:
    consumer = consumer_of(broker, "bookkeeping")
    offsets = [TopicPartition("orders", 0, offset)]
    patiently(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    consumer.close()


def committed(broker: BackgroundBroker) -> int:
    consumer = consumer_of(broker, "bookkeeping")
    (found,) = patiently(lambda: consumer.committed([TopicPartition("orders", 0)], timeout=10))
    consumer.close()
    return int(found.offset)


def files_of(broker: BackgroundBroker, kinds: tuple[str, ...]) -> Iterator[str]:
    """The files of all partitions of a broker."""
    for partition in sorted(broker.log_dirs[0].glob("*-0")):
        yield from sorted(str(path) for path in partition.iterdir() if path.suffix in kinds)


def check_by_kafka(broker: BackgroundBroker, *kinds: str) -> None:
    """Have DumpLogSegments read a broker's files and compare the indexes with the logs."""
    files = list(files_of(broker, kinds))
    printed = dump("--deep-iteration", "--files", ",".join(files))
    assert printed.count("Dumping ") == len(files)
    lines = printed.splitlines()
    assert [line for line in lines if any(word in line.lower() for word in COMPLAINTS)] == []


def complaints_about_logs(kafka: KafkaBroker) -> list[str]:
    """What Kafka has logged as wrong about the content of its log directory."""
    return [
        line
        for line in kafka.log.splitlines()
        if (" WARN " in line or " ERROR " in line) and ("(kafka.log" in line or "storage.internals" in line)
    ]


def create_topics(broker: BackgroundBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    topics = [NewTopic("orders", 1, 1), NewTopic("latest", 1, 1, config={"cleanup.policy": "compact"})]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)


def replicate(broker: BackgroundBroker, onto: int) -> None:
    """Give every partition a second replica, and wait until it is in sync."""
    partitions = [Partition("orders", 0), Partition("latest", 0)]
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.alter_partition_reassignments(dict.fromkeys(partitions, (1, onto)))
        until(lambda: not admin.list_partition_reassignments())

        def are_in_sync() -> bool:
            # The broker that is asked may learn of the end later than the controller, which lists moves.
            topics = admin.describe_topics(["orders", "latest"])
            return all(sorted(topic.partitions[0].isr) == [1, onto] for topic in topics)

        until(are_in_sync)


def test_a_directory_moves_from_kafka_to_holdfast_and_back(cluster: Cluster, directory: Path) -> None:
    """Both ways after a clean stop, and once more to Holdfast after Kafka was killed."""
    zookeeper = cluster.zookeeper_connect
    kafka = KafkaBroker(
        directory / "1",
        broker_id=1,
        zookeeper_connect=zookeeper,
        properties=BEFORE,
    )
    properties = {**BEFORE, "log.dirs": kafka.properties["log.dirs"]}
    ours = ForkedBroker(
        directory / "1", broker_id=1, zookeeper_connect=zookeeper, port=kafka.port, properties=properties
    )
    second = ForkedBroker(directory / "2", broker_id=2, zookeeper_connect=zookeeper, properties=BEFORE)
    try:
        written = begin_with_kafka(kafka)
        for broker in (ours, second):
            broker.start()
        for broker in (ours, second):
            broker.wait_ready(2)
        assert {topic: records_of(ours, topic) for topic in written} == written
        assert committed(ours) == 123
        written = go_on_with_holdfast(ours, second)

        kafka.start()
        kafka.wait_ready()
        assert {topic: records_of(kafka, topic) for topic in written} == written
        assert committed(kafka) == 456
        assert complaints_about_logs(kafka) == []
        write(kafka, "none", "again")
        written = {topic: records_of(kafka, topic) for topic in written}
        # The index files of the last segments keep their full size, with zeros behind the entries.
        kafka.kill()

        ours.start()
        ours.wait_ready()
        assert {topic: records_of(ours, topic)[-2 * EACH :] for topic in written} == {
            topic: rows[-2 * EACH :] for topic, rows in written.items()
        }
        ours.kill()
        check_by_kafka(ours, ".log", ".index", ".timeindex")
    finally:
        for broker in (kafka, ours, second):
            broker.stop()


def begin_with_kafka(kafka: KafkaBroker) -> dict[str, Rows]:
    """Have Kafka write records in every codec and a group's offset, and stop it. Returns the records."""
    kafka.start()
    kafka.wait_ready()
    create_topics(kafka)
    for codec in CODECS:
        write(kafka, codec, codec)
    commit(kafka, 123)
    written = {topic: records_of(kafka, topic) for topic in ("orders", "latest")}
    assert len(written["orders"]) == len(CODECS) * EACH
    kafka.stop()
    return written


def go_on_with_holdfast(ours: BackgroundBroker, second: BackgroundBroker) -> dict[str, Rows]:
    """Replicate the topics, write and delete records, have Kafka's tool examine the files of both running
    brokers, and stop both. Returns the records that are left."""
    replicate(ours, onto=2)
    write(ours, "lz4", "ours")
    commit(ours, 456)
    with Admin({"bootstrap.servers": ours.address}) as admin:
        admin.delete_records({Partition("orders", 0): 99})
    written = {topic: records_of(ours, topic) for topic in ("orders", "latest")}
    assert written["orders"][0][0] == 99
    assert len(written["latest"]) == (len(CODECS) + 1) * EACH
    for broker in (ours, second):
        check_by_kafka(broker, ".log", ".index", ".timeindex")
    second.stop()
    ours.stop()
    check_by_kafka(ours, ".log", ".index", ".timeindex", ".snapshot")
    return written
