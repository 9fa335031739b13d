"""Reads every record back with librdkafka, and compares the replicas' log files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.steady_load import number_of

Stored: TypeAlias = tuple[int, int]
"""A record's offset and number."""

_TIMEOUT_S = 240.0


def every_record(
    bootstrap: str, topics: Mapping[str, int], timeout_s: float = _TIMEOUT_S
) -> Iterator[tuple[str, int, int, bytes]]:
    """Topic, partition, offset and value of every record, in the order of each partition, read with
    librdkafka. `topics` maps each topic to its number of partitions. Call it while no record is appended.

    Raises AssertionError if a partition cannot be read to its end in `timeout_s` seconds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    unread = {(topic, number) for topic, count in topics.items() for number in range(count)}
    deadline = time.monotonic() + timeout_s
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in sorted(unread)])
        while unread:
            assert time.monotonic() < deadline, f"not read to the end in {timeout_s:.0f} s: {unread}"
            for message in consumer.consume(10_000, timeout=0.2):
                topic, partition, error = message.topic(), message.partition(), message.error()
                assert topic is not None and partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard((topic, partition))
                    continue
                offset, value = message.offset(), message.value()
                assert offset is not None and isinstance(value, bytes)
                yield topic, partition, offset, value
    finally:
        consumer.close()


def read_all(bootstrap: str, topics: Sequence[str], partitions: int) -> dict[tuple[str, int], list[Stored]]:
    """Each partition's records in order. Call it while no record is appended."""
    counts = dict.fromkeys(topics, partitions)
    found: dict[tuple[str, int], list[Stored]] = {
        (topic, number): [] for topic in topics for number in range(partitions)
    }
    for topic, partition, offset, value in every_record(bootstrap, counts):
        found[topic, partition].append((offset, number_of(value)))
    return found


def diverged(directories: Sequence[Path], topic: str, partitions: int) -> list[str]:
    """The partitions whose log bytes differ between the log directories."""
    return [
        f"{topic}-{partition}"
        for partition in range(partitions)
        if len({_log_bytes(directory / f"{topic}-{partition}") for directory in directories}) > 1
    ]


def _log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
