"""Reads everything back with librdkafka, and compares what the replicas have on their disks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.steady_load import number_of

_TIMEOUT_S = 60.0


def read_partition(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """(offset, number) of every record from the beginning to the end as it is now."""
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
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} was not read within {_TIMEOUT_S:.0f} s"
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                found.append((offset, number_of(value)))
    finally:
        consumer.close()


def diverged(directories: Sequence[Path], topic: str, partitions: int) -> list[str]:
    """The partitions whose log is not the same, byte for byte, in each of the log directories."""
    return [
        f"{topic}-{partition}"
        for partition in range(partitions)
        if len({_log_bytes(directory / f"{topic}-{partition}") for directory in directories}) > 1
    ]


def _log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
