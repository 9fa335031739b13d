"""Topics and their partitions, as an administrator handles them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from clients.admin.asking import AdminBase, raise_first
from clients.connection.connection import ANY_NODE, CONTROLLER
from clients.connection.metadata import PartitionInfo
from protocol.errors import ErrorCode, error_for
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from protocol.topic_partition import TopicPartition

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created: by numbers, -1 being the broker's default, or by `assignment`, which gives the
    replicas of every partition, leader first."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster has it."""

    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class TopicAdmin(AdminBase):
    """Creates, deletes, widens, lists and describes topics."""

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics. Raises TopicExistsError, InvalidTopicError, InvalidConfigError and others."""
        rows = [
            CreatableTopic(
                name=topic.name,
                num_partitions=BROKER_DEFAULT if topic.assignment is not None else topic.partitions,
                replication_factor=(
                    BROKER_DEFAULT if topic.assignment is not None else topic.replication_factor
                ),
                assignments=[
                    CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
                    for partition, replicas in (topic.assignment or {}).items()
                ],
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ]
        request = CreateTopicsRequest(topics=rows, timeout_ms=self._timeout_ms, validate_only=validate_only)
        response = self._ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.topics])
        raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.topics)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all that is in them. Raises UnknownTopicOrPartitionError and others."""
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._timeout_ms,
        )
        response = self._ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.responses])
        raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.responses)

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise topics' numbers of partitions to `counts`.

        `assignments` gives the replicas of the new ones.
        """
        rows = []
        for name, count in counts.items():
            given = (assignments or {}).get(name)
            replicas = (
                None
                if given is None
                else [CreatePartitionsAssignment(broker_ids=list(each)) for each in given]
            )
            rows.append(CreatePartitionsTopic(name=name, count=count, assignments=replicas))
        request = CreatePartitionsRequest(
            topics=rows, timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        response = self._ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.results])
        raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.results)

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        response = self._ask(ANY_NODE, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return sorted(
            row.name
            for row in response.topics
            if row.name is not None and (include_internal or not row.is_internal)
        )

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """The topics of these names, or all of them. Raises UnknownTopicOrPartitionError and others."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self._ask(ANY_NODE, request)
        raise_first((f"topic {row.name}", row.error_code, None) for row in response.topics)
        return [_described(row) for row in response.topics]

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions divided by the brokers that lead them. Raises LeaderNotAvailableError and others."""
        wanted = list(partitions)
        leaders = {
            TopicPartition(topic.name, row.partition): row.leader
            for topic in self.describe_topics(dict.fromkeys(each.topic for each in wanted))
            for row in topic.partitions
        }
        divided: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            if partition not in leaders:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
            if leaders[partition] < 0:
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment")
            divided.setdefault(leaders[partition], []).append(partition)
        self._know_nodes(divided)
        return divided


def _described(row: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionInfo(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(row.partitions, key=lambda each: each.partition_index)
    )
    return TopicDescription(row.name or "", row.topic_id, row.is_internal, partitions)
