"""The JSON files that give partitions, replicas, offsets and topics to Kafka's tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from holdfast_log.protocol.topic_partition import TopicPartition

ANY_DIRECTORY = "any"
"""In place of a log directory: the broker chooses, or the replica stays where it is."""


def read_partitions(path: str) -> list[TopicPartition]:
    """Read `{"partitions": [{"topic": "t", "partition": 0}]}`. Raises click.UsageError."""
    return [_partition(path, row) for row in _rows(path, "partitions")]


class PlacedReplica(NamedTuple):
    """The replica of a partition on one broker."""

    broker: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


@dataclass(frozen=True, slots=True)
class ReassignmentFile:
    """A plan: the replicas of each partition, preferred leader first, and the log directories of those for
    which it names one."""

    replicas: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    directories: dict[PlacedReplica, str] = field(default_factory=dict)


def read_reassignment(path: str) -> ReassignmentFile:
    """Read `{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/data/2"]}]}`.
    `log_dirs` may be absent; "any" names no directory. Raises click.UsageError."""
    found = ReassignmentFile()
    for row in _rows(path, "partitions"):
        partition = _partition(path, row)
        if partition in found.replicas:
            raise click.UsageError(f"{path} names {partition} twice")
        replicas = row.get("replicas")
        if not isinstance(replicas, list) or not all(type(each) is int for each in replicas):
            raise click.UsageError(f"{path} has no list of replicas for {partition}")
        found.replicas[partition] = tuple(replicas)
        for broker, directory in zip(replicas, _directories(path, row, partition, replicas), strict=True):
            if directory != ANY_DIRECTORY:
                found.directories[PlacedReplica(broker, partition)] = directory
    return found


def _directories(path: str, row: dict[str, Any], partition: TopicPartition, replicas: list[int]) -> list[str]:
    directories = row.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
    if not isinstance(directories, list) or not all(isinstance(each, str) for each in directories):
        raise click.UsageError(f"{path}: log_dirs of {partition} is not a list of directories")
    if len(directories) != len(replicas):
        raise click.UsageError(
            f"{path} has {len(directories)} log_dirs for the {len(replicas)} replicas of {partition}: give "
            f'each replica one, or "{ANY_DIRECTORY}"'
        )
    return directories


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
    """The JSON that `read_reassignment` reads, on one line. It names no directories: they can be put in."""
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
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
