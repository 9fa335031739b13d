"""DescribeOwners and ForceRelease: the owners of resources and their history; release by force."""

from __future__ import annotations

import enum

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.ownership import FEATURE, NO_PARTITION, NOT_ADVERTISED, LossReason
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire


class OwnershipState(enum.IntEnum):
    """Whether a resource has an owner."""

    FREE = 0
    OWNED = 1
    DETACHED = 2
    """Its owner's connection has closed; the owner may resume until its session or grace period ends."""


@struct
class PastGrant:
    """One grant in a resource's history. `reason` is NONE and `until_ms` is -1 for the grant in force.

    No other owner has written between `start_offset` and that of the next grant; -1 for names.
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
    """A claim in the queue. `remaining_ms` is how long it still waits; -1: until its connection closes."""

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
    """A resource of one group, as known to the broker that decides about it.

    Times are in ms since the epoch; -1 and null if there is no owner. `session_remaining_ms` is the time
    after which the owner's session ends unless it sends a request.
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
    """Describes the resources that this broker decides about: all, or only those of `groups` and `resources`.

    Counters start from 0 when the broker starts.
    """

    groups: list[str] | None = None
    resources: list[ResourceName] | None = None
    include_history: bool = False


@struct
class ReleasedResource:
    """A resource released by force. `generation` is the one that was in force."""

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
    """`generation` is the one to end, so that no later owner is released by mistake; -1: any."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64 = -1


@request(key=30025, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ForceReleaseRequest(Request[ForceReleaseResponse]):
    """Takes resources from their owners, whose connections are severed and who cannot resume.

    `comment` is written to the audit log. The answer comes within `timeout_ms`.
    """

    group: str
    resources: list[ResourceToRelease]
    timeout_ms: Int32
    comment: str = ""
