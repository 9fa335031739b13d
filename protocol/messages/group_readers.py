"""Single readers of managed groups: who reads a partition for a group is known to the partition's leader.

The coordinator of the group tells the leaders (AssignReaders); a member tells them on which connection it
reads (AttachReader). What follows from it is told in docs/consumer-groups.md.
"""

from __future__ import annotations

from protocol.api import Request, Response, request
from protocol.schema import Int16, Int32, Int64, struct

FEATURE = "holdfast.single.reader"
NOT_ADVERTISED = "none"

NOBODY = ""
"""The `member_id` of partitions that no member reads."""


@struct
class ReadPartitions:
    """Partitions of a topic."""

    topic: str
    partitions: list[Int32]


@struct
class AssignedReader:
    """A member of a group, and the partitions that it alone reads from `generation` of the group on.

    `decided_epoch` and `decided_offset` tell when the coordinator has decided so: in which leader epoch of
    the partition of `__consumer_offsets` that keeps the group, and where that ended then. What was decided
    later counts, in whichever order the leaders hear of it.
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
    """STALE_GENERATION: something was decided later. Other errors may pass."""

    group: str
    topic: str
    partition: Int32
    error_code: Int16
    error_message: str | None = None


@struct
class AssignReadersResponse(Response):
    """Whatever is not among `refused` is in force, and written down."""

    error_code: Int16
    error_message: str | None = None
    refused: list[PartitionNotAssigned]


@request(key=30027, versions="0", flexible="0+", internal=True)
class AssignReadersRequest(Request[AssignReadersResponse]):
    """From the coordinator of groups to the leader of partitions."""

    readers: list[AssignedReader]


@struct
class AttachedPartition:
    """0: the member reads the partition on this connection. CLAIM_QUEUED: the coordinator has not told the
    leader of it yet. OWNERSHIP_FENCED: another reads it, or the member in a later generation.

    `generation` is that of the group in which the partition was assigned last, -1 where it never was.
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
    """From a member of a group to the leader of partitions that it was given, on the connection on which it
    is going to fetch them.

    Each partition succeeds or fails by itself. Nothing is taken from anybody by it.
    """

    group: str
    member_id: str
    generation: Int64
    topics: list[ReadPartitions]
