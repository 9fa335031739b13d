"""Compaction by a real broker, seen by confluent-kafka."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.admin.topics import NewTopic
from tests.cluster import BackgroundBroker, Cluster

_TIMEOUT_S = 240.0
_KEYS = 50


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start(
        properties={"log.cleaner.backoff.ms": "100", "offsets.topic.segment.bytes": "2000"}
    )[0]


def create(broker: BackgroundBroker, topic: str, **configs: str) -> None:
    values = {"cleanup.policy": "compact", "segment.bytes": "8000", "min.cleanable.dirty.ratio": "0.01"}
    with Admin({"bootstrap.servers": broker.address}) as admin:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, 1, 1, values | named)])


def produce(broker: BackgroundBroker, topic: str, rows: Iterator[tuple[str, str | None]], codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 1,
        }
    )
    for number, (key, value) in enumerate(rows):
        producer.produce(topic, value, key)
        if number % 20 == 0:
            producer.flush(_TIMEOUT_S)
    assert producer.flush(_TIMEOUT_S) == 0


def consumed(broker: BackgroundBroker, topic: str) -> list[Any]:
    """All messages of partition 0, from the first offset to the end."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = []
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return messages
            messages.append(message)
        raise TimeoutError("the consumer did not reach the end of the partition")
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_consumer_from_the_beginning_sees_the_last_value_of_each_key(
    broker: BackgroundBroker, codec: str
) -> None:
    topic = f"compacted-{codec}"
    create(broker, topic)
    noise = random.Random(1)
    values = [(f"key{number % _KEYS}", f"{number} {noise.randbytes(60).hex()}") for number in range(1500)]
    produce(broker, topic, iter(values), codec)

    deadline = time.monotonic() + _TIMEOUT_S
    messages = consumed(broker, topic)
    while len(messages) > 600 and time.monotonic() < deadline:
        time.sleep(0.2)
        messages = consumed(broker, topic)

    assert len(messages) <= 600
    offsets = [message.offset() for message in messages]
    assert offsets == sorted(set(offsets))
    for message in messages:
        key, value = values[message.offset()]
        assert (message.key().decode(), message.value().decode()) == (key, value)
    last = {message.key().decode(): message.value().decode() for message in messages}
    assert last == dict(values)


def test_a_compacted_log_survives_a_kill_and_accepts_more(cluster: Cluster) -> None:
    (broker,) = cluster.start(properties={"log.cleaner.backoff.ms": "50"})
    create(broker, "t", delete_retention_ms="0")
    rows = [(f"key{number % 10}", f"value{number}" * 10) for number in range(800)]
    produce(broker, "t", iter(rows), "none")
    broker.kill()
    broker.start()
    broker.wait_ready(1)
    produce(broker, "t", ((f"key{number}", None) for number in range(5)), "none")
    produce(broker, "t", (("last", "x" * 1000) for _ in range(40)), "none")

    deadline = time.monotonic() + _TIMEOUT_S
    messages = consumed(broker, "t")
    while len(messages) > 60 and time.monotonic() < deadline:
        time.sleep(0.2)
        messages = consumed(broker, "t")

    last = {message.key().decode(): message.value() for message in messages}
    assert {key for key, value in last.items() if value is not None} == {
        "last", *(f"key{number}" for number in range(5, 10))
    }  # fmt: skip
    assert len(messages) <= 60


def test_group_offsets_are_compacted_and_kept(broker: BackgroundBroker) -> None:
    create(broker, "read")
    produce(broker, "read", iter([("k", "v")]), "none")
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "committing"})
    try:
        for offset in range(200):
            consumer.commit(offsets=[TopicPartition("read", 0, offset)], asynchronous=False)
    finally:
        consumer.close()
    deadline = time.monotonic() + _TIMEOUT_S
    while "Compacted __consumer_offsets-0" not in broker.log and time.monotonic() < deadline:
        time.sleep(0.1)

    assert "Compacted __consumer_offsets-0" in broker.log
    broker.kill()
    broker.start()
    broker.wait_ready(1)
    reader = Consumer({"bootstrap.servers": broker.address, "group.id": "committing"})
    try:
        (committed,) = reader.committed([TopicPartition("read", 0)], timeout=_TIMEOUT_S)
    finally:
        reader.close()
    assert committed.offset == 199
