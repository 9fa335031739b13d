"""The two ways of asking for a resource: the own API, and producer access (PIP-68). Renewing and releasing
are the same in both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from clients.ownership.events import Resource, split
from protocol.api import Request, Response
from protocol.messages.ownership import (
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


@dataclass(frozen=True, slots=True)
class Writer:
    """A client that writes for the owner, by what it is known as; None: by anything.

    For a client that cannot be changed: the owner is a process beside it.
    """

    client_id: str | None = None
    principal: str | None = None


NO_WRITER = Writer()


class Way(Protocol):
    """How an owner asks. Times are in ms; a `wait_ms` of -1 is for as long as the connection lives."""

    @property
    def group(self) -> str: ...

    @property
    def owner_id(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...

    def claim(self, resource: Resource, generation: int, wait_ms: int, timeout_ms: int) -> Request[Any]:
        """Asks to be granted a resource."""

    def resume(self, resource: Resource, grant: ResourceStanding, timeout_ms: int) -> Request[Any]:
        """Asks to go on with a grant on another connection."""


@dataclass(frozen=True, slots=True)
class OwnWay:
    """By the own API, in a group."""

    group: str
    owner_id: str
    session_timeout_ms: int
    access: Access = Access.WRITE
    writer: Writer = NO_WRITER

    def claim(self, resource: Resource, generation: int, wait_ms: int, timeout_ms: int) -> Request[Any]:
        name, partition = split(resource)
        return OwnRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            wait_timeout_ms=wait_ms,
            access=self.access,
            resources=[ResourceClaim(name=name, partition=partition, generation=generation)],
            writer_client_id=self.writer.client_id,
            writer_principal=self.writer.principal,
        )

    def resume(self, resource: Resource, grant: ResourceStanding, timeout_ms: int) -> Request[Any]:
        name, partition = split(resource)
        return ResumeRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=timeout_ms,
            resources=[
                ResumedResource(
                    name=name,
                    partition=partition,
                    generation=grant.generation,
                    incarnation=grant.incarnation,
                )
            ],
        )


@dataclass(frozen=True, slots=True)
class AccessWay:
    """By producer access. A generation is a topic epoch here, and the mode says what is taken from whom."""

    owner_id: str
    session_timeout_ms: int
    mode: ProducerAccessMode
    writer: Writer = NO_WRITER
    group: str = field(default=PRODUCERS_GROUP, init=False)

    def claim(self, resource: Resource, generation: int, wait_ms: int, timeout_ms: int) -> Request[Any]:
        return self._request(resource, -1, wait_ms, timeout_ms)

    def resume(self, resource: Resource, grant: ResourceStanding, timeout_ms: int) -> Request[Any]:
        return self._request(resource, grant.generation, 0, timeout_ms)

    def _request(self, resource: Resource, epoch: int, wait_ms: int, timeout_ms: int) -> Request[Any]:
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
            writer_client_id=self.writer.client_id,
            writer_principal=self.writer.principal,
        )


def renewal(way: Way, resource: Resource, incarnation: int, max_wait_ms: int) -> Request[Any]:
    """Says that the owner lives, and asks how it stands."""
    return RenewRequest(
        group=way.group,
        owner_id=way.owner_id,
        max_wait_ms=max_wait_ms,
        resources=[_held(resource, incarnation)],
    )


def release(way: Way, resource: Resource, incarnation: int) -> Request[Any]:
    """Lets go of a resource, or leaves its queue."""
    return ReleaseRequest(group=way.group, owner_id=way.owner_id, resources=[_held(resource, incarnation)])


def _held(resource: Resource, incarnation: int) -> HeldResource:
    name, partition = split(resource)
    return HeldResource(name=name, partition=partition, incarnation=incarnation)


def standing_in(response: Response, resource: Resource) -> ResourceStanding:
    """How the asker stands with the one resource that it has asked about."""
    name, partition = split(resource)
    if isinstance(response, ProducerAccessResponse):
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
        )
    whole: Any = response
    if whole.error_code:
        return ResourceStanding(
            name=name, partition=partition, error_code=whole.error_code, error_message=whole.error_message
        )
    (standing,) = whole.resources
    assert isinstance(standing, ResourceStanding)
    return standing
