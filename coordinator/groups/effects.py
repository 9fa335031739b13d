"""The effects and answers of the group coordinator.

Each event of a `GroupShard` returns one `ShardResult`. coordinator/shards/effects.py says in which order its
parts are performed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from holdfast_log.coordinator.shards.effects import ProducerStamp, RequestToken, ShardRecord, ShardReply
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A group's member as known to partition leaders; `NOBODY` if no member reads."""

    member_id: str
    client_id: str = ""
    client_host: str = ""


NOBODY = GroupReader("")


@dataclass(frozen=True, slots=True)
class ReaderClaim:
    """Only `reader` may fetch `partition` for `group_id`, from `generation` of the group on.

    For groups with single readers (own API). Made after the assignment is durable and before any member is
    answered, so a member that has not noticed the rebalance cannot continue to read.
    """

    group_id: str
    reader: GroupReader
    generation: int
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The answer to Heartbeat, CreateGroup, and others that return only an error code."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the JoinGroup answer for the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to JoinGroup. `members` is empty except for the leader."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftMember:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """The answer to LeaveGroup: one entry for each member in the request, in order."""

    members: Sequence[LeftMember]


@dataclass(frozen=True, slots=True)
class PartitionErrorsAnswer:
    """The answer to OffsetCommit and OffsetDelete: an error for each partition, unless `error` is for all."""

    error: ErrorCode
    partitions: Sequence[tuple[TopicPartition, ErrorCode]] = ()


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition's committed offset; -1 if there is none."""

    partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """The answer to OffsetFetch for one group."""

    group_id: str
    offsets: Sequence[FetchedOffset]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """The answer to DescribeGroups for one group; a group that does not exist is Dead, as in Kafka."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedMember] = ()


@dataclass(frozen=True, slots=True)
class HostedGroup:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """The answer to ListGroups."""

    groups: Sequence[HostedGroup]


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    """The answer to DeleteGroups and the client rewrite's DeleteGroup: an error for each group, in order."""

    groups: Sequence[tuple[str, ErrorCode]]


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """An assigned partition and its start offset; -1 if the group has no committed offset there."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class RegisterAnswer:
    """The answer to RegisterConsumer (client rewrite)."""

    error: ErrorCode
    generation: int = -1
    partitions_to_own: Sequence[OwnedPartition] = ()
    single_reader: bool = False


@dataclass(frozen=True, slots=True)
class ManagedHeartbeatAnswer:
    """The answer to the client rewrite's Heartbeat: on any error the consumer has to register again."""

    error: ErrorCode
    controller_generation: int = -1


@dataclass(frozen=True, slots=True)
class RewoundPartition:
    partition: TopicPartition
    offset: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RewindAnswer:
    """The answer to RewindConsumer: the partitions' offsets, valid from `generation` on."""

    generation: int
    actual_offsets: Sequence[RewoundPartition]


@dataclass(frozen=True, slots=True)
class ManagedGroupInfo:
    """One group in the answer to the client rewrite's ListGroups."""

    group_id: str
    members: Sequence[str]
    topics: Sequence[str]
    session_timeout_ms: int
    ephemeral: bool
    single_reader: bool = False


@dataclass(frozen=True, slots=True)
class ManagedListAnswer:
    groups: Sequence[ManagedGroupInfo]


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """The answer to ConsumerGroupHeartbeat. `assignment` has (topic id, partition) pairs; None: unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Sequence[tuple[UUID, int]] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A member in the answer to ConsumerGroupDescribe. Partitions are (topic id, partition) pairs."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    regex: str
    assigned: Sequence[tuple[UUID, int]]
    target: Sequence[tuple[UUID, int]]
    is_classic: bool = False
    """Whether it uses the classic protocol."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupInfo:
    """The answer to ConsumerGroupDescribe for one group. `topics` are the names of the members' topics."""

    group_id: str
    error: ErrorCode
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    topics: Mapping[UUID, str] = field(default_factory=dict)
    members: Sequence[ConsumerInfo] = ()


@dataclass(slots=True)
class ShardResult:
    """The effects of one event; coordinator/shards/effects.py has the order in which they are performed.

    `groups_before` and `offsets_before` hold what the records replace, for `GroupShard.refused`: the value of
    the group's previous record, and the partition's previous offset (None: there was none); `pending_before`
    what open transactions had for a partition, by `PendingKey`. `settled` are the partitions of which the
    records delete what counted as deleted already (`DoomedOffsets`).
    """

    records: list[ShardRecord] = field(default_factory=list)
    stamp: ProducerStamp | None = None
    claims: list[ReaderClaim] = field(default_factory=list)
    replies: list[ShardReply] = field(default_factory=list)
    groups_before: dict[str, Any] = field(default_factory=dict)
    offsets_before: dict[tuple[str, TopicPartition], Any] = field(default_factory=dict)
    pending_before: dict[Any, Any] = field(default_factory=dict)
    settled: list[tuple[str, TopicPartition]] = field(default_factory=list)

    def reply(self, request: RequestToken, answer: object) -> None:
        self.replies.append(ShardReply(request, answer))
