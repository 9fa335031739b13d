"""Consumers that lose nothing and hide nothing, on a real broker: unreadable records, slow handlers, unknown
topics."""

from __future__ import annotations

import time

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.dead_letter import DeadLetterTopic
from holdfast_log.clients.errors import RecordDeserializationError
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import BackgroundBroker

WAIT_S = 240
BAD = 150


def to_int(topic: str, value: bytes) -> int:
    return int(value)


def write_three_batches(broker: BackgroundBroker, topic: str) -> None:
    """300 numbers in 3 batches; the value at offset `BAD` is no number."""
    values = [b"%d" % number for number in range(300)]
    values[BAD] = b"bad"
    with Producer({"bootstrap.servers": broker.address}) as producer:
        for start in (0, 100, 200):
            producer.send_many(topic, values[start : start + 100], partition=0).result(60_000)


def read_until(
    consumer: Consumer, count: int
) -> tuple[list[ConsumerRecord], list[RecordDeserializationError]]:
    """Records, until there are `count` of them or a record cannot be read."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records within {WAIT_S} s"
        try:
            records += consumer.poll(1000)
        except RecordDeserializationError as error:
            return records, [error]
    return records, []


def test_an_unreadable_record_costs_no_other_record(broker: BackgroundBroker, topic: str) -> None:
    write_three_batches(broker, topic)
    here = TopicPartition(topic, 0)
    properties = {
        "bootstrap.servers": broker.address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 0,
    }
    with Consumer(properties, value_deserializer=to_int) as consumer:
        consumer.add_topic(topic)
        before, (error,) = read_until(consumer, 300)
        assert [record.offset for record in before] == list(range(BAD))
        assert (error.offset, error.value) == (BAD, b"bad")
    with Consumer(properties, value_deserializer=to_int) as consumer:
        consumer.add_topic(topic)
        again, (error,) = read_until(consumer, 300)
        assert again == [] and error.offset == BAD, "the group has committed up to the unreadable record"
        consumer.seek(here, BAD + 1)
        after, errors = read_until(consumer, 149)
        assert [record.value for record in after] == list(range(BAD + 1, 300)) and errors == []
        consumer.commit()
        committed = consumer.committed([here])[here]
    assert committed is not None and committed.offset == 300


@pytest.mark.parametrize("protocol", ["classic", "managed"])
def test_a_handler_may_take_longer_than_the_session(
    broker: BackgroundBroker, topic: str, protocol: str
) -> None:
    topic = topic.partition("[")[0] + protocol
    with Producer({"bootstrap.servers": broker.address}) as producer:
        producer.send_many(topic, [b"0", b"1", b"2"], partition=0).result(60_000)
    properties = {
        "bootstrap.servers": broker.address,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 12_000,
        "heartbeat.interval.ms": 500,
        "max.poll.records": 1,
    }
    with Consumer(properties) as consumer:
        consumer.add_topic(topic)
        (first,), _ = read_until(consumer, 1)
        generation = consumer.group_identity().generation
        time.sleep(15)  # Longer than the session.
        consumer.commit()
        (second,), _ = read_until(consumer, 1)
        assert (first.offset, second.offset) == (0, 1)
        assert consumer.group_identity().generation == generation


def test_an_unreadable_record_is_found_in_the_dead_letter_topic(broker: BackgroundBroker, topic: str) -> None:
    write_three_batches(broker, topic)
    properties = {"bootstrap.servers": broker.address, "auto.offset.reset": "earliest"}
    letters = f"{topic}-letters"
    with (
        Producer({"bootstrap.servers": broker.address}) as producer,
        Consumer(
            {**properties, "deserialization.errors": "dead-letter"},
            value_deserializer=to_int,
            dead_letter=DeadLetterTopic(producer, letters),
        ) as consumer,
    ):
        consumer.add_topic(topic)
        records, errors = read_until(consumer, 299)
    with Consumer(properties) as consumer:
        consumer.add_topic(letters)
        (letter,), _ = read_until(consumer, 1)

    assert [record.offset for record in records] == [n for n in range(300) if n != BAD] and errors == []
    headers = dict(letter.headers)
    assert letter.value == b"bad"
    assert headers["__holdfast.errors.topic"] == topic.encode()
    assert headers["__holdfast.errors.offset"] == b"%d" % BAD
