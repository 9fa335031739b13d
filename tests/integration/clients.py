"""Calls of a stock client (librdkafka), and of Holdfast's asyncio clients, for the integration tests. Each
call waits for its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast_log import Message
from holdfast_log.aio import AsyncConsumer, AsyncProducer

TIMEOUT_S = 180.0


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, partitions, replicas, config=config or {})
    admin.create_topics([new], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)


def produce(
    bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0, **config: Any
) -> list[int]:
    """Write the values. Returns the offsets at which they were acknowledged."""
    offsets: list[int] = []
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(TIMEOUT_S * 1000), **config}
    )
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0, f"records are unacknowledged after {TIMEOUT_S} s"
    assert not errors, errors
    return offsets


def produce_error(bootstrap: str, topic: str, **config: Any) -> int | None:
    """Write one record. Returns the error code of its refusal, or None if it was accepted."""
    errors: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(TIMEOUT_S * 1000), **config}
    )
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0, f"the broker did not answer within {TIMEOUT_S} s"
    (error,) = errors
    return None if error is None else int(error.code())


class Idempotent:
    """An idempotent producer that writes one record at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
            }
        )

    def write(self, topic: str, partition: int, value: bytes) -> Any:
        """Returns None once the record is acknowledged, or the error of its refusal.

        Raises KafkaException if librdkafka does not take the record because it holds the topic for failed.
        """
        errors: list[Any] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, message: errors.append(error)
        )
        assert self._producer.flush(TIMEOUT_S) == 0, f"the broker did not answer within {TIMEOUT_S} s"
        (error,) = errors
        return error


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)


def consume(
    bootstrap: str, topic: str, count: int, partition: int = 0, offset: int = 0, **config: Any
) -> list[bytes]:
    """Read `count` records from `offset`. Returns their values."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "scenario", "enable.auto.commit": False, **config}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), timeout=TIMEOUT_S)
            assert messages, f"only {len(values)} of {count} records arrived"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value())
        return values
    finally:
        consumer.close()


async def round_trip_in_loop(properties: dict[str, Any], topic: str, group: str = "asyncio") -> bytes | None:
    """Write a value with Holdfast's asyncio producer, and read it with its consumer, in a group."""
    async with AsyncProducer(properties) as producer:
        await producer.publish(Message(topic, value=b"value"))
    reading = {**properties, "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(reading) as consumer:
        await consumer.add_topic(topic)
        record = await asyncio.wait_for(anext(consumer), TIMEOUT_S)
        await consumer.commit()
    return record.value
