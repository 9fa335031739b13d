"""Who may append, and under which condition: asked where the offset is assigned.

Ownership of a partition and conditional appends (own API, KIP-27, PIP-68) are
decided here and not at the socket: whatever queued on its way is judged by the state at the moment of the
append, on the one thread that also does it.
"""

from __future__ import annotations

from typing import Protocol

NO_CONNECTION = -1
"""Connection id of requests that the broker sends to itself."""


class Origin(Protocol):
    """Who sends the batches: the part of the client's connection that admission needs."""

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


class Admission(Protocol):
    """Judges an append before any part of its request is appended."""

    def admit(self, origin: Origin | None, acks: int) -> None:
        """Return if `origin` may append; raise BrokerError with the reason if not.

        Called for batches that are no duplicates: a retry of an append that succeeded is never refused.
        """
        ...


class ReadAdmission(Protocol):
    """Judges a consumer's read of a partition, at its arrival and at each retry while it waits."""

    def admit(self, connection: int) -> None:
        """Return if the connection may read; raise BrokerError with the reason if not."""
        ...
