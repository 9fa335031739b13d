"""What the controller wants done. The machine yields these one by one; the service performs them in order.

Writes are durable before the machine goes on, so what it yields afterwards (requests to brokers, answers)
rests on what ZooKeeper holds. A write fails only with the end of the controller's term, and then the machine
is thrown away: it never sees a lost connection.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from coordinator.controller.state import LiveBroker
from coordinator.znodes.topics import PartitionState, TopicAssignment
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition

BrokerRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A partition's new state. `version` is the znode's version before; None: the znode is to be made."""

    at: TopicPartition
    state: PartitionState
    version: int | None


@dataclass(frozen=True, slots=True)
class StateWritten:
    """What a partition's znode holds after a `StateWrite`, and its version.

    `done` is False where it held something else than expected and was left alone; then the write is to be
    decided on anew. `state` is None where there is no znode any more.
    """

    done: bool
    state: PartitionState | None
    version: int


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Write partition states; the result is a list of `StateWritten`, one for each, in order."""

    writes: list[StateWrite]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic's znode and its configs'; the result is whether it was made (False: there is one)."""

    name: str
    assignment: TopicAssignment
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Replace the data of topics' znodes. No result."""

    topics: Mapping[str, TopicAssignment]


class Order(enum.Enum):
    """The kinds of orders that reach the controller through ZooKeeper."""

    REASSIGNMENT = "reassignment"
    """/admin/reassign_partitions. Read as the target replicas by partition; None where there is none."""
    ELECTION = "election"
    """/admin/preferred_replica_election. Read as a list of partitions."""
    DELETION = "deletion"
    """Marks in /admin/delete_topics. Read as a list of topics."""
    LOG_DIRS = "log dirs"
    """Notifications in /log_dir_event_notification. Read as the brokers that lost a directory, by the paths
    of what says so; None where that is not understood."""


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """Read what is ordered now; the result is empty where nothing is."""

    order: Order


@dataclass(frozen=True, slots=True)
class RemoveOrders:
    """Remove znodes of orders that have been carried out. No result."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class WriteReassignmentOrder:
    """Leave in /admin/reassign_partitions what is still to be done; with nothing left it goes. No result."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MarkDeleted:
    """Write down that topics are to be deleted, so that the next controller goes on with it. No result."""

    names: list[str]


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove everything that ZooKeeper holds of a topic, the mark last. No result."""

    name: str


@dataclass(frozen=True, slots=True)
class SetBrokers:
    """The brokers to be talked to from now on. What waits for one that has gone is dropped. No result."""

    brokers: dict[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class RecordBrokers:
    """Write down, by broker id, the start epochs of those lives of brokers that all states take account of.

    The next controller so learns who has started anew since, whatever became of the states meanwhile. No
    result.
    """

    epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let whatever else this process has to do have its turn. No result."""


@dataclass(frozen=True, slots=True)
class TellBrokers:
    """Requests to brokers, each to be sent until it is answered or the broker has gone. No result.

    Requests to one broker arrive in order.
    """

    requests: list[tuple[int, BrokerRequest]]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """The answer to a request's part `key`. No result.

    With `after_told` the requester is to wait until brokers know: until the requests that this event has sent
    so far have been answered. `needed` are the brokers without which it would be of no use.
    """

    token: int
    key: Any
    result: Any
    after_told: bool = False
    needed: tuple[int, ...] = ()


ControllerEffect: TypeAlias = (
    WriteStates
    | CreateTopic
    | WriteAssignments
    | ReadOrder
    | RemoveOrders
    | WriteReassignmentOrder
    | MarkDeleted
    | RemoveTopic
    | SetBrokers
    | RecordBrokers
    | Pause
    | TellBrokers
    | AnswerRequest
)
T = TypeVar("T")
DecisionSteps: TypeAlias = Generator[ControllerEffect, Any, T]
"""A decision in progress: it yields effects, is sent their results, and returns."""
