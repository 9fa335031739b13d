"""Two hardships of consumers, as the same small program for three libraries: python -m tests.compat.hardships
BOOTSTRAP prints what each of them does.

An unreadable record: 300 numbers in three batches, and the value at offset 150 is no number. A slow handler:
three records, one at a time, each handled for longer than the session timeout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as confluent
import kafka
from confluent_kafka import DeserializingConsumer

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.compat.drivers.kafka_python_topics import wait_for_partitions

BAD = 150
POLLS = 40
SESSION_MS = 6_000
HANDLER_S = 9
METADATA_S = 60
Poll = Callable[[], list[int]]
"""Returns the offsets of the next records."""
Commit = Callable[[], object]


@contextmanager
def holdfast(bootstrap: str, topic: str, **more: Any) -> Iterator[tuple[Poll, Commit]]:
    properties = {"auto.offset.reset": "earliest", "group.id": "g-" + topic + "-holdfast"}
    if more.get("slow"):
        properties |= {"session.timeout.ms": str(SESSION_MS), "max.poll.records": "1"}
    with Consumer(
        {"bootstrap.servers": bootstrap, "enable.auto.commit": False, **properties},
        value_deserializer=lambda topic, value: int(value),
    ) as consumer:
        consumer.add_topic(topic)
        yield lambda: [record.offset for record in consumer.poll(500)], consumer.commit


@contextmanager
def confluent_kafka(bootstrap: str, topic: str, **more: Any) -> Iterator[tuple[Poll, Commit]]:
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g-" + topic + "-confluent_kafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "value.deserializer": lambda value, context: int(value),
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[int]:
        message = consumer.poll(0.5)
        return [] if message is None else [message.offset()]

    try:
        yield poll, lambda: consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@contextmanager
def kafka_python(bootstrap: str, topic: str, **more: Any) -> Iterator[tuple[Poll, Commit]]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="g-" + topic + "-kafka_python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=2_000,
        max_poll_records=1 if more.get("slow") else 500,
        value_deserializer=lambda value: int(value),
    )
    end_s = time.monotonic() + METADATA_S
    wait_for_partitions(consumer, topic, is_wanted=lambda: time.monotonic() < end_s)

    def poll() -> list[int]:
        found = consumer.poll(500)
        return [record.offset for records in found.values() for record in records]

    try:
        yield poll, consumer.commit
    finally:
        consumer.close(autocommit=False)


LIBRARIES = (holdfast, confluent_kafka, kafka_python)


def unreadable(open_: Any, bootstrap: str, topic: str) -> str:
    """What happens to 300 records, one of them unreadable, with a commit after each poll."""
    offsets: list[int] = []
    errors: list[str] = []
    polls = 0
    with open_(bootstrap, topic) as (poll, commit):
        deadline = time.monotonic() + 60
        while polls < POLLS and time.monotonic() < deadline:
            try:
                more = poll()
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
                polls += 1
            else:
                offsets += more
                polls += not more
            if offsets and errors and polls > 5:
                commit()
                if len(offsets) >= 299 or polls > 12:
                    break
    return (
        f"{len(offsets)} records ({min(offsets, default=-1)} to {max(offsets, default=-1)}), {len(errors)} "
        f"errors; first: {errors[0] if errors else None}"
    )


def slow(open_: Any, bootstrap: str, topic: str) -> str:
    """Which records a slow handler gets, and what its commits return."""
    handled: list[str] = []
    with open_(bootstrap, topic, slow=True) as (poll, commit):
        deadline = time.monotonic() + 90
        while len(handled) < 3 and time.monotonic() < deadline:
            for offset in poll():
                time.sleep(HANDLER_S)
                try:
                    commit()
                    handled.append(f"{offset} committed")
                except Exception as error:
                    handled.append(f"{offset} {type(error).__name__}")
    return ", ".join(handled)


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        found = admin.list_group_offsets(group).get(TopicPartition(topic, 0))
    return None if found is None else found.offset


def main(bootstrap: str) -> None:
    values = [b"%d" % number for number in range(300)]
    values[BAD] = b"bad"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("unreadable", 1), NewTopic("slow", 1)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for start in (0, 100, 200):
            producer.send_many("unreadable", values[start : start + 100], partition=0).result(60_000)
        producer.send_many("slow", [b"0", b"1", b"2"], partition=0).result(60_000)
    print("confluent-kafka", confluent.__version__, "kafka-python", kafka.__version__)
    for hardship in (slow, unreadable):
        topic = hardship.__name__
        for library in LIBRARIES:
            result = hardship(library, bootstrap, topic)
            stored = committed(bootstrap, f"g-{topic}-{library.__name__}", topic)
            print(f"{topic}, {library.__name__}: {result}; committed {stored}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
