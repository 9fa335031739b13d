"""Bugs of followers, and of the positions that a leader assumes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log import truncation
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication import fetcher, following
from holdfast_log.broker.replication.fetch_sessions import FIRST_EPOCH
from holdfast_log.broker.replication.fetcher_session import FetcherSession
from holdfast_log.broker.replication.following import FetchOutcome
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.broker.replication.session_fetch import SessionFetch
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.fetch import FetchPartition, PartitionData
from tests.sim.mutation import Mutation, Patch

# Divergence of logs


def _count_diverging_positions() -> Sequence[Patch]:
    record = Partition.record_fetch

    def mutant(self: Partition, replica_id: int, wanted: FetchPartition, *more: Any) -> bool:
        diverges = self._divergence
        self._divergence = lambda offset, last_fetched_epoch: None  # type: ignore[method-assign]
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


def _overlook_the_own_epoch() -> Sequence[Patch]:
    def mutant(log: Log, epoch: int, end_offset: int) -> int:
        return min(log.log_end_offset, end_offset)

    return [(following, "truncation_offset", mutant)]


def _keep_epochs_at_truncation() -> Sequence[Patch]:
    return [(truncation, "_truncate_epochs", lambda log, end_offset: None)]


def _overlook_unknown_epochs() -> Sequence[Patch]:
    divergence = Partition._divergence

    def mutant(self: Partition, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        found = divergence(self, offset, last_fetched_epoch)
        return found if found is not None and found[1] < offset else None

    return [(Partition, "_divergence", mutant)]


def _begin_no_epoch() -> Sequence[Patch]:
    lead = Partition.lead

    def mutant(self: Partition, assignment: LeaderAndIsr, now_ms: int) -> bool:
        epochs, self.log.epochs = self.log.epochs, LeaderEpochs()
        try:
            return lead(self, assignment, now_ms)
        finally:
            self.log.epochs = epochs

    return [(Partition, "lead", mutant)]


def _start_at_the_high_watermark() -> Sequence[Patch]:
    create = Roles._create

    def mutant(self: Roles, *arguments: Any) -> Partition:
        partition = create(self, *arguments)
        partition.truncate_to(partition.high_watermark, 0)
        return partition

    return [(Roles, "_create", mutant)]


# Copying that stops


def _give_up_after_one_error() -> Sequence[Patch]:
    take = following.take

    def mutant(partition: Partition, data: PartitionData, now_ms: int) -> FetchOutcome:
        outcome = take(partition, data, now_ms)
        return FetchOutcome.WAIT if outcome is FetchOutcome.BACK_OFF else outcome

    return [(fetcher, "take", mutant)]


def _stay_before_the_log_start() -> Sequence[Patch]:
    def mutant(partition: Partition, offset: int, date_ms: int) -> None:
        raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader's log starts later")

    return [(following, "_start_at", mutant)]


def _keep_the_positions_of_a_session() -> Sequence[Patch]:
    def mutant(self: FetcherSession[Any]) -> None:
        self._epoch = FIRST_EPOCH
        self._left.clear()

    return [(FetcherSession, "end", mutant)]


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
    Mutation(
        "unknown-epoch-overlooked",
        "a leader compares the end offsets of epochs only, and overlooks an epoch that it lacks (KIP-279)",
        _overlook_unknown_epochs,
    ),
    Mutation(
        "epoch-begun-with-first-record",
        "a new leader records its epoch with its first record, not when it begins to lead (KIP-101)",
        _begin_no_epoch,
    ),
    Mutation(
        "start-at-high-watermark",
        "a broker that starts cuts its logs at the high watermarks of its checkpoint (before KIP-101)",
        _start_at_the_high_watermark,
    ),
    Mutation(
        "copying-ended-by-error",
        "a follower stops copying a partition for ever after one error of its leader",
        _give_up_after_one_error,
    ),
    Mutation(
        "stays-before-log-start",
        "a follower whose log ends before its leader's log start copies nothing",
        _stay_before_the_log_start,
    ),
    Mutation(
        "session-positions-kept",
        "a follower that opens a new fetch session does not name unchanged partitions (KIP-227)",
        _keep_the_positions_of_a_session,
    ),
)


# The first has consequences only if a leader's retention empties its log just before a follower with other
# records returns; the second only after several elections in a row whose leaders each have records that the
# others lack.
def _record_only_what_is_named() -> Sequence[Patch]:
    def mutant(self: SessionFetch) -> None:
        for read in self._reads:
            self._record(read)

    return [(SessionFetch, "_record_all", mutant)]


RARE = (
    Mutation(
        "fetch-waits-beside-news",
        "a follower's fetch waits, though its position had the leader write to other partitions",
        _record_only_what_is_named,
    ),
    Mutation(
        "deleted-record-counted",
        "a follower joins the in-sync set with another record in place of one that its leader has deleted",
        lambda: [(Partition, "_is_unlike_a_deleted_record", lambda self, wanted: False)],
    ),
    Mutation(
        "own-epoch-end-overlooked",
        "a follower truncates to where an epoch ends in its leader's log, though it ends earlier in its own",
        _overlook_the_own_epoch,
    ),
)
