"""Driver of kafka-python, 2.x or 3.x, whichever the interpreter has installed."""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError

from tests.compat.drivers.kafka_python_topics import MAJOR, PATIENT, PATIENT_ADMIN, PATIENT_PRODUCER
from tests.compat.drivers.workload import (
    PARTITIONS,
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

WAIT_MS = 120_000


def create(job: Job) -> dict[str, Any]:
    admin = KafkaAdminClient(bootstrap_servers=job.bootstrap, **PATIENT_ADMIN)
    admin.create_topics([NewTopic(job.topic, PARTITIONS, 1)])
    admin.close()
    return {"created": job.topic}


def produce(job: Job) -> dict[str, Any]:
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        compression_type=None if job.codec == "none" else job.codec,
        enable_idempotence=job.idempotent,
        acks="all",
        linger_ms=20,
        batch_size=65536,
        **PATIENT_PRODUCER,
    )
    futures = [
        producer.send(
            job.topic,
            value_of(index),
            key_of(index),
            partition=partition_of(index),
            timestamp_ms=job.base_ms + index,
        )
        for index in range(job.count)
    ]
    producer.flush(180)
    delivered = 0
    errors = []
    for future in futures:
        if future.succeeded():
            delivered += 1
        else:
            errors.append(repr(future.exception))
    producer.close()
    return {"delivered": delivered, "problems": errors[:5]}


def _read(job: Job, consumer: KafkaConsumer, first_index: int) -> dict[str, Any]:
    checker = Checker(first_index, job.count)
    for message in consumer:
        stamp = (message.timestamp_type, message.timestamp)
        checker.stamp(message.partition, message.offset, stamp, (0, job.base_ms))
        checker.record(message.partition, message.offset, message.key, message.value)
        if checker.done():
            break
    return checker.result()


def consume(job: Job) -> dict[str, Any]:
    late = late_index(job.count)
    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        consumer_timeout_ms=WAIT_MS,
        max_partition_fetch_bytes=4 << 20,
        max_poll_records=5000,
        **PATIENT,
    )
    partitions = [TopicPartition(job.topic, p) for p in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    start = _read(job, consumer, 0)
    for partition in partitions:
        consumer.seek(partition, late // PARTITIONS)
    offset = _read(job, consumer, late)
    found = consumer.offsets_for_times(dict.fromkeys(partitions, job.base_ms + late))
    for partition in partitions:
        consumer.seek(partition, found[partition].offset)
    timestamp = _read(job, consumer, late)
    consumer.close()
    return {"start": start, "offset": offset, "timestamp": timestamp}


def share(job: Job) -> dict[str, Any]:
    def send(indexes: range) -> None:
        producer = KafkaProducer(bootstrap_servers=job.bootstrap, **PATIENT_PRODUCER)
        for index in indexes:
            producer.send(job.topic, key=key_of(index), value=b"", partition=partition_of(index))
        producer.close()

    def read(count: int) -> list[int]:
        consumer = KafkaConsumer(
            job.topic,
            bootstrap_servers=job.bootstrap,
            group_id=job.topic,
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_MS,
            **PATIENT,
        )
        indexes = [int(message.key) for _, message in zip(range(count), consumer, strict=False)]
        consumer.close()
        return indexes

    return sharing(read, send)


def _config(admin: KafkaAdminClient, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    if MAJOR >= 3:
        return str(admin.describe_configs([resource], config_filter="all")["topic"][topic][name]["value"])
    for answer in admin.describe_configs([resource]):
        for found in answer.resources:
            for entry in found[4]:
                if entry[0] == name:
                    return str(entry[1])
    raise AssertionError(f"{name} is not among the topic's settings")


def admin(job: Job) -> dict[str, Any]:
    client = KafkaAdminClient(bootstrap_servers=job.bootstrap, **PATIENT_ADMIN)
    topic = job.topic
    client.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "3600000"})])
    try:
        client.create_topics([NewTopic(topic, 1, 1)])
        again = "no error"
    except TopicAlreadyExistsError:
        again = "TOPIC_ALREADY_EXISTS"
    client.create_partitions({topic: NewPartitions(4)})
    retention = _config(client, topic, "retention.ms")
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "54321"})])
    max_message_bytes = _config(client, topic, "max.message.bytes")

    producer = KafkaProducer(bootstrap_servers=job.bootstrap, **PATIENT_PRODUCER)
    for index in range(10):
        producer.send(topic, b"%d" % index, partition=0)
    producer.flush()
    producer.close()
    where = TopicPartition(topic, 0)
    deleted = client.delete_records({where: 4})
    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, **PATIENT)
    earliest = consumer.beginning_offsets([where])[where]
    end = consumer.end_offsets([where])[where]
    consumer.close()

    described = client.describe_topics([topic])[0]
    cluster = client.describe_cluster()
    log_dirs = client.describe_log_dirs()
    client.delete_topics([topic])
    gone = topic not in client.list_topics()
    client.close()
    return {
        "again": again,
        "partitions": len(described["partitions"]),
        "brokers": sorted(broker["broker_id" if MAJOR >= 3 else "node_id"] for broker in cluster["brokers"]),
        "controller": cluster["controller_id"],
        "retention_set_at_creation": retention,
        "max_message_bytes": max_message_bytes,
        "earliest": earliest,
        "end": end,
        "deleted": str(deleted),
        "log_dirs": str(log_dirs),
        "gone": gone,
    }


def transaction(job: Job) -> dict[str, Any]:
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=f"{job.topic}-writer", **PATIENT
    )
    try:
        return timed_error(producer.init_transactions)
    finally:
        producer.close(1)


if __name__ == "__main__":
    run(
        {
            "create": create,
            "produce": produce,
            "consume": consume,
            "share": share,
            "admin": admin,
            "transaction": transaction,
        }
    )
