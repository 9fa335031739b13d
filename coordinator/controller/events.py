"""The events of the controller, queued and handled one at a time.

`token` identifies a request that waits for an answer (`coordinator.controller.effects.AnswerRequest`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast_log.coordinator.controller.effects import BrokerRequest, ZnodeRequest
from holdfast_log.coordinator.controller.state import LiveBroker, Snapshot, Topic
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast_log.protocol.messages.get_replica_log_info import GetReplicaLogInfoResponse
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from holdfast_log.protocol.messages.stop_replica import StopReplicaResponse
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataResponse
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipResponse
from holdfast_log.protocol.topic_partition import TopicPartition

BrokerResponse: TypeAlias = (
    LeaderAndIsrResponse
    | UpdateMetadataResponse
    | StopReplicaResponse
    | GetReplicaLogInfoResponse
    | YieldLeadershipResponse
)

NO_ID = uuid.UUID(int=0)
DEFAULT = -1
"""A number of partitions or replicas that stands for the broker's default."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic to create: by counts, or by `assignments` (replicas by partition, preferred leader first)."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """Raise a topic to `count` partitions; `assignments`, if given, has the replicas of each new one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic of a request. The last three fields describe a topic that was (or would be)
    created."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID = NO_ID
    partition_count: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class ShutdownResult:
    """The answer to a controlled shutdown: the broker may stop once `remaining` is empty.

    `remaining` are the partitions that the broker still leads although other brokers have replicas.
    """

    error: ErrorCode = ErrorCode.NONE
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Elected:
    """The term begins; `snapshot` was read from ZooKeeper."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The set of registered brokers, or a registration, has changed; `brokers` are all of them now."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class TopicReadAgain:
    """A topic whose znodes could not be read was repaired; `topic` is None if its znode was removed."""

    name: str
    topic: Topic | None


@dataclass(frozen=True, slots=True)
class BrokerAnswered:
    """A broker, registered under `broker_epoch`, has answered a request."""

    broker_id: int
    broker_epoch: int
    request: BrokerRequest
    response: BrokerResponse


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics. Results: a `TopicResult` for each name."""

    token: int
    topics: Sequence[TopicCreation]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Delete topics. Results: a `TopicResult` for each name, when the topic is removed."""

    token: int
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to topics. Results: a `TopicResult` for each name."""

    token: int
    topics: Sequence[MorePartitions]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """AlterPartition requests: leaders propose new in-sync sets. Queued requests are handled together.

    Results: an `AlterPartitionResponse` for each token.
    """

    requests: Sequence[tuple[int, AlterPartitionRequest]]


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker is about to stop. Result: a `ShutdownResult`. A broker epoch of -1 is not checked."""

    token: int
    broker_id: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """A topic's unclean.leader.election.enable has become true: its leaderless partitions may get leaders."""

    name: str


@dataclass(frozen=True, slots=True)
class MinInSyncChanged:
    """A topic's min.insync.replicas may have changed: it may need fewer eligible replicas."""

    name: str


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect preferred leaders; `partitions` None means all.

    With `unclean`, elect leaders for leaderless partitions instead, if need be from replicas out of sync and
    whatever the topic's settings. Result: an `ErrorCode` for each named partition; for all partitions only
    those where an election was needed.
    """

    token: int
    partitions: Sequence[TopicPartition] | None
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Reassign partitions to other brokers; a target of None cancels a running reassignment.

    Result: for each partition a `BrokerError`, or None if the reassignment has begun.
    """

    token: int
    targets: Mapping[TopicPartition, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """List the running reassignments.

    Result: a `ReplicaAssignment` for each partition that is being reassigned.
    """

    token: int


@dataclass(frozen=True, slots=True)
class ZnodeRequested:
    """A request has appeared as a znode; its content is read when this event is handled."""

    request: ZnodeRequest


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """Time to check whether brokers lead too few of the partitions that prefer them."""


@dataclass(frozen=True, slots=True)
class RecoveryCheckDue:
    """Time to check which replicas have not said yet where their logs end, and to ask them again."""


@dataclass(frozen=True, slots=True)
class YieldDue:
    """Time to ask the leaders again that could not yield, or confirm again, because of an error."""


ControllerEvent: TypeAlias = (
    Elected
    | BrokersChanged
    | TopicReadAgain
    | BrokerAnswered
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterPartitions
    | ControlledShutdown
    | UncleanElectionEnabled
    | MinInSyncChanged
    | ElectLeaders
    | AlterReassignments
    | ListReassignments
    | ZnodeRequested
    | BalanceDue
    | RecoveryCheckDue
    | YieldDue
)
