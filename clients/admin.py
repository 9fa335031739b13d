"""The admin client: topics, partitions, configurations, records and what a cluster tells of itself.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        admin.create_topics([NewTopic("flights", partitions=6)])

Values go in and come out as dataclasses. A call about several things does what it can for each and then
raises the first error, if there was one; the error's text names the thing. Not for several threads at once.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from clients.config import Properties, admin_settings
from clients.connection import ANY_NODE, CONTROLLER, Connection
from clients.errors import RequestTimeoutError, is_retriable
from clients.message import TopicPartition
from clients.metadata import Node, PartitionInfo
from clients.network import Network
from clients.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    OffsetAndTimestamp,
    look_up_offsets,
    wait_for_metadata,
)
from protocol.api import Request, Response
from protocol.configs import ConfigOperation as ConfigOperation  # For those who use the admin client.
from protocol.configs import ResourceType as ResourceType
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
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
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.elect_leaders import TopicPartitions as ElectionTopic
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

__all__ = [
    "Admin", "NewTopic", "TopicDescription", "ClusterDescription", "ConfigEntry", "ConfigResource",
    "ConfigChange", "ConfigOperation", "ConfigSource", "ResourceType", "LogDir", "ReplicaSize",
    "ProducerDescription", "ElectionType", "Reassignment",
    "OffsetAndTimestamp", "EARLIEST", "LATEST", "MAX_TIMESTAMP",
]  # fmt: skip

R = TypeVar("R", bound=Response)
T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster, and who leads it. `controller` is None where there is none at the moment."""

    cluster_id: str | None
    nodes: tuple[Node, ...]
    controller: Node | None


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, a broker by its id, or with an empty name the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(defaults)'}"


class ConfigSource(enum.IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting in force. `value` is None where it is unset, or kept secret (`is_sensitive`)."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


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


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An idempotent producer that a partition remembers. `last_timestamp` is in ms since the epoch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int


class ElectionType(enum.IntEnum):
    """Whom to elect: the first replica, which is the preferred leader, if it is in sync; or, for a partition
    without a leader, any replica that is alive, at the price of acknowledged records."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move that runs: `replicas` has the target and what still has to leave."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Admin:
    """Manages a cluster. `properties` are Kafka's, from a dict or a properties file. Raises ConfigError.

    Every method raises BrokerError (one of its subclasses) for what a broker declines, and ClientError where
    none answers within `default.api.timeout.ms`; until then what may pass is tried again.
    """

    def __init__(
        self, properties: Properties, *, network: Network | None = None, rng: random.Random | None = None
    ) -> None:
        self.settings = admin_settings(properties)
        self._timeout_ms: int = self.settings["default.api.timeout.ms"]
        self._backoff_ms: int = self.settings["retry.backoff.ms"]
        self._connection = Connection(
            self.settings["bootstrap.servers"], self.settings, network=network, rng=rng
        )

    # Topics -------------------------------------------------------------------------------------------

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
        _raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.topics)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all that is in them. Raises UnknownTopicOrPartitionError and others."""
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._timeout_ms,
        )
        response = self._ask(CONTROLLER, request, lambda answer: [row.error_code for row in answer.responses])
        _raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.responses)

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
        _raise_first((f"topic {row.name}", row.error_code, row.error_message) for row in response.results)

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
        _raise_first((f"topic {row.name}", row.error_code, None) for row in response.topics)
        return [_described(row) for row in response.topics]

    # The cluster --------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        """The brokers that are there, and the controller."""
        response = self._ask(
            ANY_NODE,
            DescribeClusterRequest(include_cluster_authorized_operations=False),
            lambda answer: [answer.error_code],
        )
        _raise_first([("cluster", response.error_code, response.error_message)])
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
            _raise_first([(f"broker {node}", response.error_code, None)])
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

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The producers that each partition's leader remembers."""
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        for node, led in self._by_leader(partitions).items():
            topics: dict[str, TopicRequest] = {}
            for name, number in led:
                row = topics.setdefault(name, TopicRequest(name=name, partition_indexes=[]))
                row.partition_indexes.append(number)
            response = self._ask(node, DescribeProducersRequest(topics=list(topics.values())))
            rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
            _raise_first(
                (f"{name}-{row.partition_index}", row.error_code, row.error_message) for name, row in rows
            )
            for name, described in rows:
                found[TopicPartition(name, described.partition_index)] = [
                    ProducerDescription(
                        each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp
                    )
                    for each in described.active_producers
                ]
        return found

    # Configurations -----------------------------------------------------------------------------------

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool = False
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """The settings in force of topics and brokers, those with default values included."""
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for node, asked in _by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.type, resource_name=each.name, configuration_keys=None
                    )
                    for each in asked
                ],
                include_documentation=include_documentation,
            )
            response = self._ask(node, request, lambda answer: [row.error_code for row in answer.results])
            _raise_first((row.resource_name, row.error_code, row.error_message) for row in response.results)
            for row in response.results:
                resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
                found[resource] = [
                    ConfigEntry(
                        each.name,
                        each.value,
                        _source(each.config_source),
                        each.read_only,
                        each.is_sensitive,
                        each.documentation,
                    )
                    for each in row.configs
                ]
        return found

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings and leave the others as they are (KIP-339). Raises InvalidConfigError."""
        for node, asked in _by_node(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            AlterableConfig(
                                name=change.name, config_operation=change.operation, value=change.value
                            )
                            for change in changes[each]
                        ],
                    )
                    for each in asked
                ],
                validate_only=validate_only,
            )
            response = self._ask(
                CONTROLLER if node == ANY_NODE else node,
                request,
                lambda answer: [row.error_code for row in answer.responses],
            )
            _raise_first((row.resource_name, row.error_code, row.error_message) for row in response.responses)

    # Records ------------------------------------------------------------------------------------------

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offsets of EARLIEST, LATEST, MAX_TIMESTAMP, or of times in ms since the epoch.

        Offset -1: there is no record so late.
        """
        return look_up_offsets(self._connection, times, self._timeout_ms)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what comes before these offsets (-1: all there is).

        Returns the first offset that each partition holds then.
        """
        found: dict[TopicPartition, int] = {}
        for node, led in self._by_leader(before).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in led:
                row = topics.setdefault(
                    partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[])
                )
                row.partitions.append(
                    DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
            response = self._ask(node, request)
            rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
            _raise_first((f"{name}-{row.partition_index}", row.error_code, None) for name, row in rows)
            for name, deleted in rows:
                found[TopicPartition(name, deleted.partition_index)] = deleted.low_watermark
        return found

    # Leaders and replicas -----------------------------------------------------------------------------

    def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders for these partitions, or for all (KIP-460); why not, where none was elected.

        ELECTION_NOT_NEEDED says that the partition has the leader that was wanted.
        """
        rows = None
        if partitions is not None:
            rows = [
                ElectionTopic(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=election, topic_partitions=rows, timeout_ms=self._timeout_ms
        )
        response = self._ask(CONTROLLER, request, lambda answer: [answer.error_code])
        _raise_first([("election", response.error_code, None)])
        return {
            TopicPartition(topic.topic, row.partition_id): (
                error_for(row.error_code, row.error_message) if row.error_code else None
            )
            for topic in response.replica_election_results
            for row in topic.partition_result
        }

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Begin to move partitions to these brokers, the preferred leader first (KIP-455). None cancels.

        Returns why not, where a move was refused. What has begun is told by `list_partition_reassignments`.
        """
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
            for topic, numbers in _by_topic(targets).items()
        ]
        request = AlterPartitionReassignmentsRequest(topics=rows, timeout_ms=self._timeout_ms)
        response = self._ask(CONTROLLER, request, lambda answer: [answer.error_code])
        _raise_first([("reassignment", response.error_code, response.error_message)])
        return {
            TopicPartition(topic.name, row.partition_index): (
                error_for(row.error_code, row.error_message) if row.error_code else None
            )
            for topic in response.responses
            for row in topic.partitions
        }

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that run, of these partitions or of all."""
        rows = None
        if partitions is not None:
            rows = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(topics=rows, timeout_ms=self._timeout_ms)
        response = self._ask(CONTROLLER, request, lambda answer: [answer.error_code])
        _raise_first([("reassignments", response.error_code, response.error_message)])
        return {
            TopicPartition(topic.name, row.partition_index): Reassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }

    # How it is asked ----------------------------------------------------------------------------------

    def _ask(
        self,
        node: int,
        request: Request[R],
        codes: Callable[[R], Iterable[int]] = lambda _: (),
    ) -> R:
        """The response; asked for again where the way to it failed, or where the controller had moved."""
        now_ms = self._connection.network.now_ms
        deadline_ms = now_ms() + self._timeout_ms
        while True:
            left_ms = max(0, deadline_ms - now_ms())
            try:
                response = self._connection.ask(node, request, left_ms)
                if ErrorCode.NOT_CONTROLLER not in codes(response) or now_ms() >= deadline_ms:
                    return response
            except Exception as error:
                if not is_retriable(error) or now_ms() + self._backoff_ms >= deadline_ms:
                    raise
            wait_for_metadata(self._connection, min(self._backoff_ms, max(0, deadline_ms - now_ms())))

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

    def _know_nodes(self, nodes: Iterable[int]) -> None:
        """See to it that these brokers are known by their ids. Raises RequestTimeoutError."""
        metadata = self._connection.metadata
        deadline_ms = self._connection.network.now_ms() + self._timeout_ms
        while any(node not in metadata.nodes for node in nodes):
            left_ms = deadline_ms - self._connection.network.now_ms()
            if left_ms <= 0:
                raise RequestTimeoutError("a broker that leads a partition is not to be found")
            wait_for_metadata(self._connection, left_ms)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_node(resources: Iterable[ConfigResource]) -> dict[int, list[ConfigResource]]:
    """Resources divided by who answers for them: each broker for itself, any for the rest."""
    divided: dict[int, list[ConfigResource]] = {}
    for each in resources:
        node = int(each.name) if each.type is ResourceType.BROKER and each.name else ANY_NODE
        divided.setdefault(node, []).append(each)
    return divided


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by their topics."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


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


def _raise_first(rows: Iterable[tuple[str, int, str | None]]) -> None:
    """Raise the first error among (thing, error code, message), with the thing's name in its text."""
    for thing, code, message in rows:
        if code:
            plain = error_for(code, message)
            raise error_for(code, f"{thing}: {plain.message}")
