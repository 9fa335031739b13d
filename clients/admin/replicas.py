"""Electing leaders, and reassigning partitions to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.connection import CONTROLLER
from holdfast_log.clients.message import by_topic
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast_log.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest
from holdfast_log.protocol.messages.elect_leaders import TopicPartitions as ElectionTopic
from holdfast_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move in progress: `replicas` has the target replicas and those still to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def elect_leaders(
    asking: Asking, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, BrokerError | None]:
    """Elect leaders of these partitions, or of all (KIP-460). Returns each partition's error, or None."""
    rows = None
    if partitions is not None:
        rows = [
            ElectionTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(election_type=election, topic_partitions=rows, timeout_ms=asking.timeout_ms)
    response = asking.ask(CONTROLLER, request, lambda answer: [answer.error_code])
    raise_first([("election", response.error_code, None)])
    return {
        TopicPartition(topic.topic, row.partition_id): (
            error_for(row.error_code, row.error_message) if row.error_code else None
        )
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


def alter_partition_reassignments(
    asking: Asking, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, BrokerError | None]:
    """Begin to move partitions to these brokers, the preferred leader first (KIP-455). None cancels."""
    rows = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(
                    partition_index=number, replicas=_listed(targets[TopicPartition(topic, number)])
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(targets).items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=rows, timeout_ms=asking.timeout_ms)
    response = asking.ask(CONTROLLER, request, lambda answer: [answer.error_code])
    raise_first([("reassignment", response.error_code, response.error_message)])
    return {
        TopicPartition(topic.name, row.partition_index): (
            error_for(row.error_code, row.error_message) if row.error_code else None
        )
        for topic in response.responses
        for row in topic.partitions
    }


def list_partition_reassignments(
    asking: Asking, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The moves in progress, of these partitions or of all."""
    rows = None
    if partitions is not None:
        rows = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(topics=rows, timeout_ms=asking.timeout_ms)
    response = asking.ask(CONTROLLER, request, lambda answer: [answer.error_code])
    raise_first([("reassignments", response.error_code, response.error_message)])
    return {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
