"""Driver of confluent-kafka, which uses librdkafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

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


def create(job: Job) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    futures = admin.create_topics([NewTopic(job.topic, PARTITIONS, 1)])
    futures[job.topic].result(WAIT_S)
    return {"created": job.topic}


def produce(job: Job) -> dict[str, Any]:
    errors: list[str] = []
    delivered = 0

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
        else:
            errors.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "compression.type": job.codec,
            "enable.idempotence": job.idempotent,
            "acks": "all",
            "linger.ms": 20,
            "socket.timeout.ms": WAIT_S * 1000,  # The records of a late answer are written again.
        }
    )
    for index in range(job.count):
        while True:
            try:
                producer.produce(
                    job.topic,
                    value_of(index),
                    key_of(index),
                    partition_of(index),
                    on_delivery=on_delivery,
                    timestamp=job.base_ms + index,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(180)
    return {"delivered": delivered, "problems": errors[:5]}


def _read(job: Job, positions: list[TopicPartition], first_index: int) -> dict[str, Any]:
    checker = Checker(first_index, job.count)
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "unused"})
    consumer.assign(positions)
    while not checker.done():
        messages = consumer.consume(500, timeout=WAIT_S)
        if not messages:
            break
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            expected = (TIMESTAMP_CREATE_TIME, job.base_ms)
            checker.stamp(message.partition(), message.offset(), message.timestamp(), expected)
            checker.record(message.partition(), message.offset(), message.key(), message.value())
    consumer.close()
    return checker.result()


def consume(job: Job) -> dict[str, Any]:
    late = late_index(job.count)
    asker = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "unused"})
    by_time = asker.offsets_for_times(
        [TopicPartition(job.topic, p, job.base_ms + late) for p in range(PARTITIONS)], WAIT_S
    )
    asker.close()
    return {
        "start": _read(job, [TopicPartition(job.topic, p, 0) for p in range(PARTITIONS)], 0),
        "offset": _read(
            job, [TopicPartition(job.topic, p, late // PARTITIONS) for p in range(PARTITIONS)], late
        ),
        "timestamp": _read(job, by_time, late),
    }


def share(job: Job) -> dict[str, Any]:
    def send(indexes: range) -> None:
        producer = Producer({"bootstrap.servers": job.bootstrap})
        for index in indexes:
            producer.produce(job.topic, b"", key_of(index), partition_of(index))
        producer.flush(WAIT_S)

    def read(count: int) -> list[int]:
        consumer = Consumer(
            {"bootstrap.servers": job.bootstrap, "group.id": job.topic, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([job.topic])
        indexes: list[int] = []
        while len(indexes) < count and (message := consumer.poll(WAIT_S)) is not None:
            if message.error():
                raise KafkaException(message.error())
            indexes.append(int(message.key()))
        consumer.close()
        return indexes

    return sharing(read, send)


def admin(job: Job) -> dict[str, Any]:
    client = AdminClient({"bootstrap.servers": job.bootstrap})
    topic = job.topic
    client.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "3600000"})])[topic].result(WAIT_S)
    again = client.create_topics([NewTopic(topic, 1, 1)])[topic].exception(WAIT_S)
    client.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)

    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry = ConfigEntry("max.message.bytes", "54321", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([change])[change].result(WAIT_S)
    after_set = client.describe_configs([resource])[resource].result(WAIT_S)
    replaced = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "7200000"})
    client.alter_configs([replaced])[replaced].result(WAIT_S)
    after_replace = client.describe_configs([resource])[resource].result(WAIT_S)

    producer = Producer({"bootstrap.servers": job.bootstrap})
    for index in range(10):
        producer.produce(topic, str(index), partition=0)
    producer.flush(WAIT_S)
    where = TopicPartition(topic, 0)
    latest = client.list_offsets({where: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    end = latest[where].result(WAIT_S).offset
    cut = TopicPartition(topic, 0, 4)
    low = client.delete_records([cut])[cut].result(WAIT_S).low_watermark
    earliest = client.list_offsets({where: OffsetSpec.earliest()})[where].result(WAIT_S).offset

    described = client.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    cluster = client.describe_cluster().result(WAIT_S)
    client.delete_topics([topic])[topic].result(WAIT_S)
    gone = topic not in client.list_topics(timeout=WAIT_S).topics
    return {
        "again": again.args[0].name(),
        "partitions": len(described.partitions),
        "leaders": sorted({p.leader.id for p in described.partitions}),
        "brokers": sorted(node.id for node in cluster.nodes),
        "controller": cluster.controller.id,
        "retention_set_at_creation": after_set["retention.ms"].value,
        "max_message_bytes": after_set["max.message.bytes"].value,
        "retention_replaced": after_replace["retention.ms"].value,
        "max_message_bytes_is_default": after_replace["max.message.bytes"].is_default,
        "end": end,
        "low": low,
        "earliest": earliest,
        "gone": gone,
    }


def transaction(job: Job) -> dict[str, Any]:
    producer = Producer({"bootstrap.servers": job.bootstrap, "transactional.id": f"{job.topic}-writer"})
    return timed_error(lambda: producer.init_transactions(TRANSACTION_S))


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
