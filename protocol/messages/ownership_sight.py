"""Who owns what, since when, and who had it before; and an administrator's way to take it away."""

from __future__ import annotations

import enum

from protocol.api import Request, Response, request
from protocol.messages.ownership import FEATURE, NO_PARTITION, NOT_ADVERTISED, LossReason
from protocol.schema import Int8, Int16, Int32, Int64, struct, wire


class OwnershipState(enum.IntEnum):
    """Whether a resource has an owner."""

    FREE = 0
    OWNED = 1
    DETACHED = 2
    """Its owner's connection is gone; it may come back until its time is up."""


@struct
class PastGrant:
    """One line of a resource's history. `reason` is NONE, and `until_ms` -1, for the grant in force.

    From `start_offset` on, up to the next grant's, no other owner has written; -1 where the resource is no
    partition.
    """

    generation: Int64
    incarnation: Int64
    owner_id: str
    start_offset: Int64
    since_ms: Int64
    until_ms: Int64
    reason: Int8 = LossReason.NONE


@struct
class DescribedWaiter:
    """One that stands in the queue. `remaining_ms` is how long it still waits."""

    owner_id: str
    client_id: str
    host: str
    remaining_ms: Int64


@struct
class DescribedSharer:
    """A producer with shared access."""

    owner_id: str
    client_id: str
    host: str


@struct
class DescribedResource:
    """A resource of one group, as the broker that decides about it knows it.

    Times are in ms since the epoch; -1 and null where there is no owner. `session_remaining_ms` is how long
    the owner may be silent from now on.
    """

    group: str
    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64
    incarnation: Int64
    state: Int8
    access: Int8
    fence_offset: Int64
    owner_id: str | None = None
    client_id: str | None = None
    principal: str | None = None
    host: str | None = None
    writer_client_id: str | None = None
    writer_principal: str | None = None
    since_ms: Int64 = -1
    session_timeout_ms: Int32 = -1
    session_remaining_ms: Int64 = -1
    waiters: list[DescribedWaiter] = wire()
    sharers: list[DescribedSharer] = wire()
    history: list[PastGrant] = wire()
    claims: Int64 = 0
    steals: Int64 = 0
    refusals: Int64 = 0
    fenced_appends: Int64 = 0
    mismatches: Int64 = 0


@struct
class ResourceName:
    name: str
    partition: Int32 = NO_PARTITION


@struct
class DescribeOwnersResponse(Response):
    error_code: Int16
    error_message: str | None = None
    resources: list[DescribedResource]


@request(key=30024, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class DescribeOwnersRequest(Request[DescribeOwnersResponse]):
    """Of the resources that this broker decides about: all, or those of the groups and names given.

    Counters start anew with the broker.
    """

    groups: list[str] | None = None
    resources: list[ResourceName] | None = None
    include_history: bool = False


@struct
class ReleasedResource:
    """`generation` is the one that was in force."""

    name: str
    partition: Int32 = NO_PARTITION
    error_code: Int16
    error_message: str | None = None
    generation: Int64 = -1
    owner_id: str | None = None


@struct
class ForceReleaseResponse(Response):
    error_code: Int16
    error_message: str | None = None
    resources: list[ReleasedResource]


@struct
class ResourceToRelease:
    """`generation` is the one to end, so that no later owner is hit by mistake; -1: whichever there is."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64 = -1


@request(key=30025, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ForceReleaseRequest(Request[ForceReleaseResponse]):
    """Takes resources from their owners, whose connections are severed and who cannot resume.

    `comment` goes to the audit log.
    """

    group: str
    resources: list[ResourceToRelease]
    timeout_ms: Int32
    comment: str = ""
