"""The JSON files that give partitions, replicas, offsets and topics to Kafka's tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from holdfast_log.protocol.topic_partition import TopicPartition


def read_partitions(path: str) -> list[TopicPartition]:
    """Read `{"partitions": [{"topic": "t", "partition": 0}]}`. Raises click.UsageError."""
    return [_partition(path, row) for row in _rows(path, "partitions")]


def read_assignments(path: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Read `{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}`. Raises click.UsageError."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for row in _rows(path, "partitions"):
        partition = _partition(path, row)
        if partition in found:
            raise click.UsageError(f"{path} names {partition} twice")
        replicas = row.get("replicas")
        if not isinstance(replicas, list) or not all(isinstance(each, int) for each in replicas):
            raise click.UsageError(f"{path} has no list of replicas for {partition}")
        found[partition] = tuple(replicas)
    return found


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Read `{"partitions": [{"topic": "t", "partition": 0, "offset": 100}]}`. Raises click.UsageError."""
    found: dict[TopicPartition, int] = {}
    for row in _rows(path, "partitions"):
        partition = _partition(path, row)
        if partition in found:
            raise click.UsageError(f"{path} names {partition} twice")
        offset = row.get("offset")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < -1:
            raise click.UsageError(f"{path} has no offset for {partition}: give 0 or more, or -1 for the end")
        found[partition] = offset
    return found


def read_topics(path: str) -> list[str]:
    """Read `{"topics": [{"topic": "t"}]}`. Raises click.UsageError."""
    names = [row.get("topic") for row in _rows(path, "topics")]
    if not all(isinstance(name, str) for name in names):
        raise click.UsageError(f"{path} has a topic without a name")
    return [str(name) for name in names]


def assignments_json(assignments: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The JSON that `read_assignments` reads, on one line."""
    rows = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(assignments.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def joined(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as text on one line, separated by commas."""
    return ",".join(str(partition) for partition in sorted(partitions))


def _rows(path: str, key: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)[key]
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f'{path} is not JSON of the form {{"{key}": [...]}}') from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise click.UsageError(f'{path} has no list of objects under "{key}"')
    return rows


def _partition(path: str, row: dict[str, Any]) -> TopicPartition:
    topic, number = row.get("topic"), row.get("partition")
    if not isinstance(topic, str) or not isinstance(number, int):
        raise click.UsageError(f"{path} has a row without topic or partition: {row}")
    return TopicPartition(topic, number)
