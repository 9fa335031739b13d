"""A broker with few file descriptors: neither idle connections nor many partitions make its logs go
offline."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce

LIMIT = 256
LAUNCHER = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh")
PARTITIONS = LIMIT + 64


@pytest.fixture
def broker(cluster: Cluster) -> Iterator[BackgroundBroker]:
    """A running broker with 256 file descriptors."""
    broker = cluster.add(launcher=LAUNCHER)
    broker.start()
    broker.wait_ready()
    yield broker
    assert "offline" not in broker.log


def test_idle_connections_up_to_the_limit_leave_descriptors_for_the_log(broker: BackgroundBroker) -> None:
    idle = [socket.create_connection((broker.host, broker.port), TIMEOUT_S) for _ in range(LIMIT)]
    # The broker accepts connections in order, so once it refuses the last one, it has accepted or refused
    # all.
    idle[-1].settimeout(TIMEOUT_S)
    assert idle[-1].recv(1) == b""
    assert broker.log.count("Refusing connections") >= 1
    assert "ulimit -n" in broker.log
    for connection in idle[:20]:
        connection.close()
    create_topic(broker.address, "flights", partitions=40)
    assert produce(broker.address, "flights", [b"a", b"b"], partition=39) == [0, 1]
    assert consume(broker.address, "flights", 2, partition=39) == [b"a", b"b"]
    broker.restart()
    assert consume(broker.address, "flights", 2, partition=39) == [b"a", b"b"]
    for connection in idle:
        connection.close()


def test_a_topic_may_have_more_partitions_than_there_are_descriptors(broker: BackgroundBroker) -> None:
    create_topic(broker.address, "flights", partitions=PARTITIONS)
    for _ in range(2):
        errors: list[object] = []
        producer = Producer(
            {"bootstrap.servers": broker.address, "message.timeout.ms": int(TIMEOUT_S * 1000)}
        )
        for partition in range(PARTITIONS):
            producer.produce(
                "flights",
                b"x",
                partition=partition,
                on_delivery=lambda error, message, errors=errors: errors.append(error),
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == [None] * PARTITIONS
    broker.kill()
    broker.start()
    broker.wait_ready()
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "all", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("flights", partition, 0) for partition in range(PARTITIONS)])
        seen: set[tuple[int, int]] = set()
        while len(seen) < 2 * PARTITIONS:
            messages = consumer.consume(min(100, 2 * PARTITIONS - len(seen)), timeout=TIMEOUT_S)
            assert messages, f"{len(seen)} records came"
            for message in messages:
                assert message.error() is None, message.error()
                seen.add((message.partition(), message.offset()))
    finally:
        consumer.close()
