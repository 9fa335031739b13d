"""Who may append, and under which condition: asked where the offset is assigned.

Ownership of a partition and conditional appends (seeds own-api, kip-27-conditional-publish, PIP-68) are
decided here and not at the socket: whatever queued on its way is judged by the state at the moment of the
append, on the one thread that also does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol.batches import BatchHeader


class Origin(Protocol):
    """Who sends the batches: the client's connection, as far as an admission may ask."""

    @property
    def id(self) -> int:
        """A number that no other connection of this broker's life has."""
        ...


class Admission(Protocol):
    """Judges an append before anything of its request is appended."""

    def admit(
        self, end_offset: int, leader_epoch: int, headers: Sequence[BatchHeader], origin: Origin | None
    ) -> None:
        """Return if `headers` may be appended at `end_offset`; raise BrokerError with the reason if not.

        Called for batches that are no duplicates: a retry of an append that succeeded is never refused.
        """
        ...
