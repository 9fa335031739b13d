"""One writer, one reader: claiming resources, keeping them, releasing them (own API).

The APIs are announced as the feature `holdfast.own`, never among the API keys. docs/ownership.md and
docs/ownership-protocol.md have their rules.

A resource is a partition of a topic, about which the partition's leader decides, or a name chosen by the
application, about which the coordinator of its group decides.
"""

from __future__ import annotations

import enum

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire

FEATURE = "holdfast.own"
NOT_ADVERTISED = "none"

NO_PARTITION = -1
"""The `partition` of a resource that is a name chosen by the application."""
PRODUCERS_GROUP = ""
"""The group of exclusive and shared producers (PIP-68). Every other group has a name."""
RESET_GENERATION = 0
"""A claim of this generation is always granted, and resets the generation in force to 1."""
IF_FREE = -1
"""A claim of this generation is granted only if the resource has no owner."""
GENERATION_RAISE_MAX = 2**20
"""How far above the generation in force a claim may name one. Nobody has seen a higher generation unless it
was reset since, so a million grants are ample; and one that is raised so far at a time does not reach the end
of 64 bits, where it could be raised no more, in 2^42 claims."""


class Access(enum.IntFlag):
    """What the owner of a partition may do with it exclusively."""

    NONE = 0
    WRITE = 1
    READ = 2


class LossReason(enum.IntEnum):
    """How an ownership ended."""

    NONE = 0
    STOLEN = 1
    """Another owner claimed it, with a generation at least as high as the one in force."""
    RESET = 2
    """Another owner claimed it with generation 0."""
    EVICTED = 3
    """A producer took it in the mode ExclusiveWithFencing."""
    RELEASED = 4
    """Its owner released it."""
    DISCONNECTED = 5
    """Its owner's connection closed, and the owner did not resume it in time."""
    SESSION_TIMED_OUT = 6
    """Its owner sent nothing for the session timeout."""
    FORCED = 7
    """An administrator released it."""
    DELETED = 8
    """The topic was deleted."""
    FOREIGN_APPEND = 9
    """Its owner was gone, and a client that does not own it has written to the partition since."""
    FOREIGN_FETCH = 10
    """Its owner was gone, and another connection of the owner's group has read the partition since."""

    @classmethod
    def told(cls, value: int) -> LossReason:
        """The reason in a broker's answer; NONE for one that only later versions know."""
        return cls(value) if value in cls._value2member_map_ else cls.NONE


@struct
class ResourceStanding:
    """The standing of the requester with one resource.

    `generation` is the one in force: the requester's own if `error_code` is 0. `incarnation` is that of the
    requester's grant (-1 without one); Renew, Resume and Release name it, and no other grant ever has it. No
    earlier owner can write at or after `fence_offset` (-1 for names, and without a grant), and everything
    before it is committed. With OWNERSHIP_FENCED and PRODUCER_FENCED it is where what followed the
    requester's grant begins: no record of the requester is at or after it (-1: not known). `position` is the
    place in the queue, from 1; 0: not in the queue.

    `owner_id`, `owner_client_id`, `owner_host` and `owner_since_ms` (ms since the epoch) describe another
    owner. `reason` (a `LossReason`) is how the requester's ownership ended, with OWNERSHIP_FENCED and
    PRODUCER_FENCED. `is_contended`: other clients wait for the resource, or were refused it since the owner's
    last Renew. `session_bound_ms` is how long an owner's session lasts at least after a request of it, if the
    broker may hold back the answer to a Renew: the session timeout, or `own.ping.timeout.ms` if that is
    shorter. -1: not said. `partition_count` is that of `ProducerAccessResponse`.
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
    session_bound_ms: Int32 = wire(default=-1, tag=0, ignorable=True)
    partition_count: Int32 = wire(default=-1, tag=1, ignorable=True)


@struct
class ResourceClaim:
    """A resource, and the generation that the claimant has seen last. docs/ownership.md has the rules."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64


@struct
class OwnResponse(Response):
    """The own API's own_response. With an `error_code` no resource was judged, and `resources` is empty."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30020, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class OwnRequest(Request[OwnResponse]):
    """The own API's own_request: claims all the resources named, or none.

    `owner_id` names the owner to people. `secret` proves that a request comes from the owner: 16 to 64 random
    bytes that the claimant draws once and sends with all its requests. No response contains it. Without a
    secret only the connection of the claim can renew, repeat and release the grant, and no other can resume
    it.

    `access` (`Access`) is what the owner does with partitions. The ownership ends when the owner has sent
    nothing for `session_timeout_ms`. A claim of one resource with generation -1 waits in its queue for
    `wait_timeout_ms`. The answer comes within `timeout_ms`. `waited_ms` is how long the claim has waited at a
    broker that another has replaced: it goes before claims that have waited less.

    If `writer_client_id` or `writer_principal` is given, connections that match may write as the owner does.
    This is for clients that cannot be changed.
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
    secret: bytes = wire(tag=2)
    waited_ms: Int32 = wire(default=0, tag=3, ignorable=True)


@struct
class HeldResource:
    """A resource, and the incarnation of the requester's grant; -1 if it waits for one, or shares."""

    name: str
    partition: Int32 = NO_PARTITION
    incarnation: Int64


@struct
class ReleaseResponse(Response):
    """The standing after the release of each resource; OWNERSHIP_FENCED if the requester no longer owned
    it."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30021, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ReleaseRequest(Request[ReleaseResponse]):
    """Releases resources at once, or leaves their queues. The generation stays for the next claim."""

    group: str
    owner_id: str
    resources: list[HeldResource]
    secret: bytes = wire(tag=0)
    """As in OwnRequest."""


@struct
class RenewResponse(Response):
    """The owner's standing with each resource."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30022, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RenewRequest(Request[RenewResponse]):
    """Shows that the owner lives, and asks for its standings.

    The answer comes at once if they have changed since the owner's last Renew; otherwise when they change, or
    after `max_wait_ms`. Answers leave in the order of their requests: an owner that sends other requests on
    the same connection sets `max_wait_ms` to 0.
    """

    group: str
    owner_id: str
    max_wait_ms: Int32
    resources: list[HeldResource]
    secret: bytes = wire(tag=0)
    """As in OwnRequest."""


@struct
class ResumedResource:
    """A resource, and the grant to resume."""

    name: str
    partition: Int32 = NO_PARTITION
    generation: Int64
    incarnation: Int64


@struct
class ResumeResponse(Response):
    """The owner's standing with each resource; OWNERSHIP_FENCED if it has lost the resource for good."""

    group: str
    error_code: Int16
    error_message: str | None = None
    resources: list[ResourceStanding]


@request(key=30023, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ResumeRequest(Request[ResumeResponse]):
    """Resumes ownerships on this connection. The connection that had them is closed.

    Each resource succeeds or fails separately. Generations do not change.
    """

    group: str
    owner_id: str
    session_timeout_ms: Int32
    timeout_ms: Int32
    resources: list[ResumedResource]
    secret: bytes = wire(tag=0)
    """As in OwnRequest."""
