"""Our clients against the mock brokers that are part of librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as StockProducer

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import ConsumerRecord, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.messages.join_group import JoinGroupRequest
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.integration.waiting import until

BROKERS = 3
WAIT_MS = 120_000
PATIENT = {"request.timeout.ms": WAIT_MS}
"""The mock cluster writes a batch again that a producer sends again because its answer is late."""
PATIENT_PRODUCER = {**PATIENT, "delivery.timeout.ms": 3 * WAIT_MS}
PARTITIONS = 4  # Partitions of a topic that the mock cluster creates automatically.


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The addresses of mock brokers, which live as long as the librdkafka client that contains them."""
    owner = StockProducer({"bootstrap.servers": "nowhere", "test.mock.num.brokers": BROKERS, "log_level": 3})
    brokers = owner.list_topics(timeout=120).brokers.values()
    assert len(brokers) == BROKERS
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        more = consumer.poll(WAIT_MS)
        assert more, f"only {len(records)} of {count} records arrived"
        records += more
    return records


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_produced_records_are_consumed(bootstrap: str, codec: str) -> None:
    topic = f"codec-{codec}"
    values = [b"%06d" % number for number in range(5000)]
    with Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, **PATIENT_PRODUCER}
    ) as producer:
        single = producer.send(Message(topic, "key", "single", headers=[("h", b"1")])).result(WAIT_MS)
        bulk = producer.send_many(topic, values)
        keyed = producer.send_many(topic, values, keys=values)
        assert producer.flush(WAIT_MS)
    assert (bulk.error, keyed.error) == (None, None)
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(topic)
        records = read(consumer, 10_001)

    assert sorted(record.value for record in records) == sorted([b"single", *values, *values])
    (first,) = [record for record in records if record.value == b"single"]
    assert (first.partition, first.offset, first.key) == (single.partition, single.offset, b"key")
    assert first.headers == (("h", b"1"),)
    places = {record.key: record.partition for record in records if record.key in values}
    assert len(set(places.values())) == PARTITIONS


def test_offsets_positions_and_metadata_are_read(bootstrap: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, **PATIENT_PRODUCER}) as producer:
        producer.send_many("offsets", [b"v"] * 10, partition=0)
    key = TopicPartition("offsets", 0)
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(*key)
        assert consumer.beginning_offsets([key]) == {key: 0}
        assert consumer.end_offsets([key]) == {key: 10}
        consumer.seek(key, 7)
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]
        assert consumer.position(key) == 10 and consumer.lag(key) == 0
        assert "offsets" in consumer.topics()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (topic,) = admin.describe_topics(["offsets"])
    assert len(topic.partitions) == PARTITIONS


READ_BY_THE_MOCK = {JoinGroupRequest: 5, SyncGroupRequest: 3, LeaveGroupRequest: 1}
"""Highest versions that the mock cluster handles. It announces later ones, but fails to decode them
("Protocol read buffer underflow for SyncGroup v4") or answers them in an older format (LeaveGroup)."""


def test_a_group_is_joined_and_its_offsets_are_committed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_for = Conversation.version_for

    def readable(wire: Conversation, request: Any) -> int:
        return min(version_for(wire, request), READ_BY_THE_MOCK.get(type(request), 2**15))

    monkeypatch.setattr(Conversation, "version_for", readable)
    with Producer({"bootstrap.servers": bootstrap, **PATIENT_PRODUCER}) as producer:
        producer.send_many("grouped", [b"%d" % number for number in range(100)], partition=1)
    properties = {
        "bootstrap.servers": bootstrap,
        "group.id": "ours",
        "auto.offset.reset": "earliest",
        "max.poll.records": 40,
        "enable.auto.commit": False,
    }
    key = TopicPartition("grouped", 1)
    with Consumer(properties) as consumer:
        consumer.add_topic("grouped")
        records = read(consumer, 40)
        consumer.commit()
        committed = consumer.committed([key])[key]

    assert [record.value for record in records] == [b"%d" % number for number in range(40)]
    assert committed is not None and committed.offset == 40


def test_apis_that_the_broker_lacks_are_named_in_the_error(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.metadata.renew()

        def is_ready() -> bool:
            connection.poll(100)
            node = next(iter(connection.metadata.nodes), None)
            return node is not None and connection.open(node) and connection.is_ready(node)

        until(is_ready)
        versions = connection.api_versions(next(iter(connection.metadata.nodes)))
        assert versions is not None and 0 in versions and connection.features() == {}
