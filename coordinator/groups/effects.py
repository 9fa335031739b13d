"""The effects and answers of the group coordinator.

Each event of a `GroupShard` returns one `ShardResult`. `HostedShard` performs its parts in this order:

1. append `records` to the shard's partition of `__consumer_offsets`, in one batch, before the shard sees its
   next event. If the log refuses them (nothing was written), pass the result to `GroupShard.refused`;
2. wait until everything appended by this and earlier results is committed (the high watermark has passed it).
   A result without records waits too: its answers may depend on records of an earlier result;
3. perform `claims`;
4. send `replies`.

If the wait of step 2 times out or leadership of the partition moves, the requests are answered with an error.
The state stays, because the log has the records: a broker that loses leadership discards the shard, and the
next leader reads the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

RequestToken: TypeAlias = Any
"""The caller's token for one pending request. Opaque to the group; never None."""


class GroupRecord(NamedTuple):
    """One record of `__consumer_offsets`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


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


class Decision(NamedTuple):
    """The position of a coordinator's decision: leader epoch and log end offset of the group's partition.

    A later decision compares greater, also across coordinators and when a group is deleted and created again.
    """

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """The answer to any request whose records the log refused."""

    error: ErrorCode


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


class GroupReply(NamedTuple):
    request: RequestToken
    answer: object


@dataclass(slots=True)
class ShardResult:
    """The effects of one event; see the head of this file for the order in which they are performed.

    `groups_before` and `offsets_before` hold what the records replace, for `GroupShard.refused`: the value of
    the group's previous record, and the partition's previous offset (None: there was none).
    """

    records: list[GroupRecord] = field(default_factory=list)
    claims: list[ReaderClaim] = field(default_factory=list)
    replies: list[GroupReply] = field(default_factory=list)
    groups_before: dict[str, Any] = field(default_factory=dict)
    offsets_before: dict[tuple[str, TopicPartition], Any] = field(default_factory=dict)

    def reply(self, request: RequestToken, answer: object) -> None:
        self.replies.append(GroupReply(request, answer))
