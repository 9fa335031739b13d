"""The effects that the controller machine yields, one at a time; `runtime` performs them in order.

A write is durable in ZooKeeper before the machine resumes, so later requests to brokers and answers never
precede it. Writes are retried over lost connections; one fails only when the controller's term ends, and the
machine is discarded then.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.controller import FeatureRecord
from holdfast_log.coordinator.znodes.topics import PartitionState, TopicAssignment
from holdfast_log.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest
from holdfast_log.protocol.topic_partition import TopicPartition

BrokerRequest: TypeAlias = (
    LeaderAndIsrRequest
    | UpdateMetadataRequest
    | StopReplicaRequest
    | GetReplicaLogInfoRequest
    | YieldLeadershipRequest
)


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A partition's new state. `version` is the expected version of the znode; None creates the znode."""

    at: TopicPartition
    state: PartitionState
    version: int | None


@dataclass(frozen=True, slots=True)
class StateWritten:
    """A partition's znode after a `StateWrite`: its state and version.

    `done` is False if the znode was not as expected and so was not written; the machine then decides again.
    `state` is None if the znode no longer exists.
    """

    done: bool
    state: PartitionState | None
    version: int


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Write partition states. Result: a `StateWritten` for each write, in order."""

    writes: list[StateWrite]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create the znodes of a topic and its config. Result: False if the topic exists already."""

    name: str
    assignment: TopicAssignment
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Replace the data of topics' znodes. No result."""

    topics: Mapping[str, TopicAssignment]


class ZnodeRequest(enum.Enum):
    """The kinds of requests that reach the controller as znodes."""

    REASSIGNMENT = "reassignment"
    """/admin/reassign_partitions. Read as target replicas by partition, or None if there is no znode."""
    ELECTION = "election"
    """/admin/preferred_replica_election. Read as a list of partitions."""
    DELETION = "deletion"
    """Children of /admin/delete_topics. Read as a list of topics."""
    LOG_DIRS = "log dirs"
    """Children of /log_dir_event_notification. Read as a dict: path to the id of the broker that lost a log
    directory, None if the data is malformed."""


@dataclass(frozen=True, slots=True)
class ReadZnodeRequest:
    """Read the current request of one kind. Result: as documented at the members of `ZnodeRequest`."""

    request: ZnodeRequest


@dataclass(frozen=True, slots=True)
class RemoveZnodeRequests:
    """Remove znodes of requests that have been handled. No result."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class WriteReassignmentZnode:
    """Replace /admin/reassign_partitions by the unfinished targets; remove it if there are none. No
    result."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MarkDeleted:
    """Mark topics for deletion in ZooKeeper, so that a later controller continues it. No result."""

    names: list[str]


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove all znodes of a topic, the deletion mark last. Result: the leader epoch in which new partitions
    begin from now on, above all those of the topic."""

    name: str


@dataclass(frozen=True, slots=True)
class SetBrokers:
    """Replace the set of live brokers. Requests to brokers that have gone are dropped. No result."""

    brokers: dict[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class RecordBrokers:
    """Write to ZooKeeper, by broker id, the start epochs of the broker processes whose start was handled, and
    what is decided about features.

    A later controller recognises by it which brokers have restarted since. No result.
    """

    epochs: Mapping[int, int]
    features: FeatureRecord


@dataclass(frozen=True, slots=True)
class Pause:
    """Let other work of this process run first. No result."""


@dataclass(frozen=True, slots=True)
class CheckRecovery:
    """Queue the event `RecoveryCheckDue` after `after_s` seconds. No result."""

    after_s: float


@dataclass(frozen=True, slots=True)
class AskToYieldLater:
    """Queue the event `YieldDue` after `after_s` seconds. No result."""

    after_s: float


@dataclass(frozen=True, slots=True)
class SendToBrokers:
    """Send (broker id, request) pairs, each until it is answered or the broker has gone. No result.

    Requests to one broker arrive in order.
    """

    requests: list[tuple[int, BrokerRequest]]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer the part `key` of the request `token`. No result.

    With `after_brokers_answered` the answer waits until all requests sent so far by this event are answered;
    at the request's timeout it is enough that the brokers in `needed` have answered. An `is_provisional`
    answer is sent only at the request's timeout, if no other answer has come until then.
    """

    token: int
    key: Any
    result: Any
    after_brokers_answered: bool = False
    needed: tuple[int, ...] = ()
    is_provisional: bool = False


ControllerEffect: TypeAlias = (
    WriteStates
    | CreateTopic
    | WriteAssignments
    | ReadZnodeRequest
    | RemoveZnodeRequests
    | WriteReassignmentZnode
    | MarkDeleted
    | RemoveTopic
    | SetBrokers
    | RecordBrokers
    | Pause
    | CheckRecovery
    | AskToYieldLater
    | SendToBrokers
    | AnswerRequest
)
T = TypeVar("T")
DecisionSteps: TypeAlias = Generator[ControllerEffect, Any, T]
"""A decision in progress: a generator that yields effects, is sent their results, and returns a T."""
