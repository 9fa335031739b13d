"""A load made with one client library, run in its own process: python -m benchmarks.client_loads JOB.

JOB is the JSON of a `ClientJob`. The last line printed is the JSON of a `ClientResult`. Every client keeps
its defaults, except for acks=all, a linger of 5 ms, and reading from the start; and except for librdkafka's
queue of fetched records, whose default makes it pause for a second whenever small records have filled it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Any

from benchmarks.load_error import LoadError

CHECK_EVERY = 1000
"""Records between two checks of the clock."""
CHUNK = 10_000
"""Records sent, or requested, by one bulk call."""
LINGER_MS = 5
_FLUSH_S = 60


@dataclass(frozen=True, slots=True)
class ClientJob:
    """What to do: `kind` is produce, produce_bulk, consume or consume_bulk."""

    client: str
    kind: str
    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    seconds: float
    records: int = 0
    """When consuming: number of records in the topic. Reading ends there, or when the time has passed."""


@dataclass(frozen=True, slots=True)
class ClientResult:
    """Number of records, time taken, and CPU time of the client's process."""

    records: int
    seconds: float
    cpu_seconds: float


class _Stopwatch:
    def __init__(self, seconds: float) -> None:
        self._limit_s = seconds
        self._started = time.perf_counter()
        self._cpu_started = time.process_time()

    def is_over(self) -> bool:
        return time.perf_counter() - self._started >= self._limit_s

    def result(self, records: int) -> ClientResult:
        return ClientResult(
            records, time.perf_counter() - self._started, time.process_time() - self._cpu_started
        )


def main(text: str) -> None:
    """Run the job and print its result."""
    job = ClientJob(**json.loads(text))
    result = LOADS[job.client, job.kind](job)
    print(json.dumps(asdict(result)), flush=True)


def _repeat_call(job: ClientJob, send: Callable[[bytes], object]) -> tuple[_Stopwatch, int]:
    """Call `send` with one value after the other until the job's time has passed."""
    value = os.urandom(job.record_bytes)
    sent = 0
    stopwatch = _Stopwatch(job.seconds)
    while not stopwatch.is_over():
        for _ in repeat(None, CHECK_EVERY):
            send(value)
        sent += CHECK_EVERY
    return stopwatch, sent


# Holdfast ---------------------------------------------------------------------------------------------


def holdfast_produce(job: ClientJob) -> ClientResult:
    """`send`, once for every record."""
    from holdfast_log import Message, Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", "linger.ms": LINGER_MS})
    producer.send(Message(job.topic, value=b"")).result(30_000)
    topic = job.topic
    stopwatch, sent = _repeat_call(job, lambda value: producer.send(Message(topic, None, value)))
    if not producer.flush(_FLUSH_S * 1000):
        raise LoadError("not everything was acknowledged")
    result = stopwatch.result(sent)
    producer.close()
    return result


def holdfast_produce_bulk(job: ClientJob) -> ClientResult:
    """`send_many`, once for `CHUNK` records."""
    from holdfast_log import Message, Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", "linger.ms": LINGER_MS})
    producer.send(Message(job.topic, value=b"")).result(30_000)
    values = [os.urandom(job.record_bytes) for _ in range(CHUNK)]
    sent = 0
    stopwatch = _Stopwatch(job.seconds)
    while not stopwatch.is_over():
        producer.send_many(job.topic, values)
        sent += CHUNK
    if not producer.flush(_FLUSH_S * 1000):
        raise LoadError("not everything was acknowledged")
    result = stopwatch.result(sent)
    producer.close()
    return result


def holdfast_consume(job: ClientJob) -> ClientResult:
    """`poll`, and a look at every record."""
    with _holdfast_consumer(job) as consumer:
        received = size = 0
        stopwatch = _Stopwatch(job.seconds)
        while received < job.records and not stopwatch.is_over():
            for record in consumer.poll(1000):
                received += 1
                size += len(record.value)
        _check(job, received, size)
        return stopwatch.result(received)


def holdfast_consume_bulk(job: ClientJob) -> ClientResult:
    """`poll_batches`, and a look at every column of values."""
    with _holdfast_consumer(job) as consumer:
        received = size = 0
        stopwatch = _Stopwatch(job.seconds)
        while received < job.records and not stopwatch.is_over():
            for batch in consumer.poll_batches(1000):
                received += len(batch)
                size += sum(map(len, batch.columns.values))
        _check(job, received, size)
        return stopwatch.result(received)


def _holdfast_consumer(job: ClientJob) -> Any:
    from holdfast_log import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": job.bootstrap, "auto.offset.reset": "earliest"})
    consumer.add_topic(job.topic)
    consumer.partitions_for(job.topic)
    consumer.beginning_offsets([TopicPartition(job.topic, 0)])
    return consumer


def _check(job: ClientJob, received: int, size: int) -> None:
    if size != received * job.record_bytes:
        raise LoadError(f"{received} records came with {size} bytes")


# confluent-kafka --------------------------------------------------------------------------------------


def confluent_produce(job: ClientJob) -> ClientResult:
    """`produce`, once for every record."""
    producer = _confluent_producer(job)
    topic = job.topic

    def send(value: bytes) -> None:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.01)
            send(value)

    stopwatch, sent = _repeat_call(job, send)
    if producer.flush(_FLUSH_S):
        raise LoadError("not everything was acknowledged")
    return stopwatch.result(sent)


def confluent_produce_bulk(job: ClientJob) -> ClientResult:
    """`produce_batch`, once for `CHUNK` records."""
    producer = _confluent_producer(job)
    messages = [{"value": os.urandom(job.record_bytes)} for _ in range(CHUNK)]
    sent = turn = 0
    stopwatch = _Stopwatch(job.seconds)
    while not stopwatch.is_over():
        rest = messages
        while rest:
            queued = producer.produce_batch(job.topic, rest, partition=turn % job.partitions)
            producer.poll(0 if queued == len(rest) else 0.001)
            rest = rest[queued:]
        sent += CHUNK
        turn += 1
    if producer.flush(_FLUSH_S):
        raise LoadError("not everything was acknowledged")
    return stopwatch.result(sent)


def _confluent_producer(job: ClientJob) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", "linger.ms": LINGER_MS})
    producer.produce(job.topic, b"")
    producer.flush(30)
    return producer


def confluent_consume(job: ClientJob) -> ClientResult:
    """`poll`, once for every record."""
    consumer = _confluent_consumer(job)
    received = size = 0
    stopwatch = _Stopwatch(job.seconds)
    while received < job.records and (received % CHECK_EVERY or not stopwatch.is_over()):
        message = consumer.poll(10)
        if message is None or message.error() is not None:
            raise LoadError("no data for 10 s" if message is None else str(message.error()))
        received += 1
        size += len(message.value())
    _check(job, received, size)
    return stopwatch.result(received)


def confluent_consume_bulk(job: ClientJob) -> ClientResult:
    """`consume`, asking for `CHUNK` records."""
    consumer = _confluent_consumer(job)
    received = size = 0
    stopwatch = _Stopwatch(job.seconds)
    while received < job.records and not stopwatch.is_over():
        # The short timeout returns the records already fetched, instead of waiting for a whole chunk.
        for message in consumer.consume(CHUNK, 0.01):
            received += 1
            size += len(message.value())
    _check(job, received, size)
    return stopwatch.result(received)


def _confluent_consumer(job: ClientJob) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 512 * 1024,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.list_topics(job.topic, timeout=30)
    consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
    return consumer


# kafka-python -----------------------------------------------------------------------------------------


def kafka_python_produce(job: ClientJob) -> ClientResult:
    """`send`, once for every record."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=job.bootstrap, acks="all", linger_ms=LINGER_MS)
    producer.send(job.topic, b"").get(30)
    topic = job.topic
    stopwatch, sent = _repeat_call(job, lambda value: producer.send(topic, value))
    producer.flush(_FLUSH_S)
    result = stopwatch.result(sent)
    producer.close()
    return result


def kafka_python_consume(job: ClientJob) -> ClientResult:
    """The consumer as an iterator."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, consumer_timeout_ms=10_000)
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    consumer.position(partitions[0])
    received = size = 0
    stopwatch = _Stopwatch(job.seconds)
    for record in consumer:
        received += 1
        size += len(record.value)
        if received == job.records or (not received % CHECK_EVERY and stopwatch.is_over()):
            break
    _check(job, received, size)
    return stopwatch.result(received)


# aiokafka ---------------------------------------------------------------------------------------------


def aiokafka_produce(job: ClientJob) -> ClientResult:
    """`send`, once for every record."""
    return asyncio.run(_aiokafka_produce(job))


async def _aiokafka_produce(job: ClientJob) -> ClientResult:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, acks="all", linger_ms=LINGER_MS)
    await producer.start()
    await producer.send_and_wait(job.topic, b"")
    value = os.urandom(job.record_bytes)
    sent = 0
    stopwatch = _Stopwatch(job.seconds)
    while not stopwatch.is_over():
        for _ in repeat(None, CHECK_EVERY):
            await producer.send(job.topic, value)
        sent += CHECK_EVERY
    await producer.flush()
    result = stopwatch.result(sent)
    await producer.stop()
    return result


def aiokafka_consume(job: ClientJob) -> ClientResult:
    """The consumer as an asynchronous iterator."""
    return asyncio.run(_aiokafka_consume(job, _iterate_aiokafka))


def aiokafka_consume_bulk(job: ClientJob) -> ClientResult:
    """`getmany`."""
    return asyncio.run(_aiokafka_consume(job, _getmany_aiokafka))


async def _aiokafka_consume(
    job: ClientJob, read: Callable[[Any, ClientJob, _Stopwatch], Awaitable[tuple[int, int]]]
) -> ClientResult:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    stopwatch = _Stopwatch(job.seconds)
    received, size = await read(consumer, job, stopwatch)
    _check(job, received, size)
    result = stopwatch.result(received)
    await consumer.stop()
    return result


async def _iterate_aiokafka(consumer: Any, job: ClientJob, stopwatch: _Stopwatch) -> tuple[int, int]:
    received = size = 0
    async for record in consumer:
        received += 1
        size += len(record.value)
        if received == job.records or (not received % CHECK_EVERY and stopwatch.is_over()):
            break
    return received, size


async def _getmany_aiokafka(consumer: Any, job: ClientJob, stopwatch: _Stopwatch) -> tuple[int, int]:
    received = size = 0
    while received < job.records and not stopwatch.is_over():
        lists: Iterable[Any] = (await consumer.getmany(timeout_ms=1000, max_records=CHUNK)).values()
        for records in lists:
            received += len(records)
            size += sum(len(record.value) for record in records)
    return received, size


LOADS: dict[tuple[str, str], Callable[[ClientJob], ClientResult]] = {
    ("holdfast", "produce"): holdfast_produce,
    ("holdfast", "produce_bulk"): holdfast_produce_bulk,
    ("holdfast", "consume"): holdfast_consume,
    ("holdfast", "consume_bulk"): holdfast_consume_bulk,
    ("confluent-kafka", "produce"): confluent_produce,
    ("confluent-kafka", "produce_bulk"): confluent_produce_bulk,
    ("confluent-kafka", "consume"): confluent_consume,
    ("confluent-kafka", "consume_bulk"): confluent_consume_bulk,
    ("kafka-python", "produce"): kafka_python_produce,
    ("kafka-python", "consume"): kafka_python_consume,
    ("aiokafka", "produce"): aiokafka_produce,
    ("aiokafka", "consume"): aiokafka_consume,
    ("aiokafka", "consume_bulk"): aiokafka_consume_bulk,
}

if __name__ == "__main__":
    main(sys.argv[1])
