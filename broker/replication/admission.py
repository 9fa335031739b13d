"""Interfaces that decide which clients may append and read.

Ownership and conditional appends (own API, KIP-27, PIP-68) are checked in the turn of the reactor's thread
that appends, not when the request arrives: the state may change while the request waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred

NO_CONNECTION = -1
"""Connection id of requests that the broker sends to itself."""
NO_TOKEN = -1
"""The token in a request without a fence."""


MakeWay: TypeAlias = "Callable[[int], Deferred[None]]"
"""Does what has to be durable before an append may land, in at most so many ms. Fires when that is done or
has failed; the append is judged again then."""


@dataclass(frozen=True, slots=True)
class RequestFence:
    """Proves that a request is made for an owner, whichever connection it uses: the incarnation of the grant,
    and the secret of the claim."""

    incarnation: int
    secret: bytes = field(repr=False)


class Origin(Protocol):
    """Source of the batches: the part of the client's connection that admission needs."""

    client_id: str
    principal: str
    requests: int
    """Number of requests given to their handlers."""

    @property
    def id(self) -> int:
        """Number of the connection, unique in this broker process."""
        ...

    @property
    def received_requests(self) -> int:
        """Number of requests received, including those not yet given to their handlers."""
        ...

    @property
    def source(self) -> str:
        """Who the client is, for limits that each client has for itself."""
        ...


class Admission(Protocol):
    """Judges an append before any part of its request is appended."""

    def admit(self, origin: Origin | None, acks: int) -> MakeWay | None:
        """Return None if `origin` may append now, or what has to be done before; raise BrokerError with the
        reason if it may not.

        Not called for duplicates: a retry of an append that succeeded is never refused.
        """
        ...

    def admits(self, origin: Origin, acks: int) -> bool:
        """Whether `origin` is or writes for the owner, and may append: `admit` would return None. Otherwise
        `admit` decides."""
        ...


class ReadAdmission(Protocol):
    """Judges a consumer's read of a partition, at its arrival and at each retry while it waits."""

    def admit(self, connection: int) -> None:
        """Return if the connection may read; raise BrokerError with the reason if not."""
        ...


class FenceAdmission(Protocol):
    """Judges the requests for one partition that carry a fence, when an append gets its offset and when a
    fetch reads the log."""

    def admit_append(self, fence: RequestFence, acks: int) -> None:
        """Return if the fence allows an append; raise BrokerError with the reason if not."""
        ...

    def admit_read(self, fence: RequestFence) -> None:
        """Return if the fence allows a read; raise BrokerError with the reason if not."""
        ...
