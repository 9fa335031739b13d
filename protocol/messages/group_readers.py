"""Single readers of managed groups: a partition's leader knows which member of a group reads it.

The group's coordinator assigns the readers at the leaders (AssignReaders); a member attaches the connection
on which it reads (AttachReader). docs/consumer-groups.md has the rules.
"""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct

FEATURE = "holdfast.single.reader"
NOT_ADVERTISED = "none"

NOBODY = ""
"""The `member_id` for partitions that no member reads."""


@struct
class ReadPartitions:
    """Partitions of a topic."""

    topic: str
    partitions: list[Int32]


@struct
class AssignedReader:
    """A member of a group, and the partitions that only it reads, from the group's `generation` on.

    `decided_epoch` and `decided_offset` order the decisions: they are the leader epoch of the partition of
    `__consumer_offsets` that keeps the group, and its log end offset, at the time of the decision. The latest
    decision counts, in whatever order decisions reach the leaders.
    """

    group: str
    member_id: str
    client_id: str
    client_host: str
    generation: Int64
    decided_epoch: Int32
    decided_offset: Int64
    topics: list[ReadPartitions]


@struct
class PartitionNotAssigned:
    """A partition whose assignment failed. STALE_GENERATION: a later decision is known. Retry other
    errors."""

    group: str
    topic: str
    partition: Int32
    error_code: Int16
    error_message: str | None = None


@struct
class AssignReadersResponse(Response):
    """All assignments that are not in `refused` are durable and in force."""

    error_code: Int16
    error_message: str | None = None
    refused: list[PartitionNotAssigned]


@request(key=30027, versions="0", flexible="0+", internal=True)
class AssignReadersRequest(Request[AssignReadersResponse]):
    """Assigns readers: from the coordinator of groups to a leader of partitions."""

    readers: list[AssignedReader]


@struct
class AttachedPartition:
    """The outcome for one partition.

    0: the member reads the partition on this connection. CLAIM_QUEUED: the coordinator's assignment has not
    reached the leader yet. OWNERSHIP_FENCED: the partition is assigned to another member, or to this one in a
    later generation. `generation` is the group's generation in which it was assigned last; -1 if it never
    was.
    """

    topic: str
    partition: Int32
    error_code: Int16
    error_message: str | None = None
    generation: Int64 = -1


@struct
class AttachReaderResponse(Response):
    error_code: Int16
    error_message: str | None = None
    partitions: list[AttachedPartition]


@request(key=30028, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class AttachReaderRequest(Request[AttachReaderResponse]):
    """Attaches a member of a group to its partitions, on the connection on which it will fetch them.

    Each partition succeeds or fails separately. No partition is taken from another member.
    """

    group: str
    member_id: str
    generation: Int64
    topics: list[ReadPartitions]
