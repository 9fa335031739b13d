"""The log directories of brokers: what is in them, and in which of them a replica is to be (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.cluster import describe_cluster
from holdfast_log.clients.admin.topics import describe_topics
from holdfast_log.clients.message import by_topic
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from holdfast_log.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """The size of a replica in a log directory, in bytes, and its lag, in offsets."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. `error` is None if it is usable; unknown sizes are -1."""

    node: int
    path: str
    error: BrokerError | None
    replicas: tuple[ReplicaSize, ...]
    total_bytes: int
    usable_bytes: int


def describe_log_dirs(
    asking: Asking, nodes: Iterable[int] | None = None, topics: Iterable[str] | None = None
) -> list[LogDir]:
    """The log directories of these brokers, with the replicas of these topics. None stands for all."""
    wanted = [node.id for node in describe_cluster(asking).nodes] if nodes is None else list(nodes)
    asked = None
    if topics is not None:
        asked = [
            DescribableLogDirTopic(topic=each.name, partitions=[row.partition for row in each.partitions])
            for each in describe_topics(asking, topics)
        ]
    found = []
    for node in wanted:
        response = asking.ask(node, DescribeLogDirsRequest(topics=asked), lambda answer: [answer.error_code])
        raise_first([(f"broker {node}", response.error_code, None)])
        for row in response.results:
            replicas = tuple(
                ReplicaSize(
                    TopicPartition(topic.name, each.partition_index),
                    each.partition_size,
                    each.offset_lag,
                    each.is_future_key,
                )
                for topic in row.topics
                for each in topic.partitions
            )
            error = error_for(row.error_code) if row.error_code else None
            found.append(LogDir(node, row.log_dir, error, replicas, row.total_bytes, row.usable_bytes))
    return found


def alter_replica_log_dirs(
    asking: Asking, node: int, directories: Mapping[TopicPartition, str]
) -> dict[TopicPartition, BrokerError | None]:
    """Move a broker's replicas to these of its log directories. Returns each partition's error, or None.

    REPLICA_NOT_AVAILABLE: the broker has no replica of the partition yet, and will create it there.
    """
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in directories.items():
        by_path.setdefault(path, []).append(partition)
    rows = [
        AlterReplicaLogDir(
            path=path,
            topics=[
                AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        for path, partitions in by_path.items()
    ]
    response = asking.ask(node, AlterReplicaLogDirsRequest(dirs=rows))
    return {
        TopicPartition(topic.topic_name, row.partition_index): (
            error_for(row.error_code) if row.error_code else None
        )
        for topic in response.results
        for row in topic.partitions
    }
