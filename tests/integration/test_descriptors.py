"""A broker with few file descriptors: neither idle connections nor many partitions make its logs go
offline."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce
from tests.integration.raw_socket import request_frame
from tests.integration.waiting import until

LIMIT = 256
LAUNCHER = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh")
PARTITIONS = LIMIT + 64
USUAL_LIMIT = 1024
STRANGERS = 600
"""More than a broker has connections for with the usual limit of open files."""
ADDRESSES = 10
LINES_MAX = 20


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
    # The oldest goes for the first one that is too many.
    until(lambda: "Closing connection" in broker.log)
    create_topic(broker.address, "flights", partitions=40)
    assert produce(broker.address, "flights", [b"a", b"b"], partition=39) == [0, 1]
    assert consume(broker.address, "flights", 2, partition=39) == [b"a", b"b"]
    broker.restart()
    assert consume(broker.address, "flights", 2, partition=39) == [b"a", b"b"]
    for connection in idle:
        connection.close()


@pytest.mark.parametrize("asks", [False, True], ids=["silent", "with one request each"])
def test_idle_strangers_keep_neither_clients_nor_brokers_out(cluster: Cluster, asks: bool) -> None:
    launcher = ("sh", "-c", f'ulimit -n {USUAL_LIMIT} && exec "$@"', "sh")
    first, second = cluster.add(launcher=launcher), cluster.add(launcher=launcher)
    first.start()
    first.wait_ready()
    question = request_frame(ApiVersionsRequest(), 0)
    strangers = []
    for number in range(STRANGERS):
        # Each address of loopback is one of its own to the broker.
        source = (f"127.0.1.{1 + number % ADDRESSES}", 0)
        stranger = socket.create_connection((first.host, first.port), TIMEOUT_S, source_address=source)
        strangers.append(stranger)
        if asks:
            stranger.sendall(question)
    until(lambda: "are open, and it was idle for the longest time" in first.log)

    second.start()
    second.wait_ready(2)
    create_topic(first.address, "flights", replicas=2, config={"min.insync.replicas": "2"})
    for value in (b"a", b"b", b"c"):
        produce(first.address, "flights", [value], acks="all")
    assert consume(first.address, "flights", 3) == [b"a", b"b", b"c"]
    assert first.log.count("it was idle for the longest time") < LINES_MAX, "the log is bounded"
    for stranger in strangers:
        stranger.close()


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
