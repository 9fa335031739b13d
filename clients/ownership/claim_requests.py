"""The two ways of asking for a resource: the own API, and producer access (PIP-68). Renewing and releasing
are the same in both."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clients.ownership.events import OwnedResource, split
from protocol.api import Request, Response
from protocol.errors import ErrorCode
from protocol.messages.ownership import (
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
from protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)

NO_GRANT = -1
"""The incarnation that one names who has no grant."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Writer:
    """A client that writes for the owner, by what it is known as; None: by anything.

    For a client that cannot be changed: the owner is a process beside it.
    """

    client_id: str | None = None
    principal: str | None = None


NO_WRITER = Writer()


class RequestKind(enum.Enum):
    """What is asked about a resource."""

    CLAIM = "claim"
    RESUME = "resume"
    RENEW = "renew"
    LOOK = "look"
    """As RENEW, but the answer must not wait."""
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A question about one resource.

    `generation` is what a claim names, or that of the grant that is resumed; `incarnation` that of the grant,
    NO_GRANT without one. `wait_ms` is how long a claim may stand in the queue, -1 as long as its connection
    lives; or how long the answer to a renewal may wait for something to happen.
    """

    question: RequestKind
    resource: OwnedResource
    generation: int = IF_FREE
    incarnation: int = NO_GRANT
    wait_ms: int = 0


class ClaimDialect(Protocol):
    """How an owner asks. Times are in ms."""

    @property
    def group(self) -> str: ...

    @property
    def owner_id(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def together_max(self) -> int:
        """How many resources a claim, or a resumption, may name."""

    def claim(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        """Asks to be granted resources, all or none."""

    def resume(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        """Asks to go on with grants on another connection."""


@dataclass(frozen=True, slots=True)
class OwnDialect:
    """By the own API, in a group."""

    group: str
    owner_id: str
    session_timeout_ms: int
    access: Access = Access.WRITE
    writer: Writer = NO_WRITER
    together_max: int = field(default=100, init=False)

    def claim(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        claims = []
        for ask in asks:
            name, partition = split(ask.resource)
            claims.append(ResourceClaim(name=name, partition=partition, generation=ask.generation))
        return OwnRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            wait_timeout_ms=asks[0].wait_ms,
            access=self.access,
            resources=claims,
            writer_client_id=self.writer.client_id,
            writer_principal=self.writer.principal,
        )

    def resume(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        resumed = []
        for ask in asks:
            name, partition = split(ask.resource)
            resumed.append(
                ResumedResource(
                    name=name,
                    partition=partition,
                    generation=ask.generation,
                    incarnation=ask.incarnation,
                )
            )
        return ResumeRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            resources=resumed,
        )


@dataclass(frozen=True, slots=True)
class ProducerAccessDialect:
    """By producer access, partition by partition. A generation is a topic epoch here, and the mode says what
    is taken from whom."""

    owner_id: str
    session_timeout_ms: int
    mode: ProducerAccessMode
    group: str = field(default=PRODUCERS_GROUP, init=False)
    together_max: int = field(default=1, init=False)

    def claim(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        (ask,) = asks
        return self._request(ask.resource, _NO_EPOCH, ask.wait_ms, timeout_ms)

    def resume(self, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
        (ask,) = asks
        return self._request(ask.resource, ask.generation, 0, timeout_ms)

    def _request(self, resource: OwnedResource, epoch: int, wait_ms: int, timeout_ms: int) -> Request[Any]:
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
        )


def request_for(way: ClaimDialect, asks: Sequence[ResourceRequest], timeout_ms: int) -> Request[Any]:
    """The request that asks one question about several resources. A claim or a resumption may take
    `timeout_ms` to be answered."""
    question = asks[0].question
    if question is RequestKind.CLAIM:
        return way.claim(asks, timeout_ms)
    if question is RequestKind.RESUME:
        return way.resume(asks, timeout_ms)
    held = []
    for ask in asks:
        name, partition = split(ask.resource)
        held.append(HeldResource(name=name, partition=partition, incarnation=ask.incarnation))
    if question is RequestKind.RELEASE:
        return ReleaseRequest(group=way.group, owner_id=way.owner_id, resources=held)
    return RenewRequest(
        group=way.group,
        owner_id=way.owner_id,
        max_wait_ms=max(ask.wait_ms for ask in asks),
        resources=held,
    )


def standings_in(response: Response, resources: Sequence[OwnedResource]) -> list[ResourceStanding]:
    """How the asker stands with the resources that it has asked about, in their order."""
    if isinstance(response, ProducerAccessResponse):
        return [_standing_of(response, resource) for resource in resources]
    whole: Any = response
    rows = {(row.name, row.partition): row for row in whole.resources}
    return [rows.get(split(resource)) or _left_out(resource, whole) for resource in resources]


def _left_out(resource: OwnedResource, whole: Any) -> ResourceStanding:
    """What a response that says nothing of a resource says: the error of all."""
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
    )
