"""Creating, changing, deleting and describing topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.cluster_view import PartitionInfo
from holdfast_log.clients.connection.connection import ANY_NODE, CONTROLLER
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from holdfast_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast_log.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T", CreateTopicsResponse, DeleteTopicsResponse, CreatePartitionsResponse)

BROKER_DEFAULT = -1
_OVER_QUOTA = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_Result = tuple[str, int, str | None]
"""What the controller says of a topic: its name, an error code and a message."""


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


def create_topics(
    asking: Asking,
    topics: Iterable[NewTopic],
    *,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
) -> None:
    """Create topics. Raises TopicExistsError, InvalidTopicError, InvalidConfigError, QuotaExceededError and
    others."""
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

    def request(names: Collection[str], timeout_ms: int) -> CreateTopicsRequest:
        wanted = [row for row in rows if row.name in names]
        return CreateTopicsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    _ask_controller(
        asking,
        [row.name for row in rows],
        request,
        lambda response: [(row.name, row.error_code, row.error_message) for row in response.topics],
        retry_on_quota_violation,
    )


def delete_topics(asking: Asking, names: Iterable[str], *, retry_on_quota_violation: bool = True) -> None:
    """Delete topics and all their records. Raises UnknownTopicOrPartitionError, QuotaExceededError and
    others."""
    wanted = list(names)

    def request(left: Collection[str], timeout_ms: int) -> DeleteTopicsRequest:
        some = [name for name in wanted if name in left]
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in some],
            topic_names=some,
            timeout_ms=timeout_ms,
        )

    _ask_controller(
        asking,
        wanted,
        request,
        lambda response: [(row.name or "", row.error_code, row.error_message) for row in response.responses],
        retry_on_quota_violation,
    )


def create_partitions(
    asking: Asking,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
    retry_on_quota_violation: bool = True,
) -> None:
    """Raise topics' numbers of partitions to `counts`. Raises QuotaExceededError and others."""
    rows = []
    for name, count in counts.items():
        given = (assignments or {}).get(name)
        replicas = (
            None if given is None else [CreatePartitionsAssignment(broker_ids=list(each)) for each in given]
        )
        rows.append(CreatePartitionsTopic(name=name, count=count, assignments=replicas))

    def request(names: Collection[str], timeout_ms: int) -> CreatePartitionsRequest:
        wanted = [row for row in rows if row.name in names]
        return CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only)

    _ask_controller(
        asking,
        [row.name for row in rows],
        request,
        lambda response: [(row.name, row.error_code, row.error_message) for row in response.results],
        retry_on_quota_violation,
    )


def _ask_controller(
    asking: Asking,
    names: Iterable[str],
    request: Callable[[Collection[str], int], Request[T]],
    results: Callable[[T], list[_Result]],
    retry_on_quota_violation: bool,
) -> None:
    """Have the controller change topics, and raise the first error.

    `request` makes the request for topics and a timeout in ms. Topics that the client's quota of created and
    deleted partitions refuses are asked for again after the throttle time, unless the timeout ends before
    (KIP-599).
    """
    now_ms = asking.connection.network.now_ms
    deadline_ms = now_ms() + asking.timeout_ms
    failed: list[_Result] = []
    left, wait_ms = set(names), 0
    while left:
        if wait_ms:
            asking.wait(wait_ms)
        left_ms = deadline_ms - now_ms()
        response = asking.ask(
            CONTROLLER,
            request(left, left_ms),
            lambda answer: [code for _, code, _ in results(answer)],
            left_ms,
        )
        refused = [result for result in results(response) if result[1]]
        wait_ms = max(1, response.throttle_time_ms)
        may_retry = retry_on_quota_violation and now_ms() + wait_ms < deadline_ms
        again = [result for result in refused if may_retry and result[1] == _OVER_QUOTA]
        failed += [result for result in refused if result not in again]
        left = {name for name, _, _ in again}
    raise_first((f"topic {name}", code, message) for name, code, message in failed)


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
