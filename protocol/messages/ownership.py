"""One writer, one reader: claiming resources, keeping them, letting go of them (own API).

The APIs are announced as the feature `holdfast.own`, never among the API keys. What they mean, rule by rule,
is told in docs/ownership.md.

A resource is a partition of a topic, and then asked of the partition's leader, or a name of the application's
own, and then asked of the coordinator of its group.
"""

from __future__ import annotations

import enum

from protocol.api import Request, Response, request
from protocol.schema import Int8, Int16, Int32, Int64, struct, wire

FEATURE = "holdfast.own"
NOT_ADVERTISED = "none"

NO_PARTITION = -1
"""The `partition` of a resource that is a name of the application's own."""
PRODUCERS_GROUP = ""
"""The group of those who write by producer access (PIP-68); no other group is empty."""
RESET_GENERATION = 0
"""The generation that is granted whatever is in force, and resets it to 1."""
IF_FREE = -1
"""The generation of a claim that takes from nobody: it is granted only where there is no owner."""
GENERATION_MAX = 2**62
"""The largest generation that may be named; those that are counted on from there have room for ever."""


class Access(enum.IntFlag):
    """What the owner of a partition does with it, alone."""

    NONE = 0
    WRITE = 1
    READ = 2


class LossReason(enum.IntEnum):
    """How an ownership ended."""

    NONE = 0
    STOLEN = 1
    """Another claimed it, naming a generation that was high enough."""
    RESET = 2
    """Another claimed it with generation 0."""
    EVICTED = 3
    """A producer took it with ExclusiveWithFencing."""
    RELEASED = 4
    """Its owner let go of it."""
    DISCONNECTED = 5
    """Its owner's connection closed, and it did not come back in time."""
    SESSION_TIMED_OUT = 6
    """Nothing was heard from its owner for the session timeout."""
    FORCED = 7
    """An administrator released it."""
    DELETED = 8
    """The topic was deleted."""


@struct
class ResourceStanding:
    """How the asker stands with one resource, and what is in force there.

    `generation` is the one in force: the asker's own where `error_code` is 0. `incarnation` is that of the
    asker's grant (-1 without one): it is named in Renew, Resume and Release, and no other grant ever has it.
    Nobody before the asker can write at or after `fence_offset` (-1 for names, and without a grant), and
    everything before it is committed. `position` counts from 1 in the queue of those who wait; 0: not in it.

    `owner_id`, `owner_client_id`, `owner_host` and `owner_since_ms` (ms since the epoch) tell of the owner
    where that is another. `reason` (a `LossReason`) says how the asker's own ownership ended, with
    OWNERSHIP_FENCED. `is_contended`: others wait, or have just been refused.
    """

    name: str
    partition: Int32 = NO_PARTITION
    error_code: Int16
    error_message: str | None = None
    generation: Int64 = -1
    incarnation: Int64 = -1
    fence_offset: Int64 = -1
    leader_epoch: Int32 = -1
    position: Int32 = 0
    is_contended: bool = False
    reason: Int8 = LossReason.NONE
    owner_id: str | None = None
    owner_client_id: str | None = None
    owner_host: str | None = None
    owner_since_ms: Int64 = -1


@struct
class ResourceClaim:
    """A resource, and the generation that the claimant last saw: see docs/ownership.md for what follows."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64


@struct
class OwnResponse(Response):
    """The own API's own_response. With an `error_code` nothing was looked at, and `resources` is empty."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30020, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class OwnRequest(Request[OwnResponse]):
    """The own API's own_request: claims all the resources named, or none.

    `owner_id` names the owner: unique, and the same when it comes back on another connection. `access`
    (`Access`) says what the owner does with partitions. Nothing heard for `session_timeout_ms` ends the
    ownership. A claim of one resource with generation -1 stands in its queue for `wait_timeout_ms`.
    `timeout_ms` bounds how long the answer may take.

    Where `writer_client_id` or `writer_principal` are given, connections that have them may write as the
    owner does: for a client that cannot be changed.
    """

    group: str
    owner_id: str
    session_timeout_ms: Int32
    timeout_ms: Int32
    wait_timeout_ms: Int32 = 0
    access: Int8 = Access.WRITE
    resources: list[ResourceClaim]
    writer_client_id: str | None = wire(default=None, tag=0)
    writer_principal: str | None = wire(default=None, tag=1)


@struct
class HeldResource:
    """A resource, and the incarnation of the asker's grant; -1 where it still waits for one."""

    name: str
    partition: Int32 = NO_PARTITION
    incarnation: Int64


@struct
class ReleaseResponse(Response):
    """OWNERSHIP_FENCED for a resource that the asker does not own any more."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30021, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ReleaseRequest(Request[ReleaseResponse]):
    """Lets go of resources at once, or leaves their queues. The generation stays for the next claim."""

    group: str
    owner_id: str
    resources: list[HeldResource]


@struct
class RenewResponse(Response):
    """How the owner stands with each resource."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30022, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RenewRequest(Request[RenewResponse]):
    """Says that the owner lives, and asks what has become of its resources.

    The answer comes at once where something has changed since this owner was last told, else after
    `max_wait_ms` or when something does. Answers leave in the order of their requests: an owner that does
    other things on the same connection names 0.
    """

    group: str
    owner_id: str
    max_wait_ms: Int32
    resources: list[HeldResource]


@struct
class ResumedResource:
    """A resource and the grant to go on with."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64
    incarnation: Int64


@struct
class ResumeResponse(Response):
    """OWNERSHIP_FENCED for a resource that is not the asker's any more."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30023, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ResumeRequest(Request[ResumeResponse]):
    """Goes on with ownerships on this connection; the one that had them is closed.

    Each resource succeeds or fails by itself, and generations stay as they are.
    """

    group: str
    owner_id: str
    session_timeout_ms: Int32
    timeout_ms: Int32
    resources: list[ResumedResource]
