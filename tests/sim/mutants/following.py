"""Bugs of followers, and of the positions that a leader assumes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.log.log import Log
from broker.replication import following
from broker.replication.partition import Partition
from protocol.messages.fetch import FetchPartition
from tests.sim.mutation import Mutation, Patch

# Divergence of logs


def _count_diverging_positions() -> Sequence[Patch]:
    record = Partition.record_fetch

    def mutant(self: Partition, replica_id: int, wanted: FetchPartition, *more: Any) -> bool:
        diverges = self._divergence
        self._divergence = lambda offset, epoch: None  # type: ignore[method-assign]
        try:
            return record(self, replica_id, wanted, *more)
        finally:
            self._divergence = diverges  # type: ignore[method-assign]

    return [(Partition, "record_fetch", mutant)]


def _truncate_too_much() -> Sequence[Patch]:
    offset_of = following.truncation_offset

    def mutant(log: Log, epoch: int, end_offset: int) -> int:
        latest = log.epochs.latest
        began = next((offset for known, offset in log.epochs.entries if known == latest), 0)
        return min(began, offset_of(log, epoch, end_offset))

    return [(following, "truncation_offset", mutant)]


def _keep_epochs_at_truncation() -> Sequence[Patch]:
    return [(Log, "_truncate_epochs", lambda self, end_offset: None)]


# Answers and positions


MUTATIONS = (
    Mutation(
        "diverging-position-counted",
        "a leader counts the position of a follower whose log diverges before it",
        _count_diverging_positions,
    ),
    Mutation(
        "truncate-too-much",
        "a follower cuts the whole of its last epoch, of which the leader may have a part",
        _truncate_too_much,
    ),
    Mutation(
        "epochs-kept-at-truncation",
        "truncation leaves the cache of leader epochs as it is",
        _keep_epochs_at_truncation,
    ),
)
