"""What the coordinator of groups needs of whoever has its claims made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from coordinator.groups.effects import Decision, ReaderClaim


class ReaderClaimer(Protocol):
    """Has the claims of one shard made at the leaders of partitions."""

    def claim(self, claims: Sequence[ReaderClaim], decision: Decision) -> Deferred[None]:
        """Fires when the claims hold, or have been waited for long enough. Never fails.

        Those that do not hold by then are made as soon as they can be: until then the members concerned
        read nothing, for the leader does not know them. Later claims take the place of earlier ones about
        the same partition.
        """
        ...

    def close(self) -> None:
        """Make no claims any more: the next coordinator makes its own."""
        ...
