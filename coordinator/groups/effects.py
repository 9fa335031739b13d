"""What the coordinator of groups asks of the world, and what it answers.

Each event of a `GroupShard` gives one `ShardResult`. Whoever performs results does so in this order:

1. append `records` to the shard's partition of `__consumer_offsets`, in one batch, before the shard sees its
   next event. Where the log refuses them (nothing was written), hand the result to `GroupShard.refused`;
2. wait until everything appended so far by this and earlier results is committed (the high watermark has
   passed it). A result without records waits too: its answers may rest on what an earlier one wrote;
3. perform `claims`;
4. send `replies`.

Where the wait of step 2 fails or the partition's leadership moves, the requests are answered with an error
and the state stays as it is, because the log has the records: a lost leadership discards the shard, and the
next leader reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

RequestToken: TypeAlias = Any
"""Whoever waits for an answer: never None, and otherwise known only to the one who hands it in."""


class GroupRecord(NamedTuple):
    """One record of `__consumer_offsets`; a None value is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A member of a group as the leaders of partitions know it; `NOBODY` where no member reads."""

    member_id: str
    client_id: str = ""
    client_host: str = ""


NOBODY = GroupReader("")


@dataclass(frozen=True, slots=True)
class ReaderClaim:
    """`reader` alone reads `partition` for `group_id`, from `generation` of the group on.

    For groups with single readers (own API): performed after the assignment is durable and
    before any member is told of it, so a member that has not noticed the change cannot read on.
    """

    group_id: str
    reader: GroupReader
    generation: int
    partition: TopicPartition


class Decision(NamedTuple):
    """When a coordinator has decided something: in which leader epoch of the partition that keeps the group,
    and where its log ended then. Later ones compare greater, also those of the next coordinator, and those
    about a group that was deleted and made anew."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """The answer to any request that could not be carried out, because the log did not take its records."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Heartbeat, CreateGroup, and whatever else says only how it went."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """JoinGroup. `members` is empty for all but the leader."""

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
    """SyncGroup."""

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
    """LeaveGroup: one entry for each member that was to leave, in the order given."""

    members: Sequence[LeftMember]


@dataclass(frozen=True, slots=True)
class PartitionErrorsAnswer:
    """OffsetCommit and OffsetDelete: how each partition went, unless `error` says it for all."""

    error: ErrorCode
    partitions: Sequence[tuple[TopicPartition, ErrorCode]] = ()


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition's committed offset: -1 where there is none."""

    partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """OffsetFetch of one group."""

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
    """DescribeGroups of one group; one that does not exist is Dead, as in Kafka."""

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
    """ListGroups."""

    groups: Sequence[HostedGroup]


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    """DeleteGroups, and the DeleteGroup of the client rewrite: how each group went, in the order given."""

    groups: Sequence[tuple[str, ErrorCode]]


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition to own and where to start: -1 where nobody has committed anything yet."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class RegisterAnswer:
    """RegisterConsumer (client rewrite)."""

    error: ErrorCode
    generation: int = -1
    partitions_to_own: Sequence[OwnedPartition] = ()
    single_reader: bool = False


@dataclass(frozen=True, slots=True)
class ManagedHeartbeatAnswer:
    """The client rewrite's Heartbeat: any error code tells the consumer to register anew."""

    error: ErrorCode
    controller_generation: int = -1


@dataclass(frozen=True, slots=True)
class RewoundPartition:
    partition: TopicPartition
    offset: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RewindAnswer:
    """RewindConsumer: where each partition stands now, and the generation from which on."""

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
