"""The requests about owned resources, in two dialects: the own API, and producer access (PIP-68).

The dialects differ in how a claim and its resumption are sent; renewals and releases are the same in both.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast_log.clients.ownership.events import OwnedResource, split
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    PRODUCERS_GROUP,
    Access,
    HeldResource,
    OwnRequest,
    ReleaseRequest,
    RenewRequest,
    ResourceClaim,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
)
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)

NO_GRANT = -1
"""The incarnation that a request names without a grant."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Writer:
    """The client that may write for the owner, by its client id and principal; None matches any.

    For an application that cannot be changed: a process beside it owns the partition on its behalf.
    """

    client_id: str | None = None
    principal: str | None = None


NO_WRITER = Writer()


class RequestKind(enum.Enum):
    """What a request wants of a resource."""

    CLAIM = "claim"
    RESUME = "resume"
    RENEW = "renew"
    PROBE = "probe"
    """As RENEW, but the broker must answer at once."""
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """The part of a request about one resource.

    `generation` is the one that a claim names, or that of the grant to resume; `incarnation` is that of the
    grant, NO_GRANT without one. `wait_ms` is how long a claim may stay in the broker's queue, -1 for as long
    as its connection lives; in a renewal, how long the broker may hold back the answer. `waited_ms` is how
    long a claim has waited in the queue of a broker that another has replaced.
    """

    kind: RequestKind
    resource: OwnedResource
    generation: int = IF_FREE
    incarnation: int = NO_GRANT
    wait_ms: int = 0
    waited_ms: int = 0


class ClaimDialect(Protocol):
    """How an owner sends its claims. Times are in ms."""

    @property
    def group(self) -> str: ...

    @property
    def owner_id(self) -> str: ...

    @property
    def secret(self) -> bytes:
        """Proves that a request is this owner's; sent with all of them, and never shown."""

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def resources_max(self) -> int:
        """Maximum number of resources in one claim or resumption."""

    def claim(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        """The request to be granted resources, all or none."""

    def resume(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        """The request to continue grants on another connection."""


def draw_secret() -> bytes:
    """The secret of one claimant, in 16 random bytes. Two processes configured with the same owner id draw
    different ones, so they exclude each other."""
    return secrets.token_bytes(16)


@dataclass(frozen=True, slots=True)
class OwnDialect:
    """The own API: claims in a group, of several resources each."""

    group: str
    owner_id: str
    session_timeout_ms: int
    access: Access = Access.WRITE
    writer: Writer = NO_WRITER
    secret: bytes = field(default_factory=draw_secret, repr=False)
    resources_max: int = field(default=100, init=False)

    def claim(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        claims = []
        for wanted in resources:
            name, partition = split(wanted.resource)
            claims.append(ResourceClaim(name=name, partition=partition, generation=wanted.generation))
        return OwnRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            wait_timeout_ms=resources[0].wait_ms,
            waited_ms=resources[0].waited_ms,
            access=self.access,
            resources=claims,
            writer_client_id=self.writer.client_id,
            writer_principal=self.writer.principal,
            secret=self.secret,
        )

    def resume(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        resumed = []
        for wanted in resources:
            name, partition = split(wanted.resource)
            resumed.append(
                ResumedResource(
                    name=name,
                    partition=partition,
                    generation=wanted.generation,
                    incarnation=wanted.incarnation,
                )
            )
        return ResumeRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            resources=resumed,
            secret=self.secret,
        )


@dataclass(frozen=True, slots=True)
class ProducerAccessDialect:
    """Producer access (PIP-68): claims of one partition each.

    A generation is a topic epoch here. The mode says whether the claim waits for other producers or takes the
    partition from them.
    """

    owner_id: str
    session_timeout_ms: int
    mode: ProducerAccessMode
    covers_topic: bool = False
    """Whether the producer wants the whole topic, with partitions that will be added."""
    secret: bytes = field(default_factory=draw_secret, repr=False)
    group: str = field(default=PRODUCERS_GROUP, init=False)
    resources_max: int = field(default=1, init=False)

    def claim(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        (wanted,) = resources
        return self._request(wanted.resource, _NO_EPOCH, wanted.wait_ms, timeout_ms, wanted.waited_ms)

    def resume(self, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        (wanted,) = resources
        return self._request(wanted.resource, wanted.generation, 0, timeout_ms)

    def _request(
        self, resource: OwnedResource, epoch: int, wait_ms: int, timeout_ms: int, waited_ms: int = 0
    ) -> Request[Any]:
        name, partition = split(resource)
        return ProducerAccessRequest(
            topic=name,
            partition=partition,
            producer_id=self.owner_id,
            mode=self.mode,
            epoch=epoch,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            wait_timeout_ms=wait_ms,
            waited_ms=waited_ms,
            secret=self.secret,
            covers_topic=self.covers_topic,
        )


def request_for(dialect: ClaimDialect, resources: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
    """The request about several resources, all of one kind. The broker answers a claim or a resumption within
    `timeout_ms`."""
    kind = resources[0].kind
    if kind is RequestKind.CLAIM:
        return dialect.claim(resources, timeout_ms)
    if kind is RequestKind.RESUME:
        return dialect.resume(resources, timeout_ms)
    held = []
    for wanted in resources:
        name, partition = split(wanted.resource)
        held.append(HeldResource(name=name, partition=partition, incarnation=wanted.incarnation))
    if kind is RequestKind.RELEASE:
        return ReleaseRequest(
            group=dialect.group, owner_id=dialect.owner_id, resources=held, secret=dialect.secret
        )
    return RenewRequest(
        group=dialect.group,
        owner_id=dialect.owner_id,
        max_wait_ms=max(wanted.wait_ms for wanted in resources),
        resources=held,
        secret=dialect.secret,
    )


def standings_in(response: Response, resources: Sequence[OwnedResource]) -> list[ResourceStanding]:
    """The standing of each requested resource in a response, in the order of the request."""
    if isinstance(response, ProducerAccessResponse):
        return [_standing_of(response, resource) for resource in resources]
    whole: Any = response
    rows = {(row.name, row.partition): row for row in whole.resources}
    return [rows.get(split(resource)) or _standing_left_out(resource, whole) for resource in resources]


def _standing_left_out(resource: OwnedResource, whole: Any) -> ResourceStanding:
    """The standing of a resource that a response leaves out: the error of the whole response."""
    name, partition = split(resource)
    return ResourceStanding(
        name=name,
        partition=partition,
        error_code=whole.error_code or ErrorCode.UNKNOWN_SERVER_ERROR,
        error_message=whole.error_message if whole.error_code else f"the response leaves {resource} out",
    )


def _standing_of(response: ProducerAccessResponse, resource: OwnedResource) -> ResourceStanding:
    name, partition = split(resource)
    return ResourceStanding(
        name=name,
        partition=partition,
        error_code=response.error_code,
        error_message=response.error_message,
        generation=response.epoch,
        incarnation=response.incarnation,
        fence_offset=response.fence_offset,
        leader_epoch=response.leader_epoch,
        position=response.position,
        owner_id=response.owner_id,
        owner_client_id=response.owner_client_id,
        owner_host=response.owner_host,
        owner_since_ms=response.owner_since_ms,
        reason=response.reason,
        partition_count=response.partition_count,
    )
