"""The interface through which a shard claims partitions for readers at the partition leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.groups.effects import ReaderClaim
from holdfast_log.coordinator.shards.effects import Decision


class ReaderClaimer(Protocol):
    """Makes the claims of one shard at the leaders of partitions."""

    def claim(self, claims: Sequence[ReaderClaim], decision: Decision) -> Deferred[None]:
        """Make claims. Fires when all are in force, or after a timeout. Never fails.

        Claims that are not in force by then are retried; until they succeed, leaders refuse fetches of the
        members concerned. A later claim replaces an earlier one for the same partition.
        """
        ...

    def close(self) -> None:
        """Stop making claims: the next coordinator makes its own."""
        ...
