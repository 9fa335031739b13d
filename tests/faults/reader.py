"""Reads every record back with librdkafka, and compares the replicas' log files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.steady_load import number_of

Stored: TypeAlias = tuple[int, int]
"""A record's offset and number."""

_TIMEOUT_S = 60.0


def read_all(bootstrap: str, topics: Sequence[str], partitions: int) -> dict[tuple[str, int], list[Stored]]:
    """Read every record of each partition in order. Call it while no record is appended."""
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
    wanted = [(topic, partition) for topic in topics for partition in range(partitions)]
    found: dict[tuple[str, int], list[Stored]] = {key: [] for key in wanted}
    unfinished = set(wanted)
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in wanted])
        while unfinished:
            assert time.monotonic() < deadline, f"not read to the end in {_TIMEOUT_S:.0f} s: {unfinished}"
            for message in consumer.consume(10_000, timeout=0.2):
                topic, partition, error = message.topic(), message.partition(), message.error()
                assert topic is not None and partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unfinished.discard((topic, partition))
                    continue
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                found[topic, partition].append((offset, number_of(value)))
    finally:
        consumer.close()
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
