"""The cluster: its brokers, and what is in their log directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clients.admin.asking import raise_first
from clients.admin.topics import TopicAdmin
from clients.connection import ANY_NODE
from clients.message import TopicPartition
from clients.metadata import Node
from protocol.errors import BrokerError, error_for
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster, and who leads it. `controller` is None where there is none at the moment."""

    cluster_id: str | None
    nodes: tuple[Node, ...]
    controller: Node | None


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """What a replica takes of a log directory, and how far it lags, in bytes and offsets."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. `error` is None where it is usable; sizes are -1 where not told."""

    node: int
    path: str
    error: BrokerError | None
    replicas: tuple[ReplicaSize, ...]
    total_bytes: int
    usable_bytes: int


class ClusterAdmin(TopicAdmin):
    """Describes brokers and log directories."""

    def describe_cluster(self) -> ClusterDescription:
        """The brokers that are there, and the controller."""
        response = self._ask(
            ANY_NODE,
            DescribeClusterRequest(include_cluster_authorized_operations=False),
            lambda answer: [answer.error_code],
        )
        raise_first([("cluster", response.error_code, response.error_message)])
        nodes = tuple(
            sorted(
                (Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers),
                key=lambda node: node.id,
            )
        )
        controller = next((node for node in nodes if node.id == response.controller_id), None)
        return ClusterDescription(response.cluster_id, nodes, controller)

    def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> list[LogDir]:
        """What is in the log directories of these brokers, or of all; of these topics, or of all."""
        wanted = [node.id for node in self.describe_cluster().nodes] if nodes is None else list(nodes)
        asked = None
        if topics is not None:
            asked = [
                DescribableLogDirTopic(topic=each.name, partitions=[row.partition for row in each.partitions])
                for each in self.describe_topics(topics)
            ]
        found = []
        for node in wanted:
            response = self._ask(
                node, DescribeLogDirsRequest(topics=asked), lambda answer: [answer.error_code]
            )
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
