"""Driver of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.compat.drivers.workload import (
    PARTITIONS,
    TRANSACTION_S,
    Checker,
    Job,
    key_of,
    late_index,
    partition_of,
    run,
    sharing,
    timed_error,
    value_of,
)

WAIT_S = 120


async def create(job: Job) -> dict[str, Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=job.bootstrap)
    await admin.start()
    answer = await admin.create_topics([NewTopic(job.topic, PARTITIONS, 1)])
    await admin.close()
    assert [error[1] for error in answer.topic_errors] == [0], answer
    return {"created": job.topic}


async def produce(job: Job) -> dict[str, Any]:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        compression_type=None if job.codec == "none" else job.codec,
        enable_idempotence=job.idempotent,
        acks="all",
        linger_ms=20,
        max_batch_size=65536,
        request_timeout_ms=WAIT_S * 1000,  # The records of a late answer are written again.
    )
    await producer.start()
    futures = [
        await producer.send(
            job.topic,
            value_of(index),
            key_of(index),
            partition=partition_of(index),
            timestamp_ms=job.base_ms + index,
        )
        for index in range(job.count)
    ]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    await producer.stop()
    errors = [repr(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    return {"delivered": len(outcomes) - len(errors), "problems": errors[:5]}


async def _read(job: Job, consumer: AIOKafkaConsumer, first_index: int) -> dict[str, Any]:
    checker = Checker(first_index, job.count)
    while not checker.done():
        batches = await consumer.getmany(timeout_ms=WAIT_S * 1000)
        if not batches:
            break
        for messages in batches.values():
            for message in messages:
                stamp = (message.timestamp_type, message.timestamp)
                checker.stamp(message.partition, message.offset, stamp, (0, job.base_ms))
                checker.record(message.partition, message.offset, message.key, message.value)
    return checker.result()


async def consume(job: Job) -> dict[str, Any]:
    late = late_index(job.count)
    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, max_partition_fetch_bytes=4 << 20)
    partitions = [TopicPartition(job.topic, p) for p in range(PARTITIONS)]
    consumer.assign(partitions)
    await consumer.start()
    await consumer.seek_to_beginning(*partitions)
    start = await _read(job, consumer, 0)
    for partition in partitions:
        consumer.seek(partition, late // PARTITIONS)
    offset = await _read(job, consumer, late)
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, job.base_ms + late))
    for partition in partitions:
        consumer.seek(partition, found[partition].offset)
    timestamp = await _read(job, consumer, late)
    await consumer.stop()
    return {"start": start, "offset": offset, "timestamp": timestamp}


async def _send_shared(job: Job, indexes: range) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap)
    await producer.start()
    for index in indexes:
        await producer.send(job.topic, key=key_of(index), value=b"", partition=partition_of(index))
    await producer.stop()


async def _read_shared(job: Job, count: int) -> list[int]:
    consumer = AIOKafkaConsumer(
        job.topic, bootstrap_servers=job.bootstrap, group_id=job.topic, auto_offset_reset="earliest"
    )
    await consumer.start()
    indexes = [int((await asyncio.wait_for(consumer.getone(), WAIT_S)).key) for _ in range(count)]
    await consumer.stop()
    return indexes


def share(job: Job) -> dict[str, Any]:
    return sharing(
        lambda count: asyncio.run(_read_shared(job, count)),
        lambda indexes: asyncio.run(_send_shared(job, indexes)),
    )


async def _config(admin: AIOKafkaAdminClient, topic: str, name: str) -> str:
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    for answer in answers:
        for resource in answer.resources:
            for entry in resource[4]:
                if entry[0] == name:
                    return str(entry[1])
    raise AssertionError(f"{name} is not among the topic's settings")


async def admin(job: Job) -> dict[str, Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=job.bootstrap)
    await client.start()
    topic = job.topic
    await client.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "3600000"})])
    again = await client.create_topics([NewTopic(topic, 1, 1)])
    await client.create_partitions({topic: NewPartitions(4)})
    retention = await _config(client, topic, "retention.ms")
    await client.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "54321"})]
    )
    max_message_bytes = await _config(client, topic, "max.message.bytes")

    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap)
    await producer.start()
    for index in range(10):
        await producer.send_and_wait(topic, b"%d" % index, partition=0)
    await producer.stop()
    where = TopicPartition(topic, 0)
    low = await client.delete_records({where: RecordsToDelete(before_offset=4)})
    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap)
    await consumer.start()
    earliest = (await consumer.beginning_offsets([where]))[where]
    end = (await consumer.end_offsets([where]))[where]
    await consumer.stop()

    described = (await client.describe_topics([topic]))[0]
    cluster = await client.describe_cluster()
    await client.delete_topics([topic])
    gone = topic not in await client.list_topics()
    await client.close()
    return {
        "again": [error[1] for error in again.topic_errors],
        "partitions": len(described["partitions"]),
        "brokers": sorted(broker["node_id"] for broker in cluster["brokers"]),
        "controller": cluster["controller_id"],
        "retention_set_at_creation": retention,
        "max_message_bytes": max_message_bytes,
        "low": low[where],
        "earliest": earliest,
        "end": end,
        "gone": gone,
    }


async def _begin_transaction(job: Job) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, transactional_id=f"{job.topic}-writer")
    try:
        await asyncio.wait_for(producer.start(), TRANSACTION_S)
        await asyncio.wait_for(producer.begin_transaction(), TRANSACTION_S)
        await asyncio.wait_for(producer.send_and_wait(job.topic, b"value"), TRANSACTION_S)
    finally:
        await asyncio.wait_for(producer.stop(), TRANSACTION_S)


def transaction(job: Job) -> dict[str, Any]:
    return timed_error(lambda: asyncio.run(_begin_transaction(job)))


def _blocking(
    action: Callable[[Job], Coroutine[Any, Any, dict[str, Any]]],
) -> Callable[[Job], dict[str, Any]]:
    return lambda job: asyncio.run(action(job))


if __name__ == "__main__":
    run(
        {
            "create": _blocking(create),
            "produce": _blocking(produce),
            "consume": _blocking(consume),
            "share": share,
            "admin": _blocking(admin),
            "transaction": transaction,
        }
    )
