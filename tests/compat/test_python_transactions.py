"""Transactions of kafka-python 3 and aiokafka: commit, abort, offsets of a group, fencing. What is committed
is read by the client itself and by confluent-kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import consume, create_topic

kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")
confluent = pytest.importorskip("confluent_kafka")

WAIT_S = 120
COMMITTED = [b"first", b"second"]
STEPS = ((b"first", 5, True), (b"no", 6, False), (b"second", 7, True))
"""The value and the offset that each transaction writes, and whether it is committed."""
OPEN = {"transaction_timeout_ms": 600_000}
"""A busy machine may hold up a transaction for longer than the minute that is the default."""

Committed = Callable[[], int]
"""Returns the group's committed offset."""


def _kafka_python(bootstrap: str, read: str, written: str, committed: Committed) -> list[bytes]:
    patient = {"bootstrap_timeout_ms": WAIT_S * 1000}
    config: dict[str, Any] = {"bootstrap_servers": bootstrap, "transactional_id": written, **patient, **OPEN}
    producer = kafka.KafkaProducer(**config)
    producer.init_transactions()
    expected = -1001
    for value, offset, is_commit in STEPS:
        producer.begin_transaction()
        producer.send(written, value, partition=0).get(WAIT_S)
        offsets = {kafka.TopicPartition(read, 0): kafka.OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, read)
        if is_commit:
            producer.commit_transaction()
            expected = offset
        else:
            producer.abort_transaction()
        assert committed() == expected

    successor = kafka.KafkaProducer(**config)
    successor.init_transactions()
    with pytest.raises((kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)):
        producer.begin_transaction()
        producer.send(written, b"late", partition=0).get(WAIT_S)
        producer.commit_transaction()
    producer.close(1)
    successor.close(1)

    reader = kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", **patient)
    reader.assign([kafka.TopicPartition(written, 0)])
    reader.seek_to_beginning()
    found: list[bytes] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(found) < len(COMMITTED) and time.monotonic() < deadline_s:
        for records in reader.poll(1_000).values():
            found += [record.value for record in records]
    reader.close()
    return found


def _aiokafka(bootstrap: str, read: str, written: str, committed: Committed) -> list[bytes]:
    return asyncio.run(_with_aiokafka(bootstrap, read, written, committed))


async def _with_aiokafka(bootstrap: str, read: str, written: str, committed: Committed) -> list[bytes]:
    config: dict[str, Any] = {"bootstrap_servers": bootstrap, "transactional_id": written, **OPEN}
    producer = aiokafka.AIOKafkaProducer(**config)
    await producer.start()
    expected = -1001
    for value, offset, is_commit in STEPS:
        await producer.begin_transaction()
        await producer.send_and_wait(written, value, partition=0)
        await producer.send_offsets_to_transaction({aiokafka.TopicPartition(read, 0): offset}, read)
        if is_commit:
            await producer.commit_transaction()
            expected = offset
        else:
            await producer.abort_transaction()
        assert await asyncio.to_thread(committed) == expected

    successor = aiokafka.AIOKafkaProducer(**config)
    await successor.start()
    with pytest.raises(aiokafka.errors.ProducerFenced):
        await producer.begin_transaction()
        await asyncio.wait_for(producer.send_and_wait(written, b"late", partition=0), WAIT_S)
        await producer.commit_transaction()
    with suppress(aiokafka.errors.ProducerFenced):  # It may say so again when it stops.
        await producer.stop()
    await successor.stop()

    reader = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    reader.assign([aiokafka.TopicPartition(written, 0)])
    await reader.start()
    found = [(await asyncio.wait_for(reader.getone(), WAIT_S)).value for _ in COMMITTED]
    await reader.stop()
    return found


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start()[0]


@pytest.mark.parametrize(
    "client", [pytest.param(_kafka_python, id="kafka-python"), pytest.param(_aiokafka, id="aiokafka")]
)
def test_records_and_offsets_count_together_and_a_successor_fences(
    broker: BackgroundBroker, client: Callable[[str, str, str, Committed], list[bytes]]
) -> None:
    bootstrap, name = broker.address, client.__name__.strip("_")
    read, written = f"read-{name}", f"written-{name}"
    create_topic(bootstrap, read)
    create_topic(bootstrap, written)
    asking = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": read})

    def committed() -> int:
        (found,) = asking.committed([confluent.TopicPartition(read, 0)], WAIT_S)
        return int(found.offset)

    try:
        assert client(bootstrap, read, written, committed) == COMMITTED
    finally:
        asking.close()
    found = consume(bootstrap, written, len(COMMITTED), **{"isolation.level": "read_committed"})
    assert found == COMMITTED
