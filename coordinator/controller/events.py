"""What happens to the controller: one queue of these, one handled at a time.

`token` names a request that waits for an answer (`controller_effects.Answer`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from coordinator.controller.effects import BrokerRequest, Order
from coordinator.controller.state import LiveBroker, Snapshot
from coordinator.znodes.brokers import NO_EPOCH
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataResponse
from protocol.topic_partition import TopicPartition

BrokerResponse: TypeAlias = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

NO_ID = uuid.UUID(int=0)
DEFAULT = -1
"""The number of partitions or replicas of which the broker's configuration decides."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic to be made: by numbers, or by `assignments` (the brokers of each partition, leader first)."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic is to have `count` partitions; `assignments`, if given, has the brokers of each new one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic in a request. The last three are of a topic that was (or would be) made."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID = NO_ID
    partition_count: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class ShutdownResult:
    """Whether a broker may stop: once `remaining`, what it leads and others might lead, is empty."""

    error: ErrorCode = ErrorCode.NONE
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Elected:
    """The term begins, with what was read from ZooKeeper."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The registered brokers are these now."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class BrokerAnswered:
    """A broker, in its life of `broker_epoch`, has answered a request."""

    broker_id: int
    broker_epoch: int
    request: BrokerRequest
    response: BrokerResponse


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Results: a `TopicResult` for each name."""

    token: int
    topics: Sequence[TopicCreation]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Results: a `TopicResult` for each name, when the topic has gone."""

    token: int
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Results: a `TopicResult` for each name."""

    token: int
    topics: Sequence[MorePartitions]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """Proposals of leaders for other in-sync sets; those that waited are handled together.

    Results: an `AlterPartitionResponse` for each token.
    """

    requests: Sequence[tuple[int, AlterPartitionRequest]]


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker is about to stop. Result: a `ShutdownResult`. An epoch of -1 is not checked."""

    token: int
    broker_id: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """A topic's unclean.leader.election.enable has become true: what was stuck may get a leader."""

    name: str


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Give leadership back to preferred leaders; all partitions where None is named.

    With `unclean`, elect leaders where there are none, from replicas that are not in sync too if need be,
    whatever the topic's settings say. Result: an `ErrorCode` for each partition named, or of which the leader
    was changed.
    """

    token: int
    partitions: Sequence[TopicPartition] | None
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Move partitions to other brokers; None cancels a move that runs.

    Result: for each partition a `BrokerError`, or None where the move has begun.
    """

    token: int
    targets: Mapping[TopicPartition, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """Tell which partitions are on the move, of those named or of all. Result: their `Assignment`s."""

    token: int
    partitions: Sequence[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """Somebody has left an order in ZooKeeper."""

    order: Order


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """Time to see whether leadership has drifted away from the preferred leaders."""


ControllerEvent: TypeAlias = (
    Elected
    | BrokersChanged
    | BrokerAnswered
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterPartitions
    | ControlledShutdown
    | UncleanElectionEnabled
    | ElectLeaders
    | AlterReassignments
    | ListReassignments
    | Ordered
    | BalanceDue
)
