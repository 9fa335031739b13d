"""A load made with librdkafka, run in its own process: python -m benchmarks.stock_client JOB.

JOB is the JSON of a `Job`. The last line printed is the JSON of a `Result`. Progress is not printed, because
that would slow the measured load.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.load_error import LoadError
from benchmarks.results import Result, percentiles, to_json

SAMPLE_EVERY = 200
"""Records per measured latency: a Python callback for each record would be the bottleneck."""
QUIET_S = 20.0
"""Seconds without data after which a fetch run is given up."""
_SENT_AT = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Job:
    """What to do: `kind` is produce, cold_fetch or tail_fetch."""

    kind: str
    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    batch_bytes: int
    acks: str
    seconds: float
    records: int = 0
    """For cold_fetch: number of records in the topic."""


def main(text: str) -> None:
    """Run the job and print its result."""
    job = Job(**json.loads(text))
    run = {"produce": produce, "cold_fetch": cold_fetch, "tail_fetch": tail_fetch}[job.kind]
    print(to_json(run(job)), flush=True)


def job_json(job: Job) -> str:
    """The argument that runs `job`."""
    return json.dumps(asdict(job))


def produce(job: Job) -> Result:
    """Send for `seconds` as fast as librdkafka can, and wait until all of it is acknowledged."""
    producer = _producer(job)
    latencies_ms: list[float] = []
    errors: list[str] = []

    def on_sampled(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(str(error))
        else:
            latencies_ms.append(message.latency() * 1000)

    value = os.urandom(job.record_bytes)
    messages = [{"value": value} for _ in range(SAMPLE_EVERY - 1)] + [
        {"value": value, "callback": on_sampled}
    ]
    _wait_for_leaders(producer, job)
    started = time.perf_counter()
    deadline = started + job.seconds
    sent = 0
    turn = 0
    while time.perf_counter() < deadline:
        sent += _send(producer, job.topic, turn % job.partitions, messages)
        turn += 1
    if producer.flush(60) != 0:
        raise LoadError("records were still unacknowledged 60 s after the last was sent")
    seconds = time.perf_counter() - started
    if errors:
        raise LoadError(errors[0])
    return Result(sent, sent * job.record_bytes, seconds, percentiles(latencies_ms))


def _send(producer: Any, topic: str, partition: int, messages: list[dict[str, Any]]) -> int:
    rest = messages
    while True:
        queued = producer.produce_batch(topic, rest, partition=partition)
        producer.poll(0)
        if queued == len(rest):
            return len(messages)
        rest = rest[queued:]
        producer.poll(0.001)


def cold_fetch(job: Job) -> Result:
    """Read the topic from its start. The caller empties the page cache beforehand."""
    consumer = _consumer(job)
    consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
    started = time.perf_counter()
    received = sum(map(len, _messages(consumer, 0.1, lambda received: received >= job.records)))
    seconds = time.perf_counter() - started
    consumer.close()
    return Result(received, received * job.record_bytes, seconds, percentiles([]))


def tail_fetch(job: Job) -> Result:
    """Read records as they are written; latency is from before the send until after the receipt."""
    consumer = _consumer(job)
    consumer.assign(
        [TopicPartition(job.topic, n, _end(consumer, job.topic, n)) for n in range(job.partitions)]
    )
    latencies_ms: list[float] = []
    received = 0
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(_write_at_a_rate, job)
        started = time.monotonic_ns()
        for messages in _messages(consumer, 0.001, lambda count: writer.done() and count >= writer.result()):
            now = time.monotonic_ns()
            received += len(messages)
            latencies_ms += [(now - _SENT_AT.unpack_from(m.value())[0]) / 1e6 for m in messages[::20]]
        seconds = (now - started) / 1e9
    consumer.close()
    return Result(received, received * job.record_bytes, seconds, percentiles(latencies_ms))


def _messages(consumer: Any, gather_s: float, is_enough: Callable[[int], bool]) -> Iterator[list[Any]]:
    """Collect arriving messages in lists, until `is_enough(number of messages)`."""
    received = 0
    last = time.monotonic()
    while not is_enough(received):
        messages = consumer.consume(10_000, gather_s)
        for message in messages:
            if message.error() is not None:
                raise LoadError(str(message.error()))
        if messages:
            received += len(messages)
            last = time.monotonic()
            yield messages
        elif time.monotonic() - last > QUIET_S:
            raise LoadError(f"no data for {QUIET_S:.0f} s after {received} records")


TAIL_BYTES_PER_SECOND = 10_000_000
_TICK_S = 0.005


def _write_at_a_rate(job: Job) -> int:
    """Send a steady stream, well below the broker's capacity, so that latency includes no queueing.

    Returns the number of records sent.
    """
    producer = _producer(job)
    padding = bytes(job.record_bytes - _SENT_AT.size)
    per_tick = max(1, int(TAIL_BYTES_PER_SECOND * _TICK_S / job.record_bytes))
    started = time.monotonic()
    sent = tick = 0
    while (due := started + tick * _TICK_S) < started + job.seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        message = {"value": _SENT_AT.pack(time.monotonic_ns()) + padding}
        sent += _send(producer, job.topic, tick % job.partitions, [message] * per_tick)
        tick += 1
    if producer.flush(30) != 0:
        raise LoadError("the writer's records were not acknowledged")
    return sent


def _producer(job: Job) -> Any:
    return Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": job.acks,
            "batch.size": job.batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": max(1_000_000, job.batch_bytes + 100_000),
            "linger.ms": 5 if job.kind == "produce" else 0,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "broker.address.family": "v4",
        }
    )


def _consumer(job: Job) -> Any:
    return Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": max(1_048_576, job.batch_bytes),
            # A full queue makes librdkafka wait for fetch.queue.backoff.ms, by default a second.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 512 * 1024,
            "fetch.queue.backoff.ms": 10,
            "broker.address.family": "v4",
        }
    )


def _end(consumer: Any, topic: str, partition: int) -> int:
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    return int(high)


def _wait_for_leaders(producer: Any, job: Job) -> None:
    """Connect first, so that the time taken excludes librdkafka's search for the brokers."""
    producer.list_topics(job.topic, timeout=30)


if __name__ == "__main__":
    main(sys.argv[1])
