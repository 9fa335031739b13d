"""Creating, changing, deleting and describing topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from clients.admin.asking import Asking, raise_first
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
    """A topic to create: by numbers (-1 is the broker's default), or by `assignment`.

    `assignment` gives the replicas of every partition, preferred leader first.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


def create_topics(asking: Asking, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create topics. Raises TopicExistsError, InvalidTopicError, InvalidConfigError and others."""
    rows = [
        CreatableTopic(
            name=topic.name,
            num_partitions=BROKER_DEFAULT if topic.assignment is not None else topic.partitions,
            replication_factor=(BROKER_DEFAULT if topic.assignment is not None else topic.replication_factor),
            assignments=[
                CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
                for partition, replicas in (topic.assignment or {}).items()
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = CreateTopicsRequest(topics=rows, timeout_ms=asking.timeout_ms, validate_only=validate_only)
    response = asking.ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.topics])
    raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.topics)


def delete_topics(asking: Asking, names: Iterable[str]) -> None:
    """Delete topics and all their records. Raises UnknownTopicOrPartitionError and others."""
    wanted = list(names)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in wanted],
        topic_names=wanted,
        timeout_ms=asking.timeout_ms,
    )
    response = asking.ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.responses])
    raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.responses)


def create_partitions(
    asking: Asking,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
) -> None:
    """Raise topics' numbers of partitions to `counts`."""
    rows = []
    for name, count in counts.items():
        given = (assignments or {}).get(name)
        replicas = (
            None if given is None else [CreatePartitionsAssignment(broker_ids=list(each)) for each in given]
        )
        rows.append(CreatePartitionsTopic(name=name, count=count, assignments=replicas))
    request = CreatePartitionsRequest(topics=rows, timeout_ms=asking.timeout_ms, validate_only=validate_only)
    response = asking.ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.results])
    raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.results)


def list_topics(asking: Asking, *, include_internal: bool = False) -> list[str]:
    """The names of all topics, sorted."""
    response = asking.ask(ANY_NODE, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return sorted(
        row.name
        for row in response.topics
        if row.name is not None and (include_internal or not row.is_internal)
    )


def describe_topics(asking: Asking, names: Iterable[str] | None = None) -> list[TopicDescription]:
    """The topics of these names, or all of them. Raises UnknownTopicOrPartitionError and others."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    response = asking.ask(ANY_NODE, request)
    raise_first((f"topic {row.name}", row.error_code, None) for row in response.topics)
    return [_described(row) for row in response.topics]


def by_leader(asking: Asking, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The partitions by the broker that leads them. Raises LeaderNotAvailableError and others."""
    wanted = list(partitions)
    leaders = {
        TopicPartition(topic.name, row.partition): row.leader
        for topic in describe_topics(asking, dict.fromkeys(each.topic for each in wanted))
        for row in topic.partitions
    }
    divided: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        if partition not in leaders:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        if leaders[partition] < 0:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment")
        divided.setdefault(leaders[partition], []).append(partition)
    asking.know_nodes(divided)
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
