"""Bugs of transactions in the partitions that they write to, in what readers are told, and in offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.log import producer_state, recovery
from holdfast_log.broker.log.aborted_index import AbortedIndex
from holdfast_log.broker.log.producer_entry import NO_MARKER
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.transactions import NO_TRANSACTION, Transactions
from holdfast_log.broker.replication import partition
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.shards.replay import LatestRecords
from holdfast_log.broker.transactions.group_guards import GroupGuards
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.pending_offsets import PendingOffsets
from holdfast_log.coordinator.groups.shard import GroupShard
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _settle_at_the_marker() -> Sequence[Patch]:
    end = Transactions.end

    def mutant(self: Transactions, first_offset: int, marker_offset: int) -> int:
        stable = end(self, first_offset, marker_offset)
        del self.unstable[first_offset]
        return stable

    return [(Transactions, "end", mutant)]


def _settle_at_the_high_watermark() -> Sequence[Patch]:
    first_unstable = Transactions.first_unstable
    return [
        (
            Transactions,
            "first_unstable",
            lambda self, high_watermark: first_unstable(self, high_watermark + 1),
        )
    ]


def _read_up_to_the_high_watermark() -> Sequence[Patch]:
    return [(Partition, "last_stable_offset", property(lambda self: self.high_watermark))]


def _tell_of_none_aborted() -> Sequence[Patch]:
    return [(partition, "with_aborted", lambda log, offset, max_bytes, read: (read, []))]


def _tell_of_those_ended_in_the_range() -> Sequence[Patch]:
    with_aborted = partition.with_aborted

    def mutant(log: Any, offset: int, max_bytes: int, read: Any) -> Any:
        read, found = with_aborted(log, offset, max_bytes, read)
        return read, [each for each in found if each.last_offset < read.next_offset]

    return [(partition, "with_aborted", mutant)]


def _leave_the_index() -> Sequence[Patch]:
    return [(AbortedIndex, "truncate_to", lambda self, offset: None)]


def _forget_what_is_unsettled() -> Sequence[Patch]:
    return [(Transactions, "encode", lambda self: b"")]


def _trust_the_index() -> Sequence[Patch]:
    return [(recovery, "rebuild_aborted_indexes", lambda *arguments: None)]


def _forget_open_transactions() -> Sequence[Patch]:
    restore = Transactions.restore
    return [(Transactions, "restore", lambda self, open_firsts, rows: restore(self, (), rows))]


def _fence_no_marker() -> Sequence[Patch]:
    return [(ProducerStates, "check_marker", lambda self, header, marker: None)]


def _write_outside() -> Sequence[Patch]:
    return [(producer_state, "check_inside", lambda header, transaction_offset: None)]


def _remember_the_answer() -> Sequence[Patch]:
    return [(ProducerStates, "last_marker_of", lambda self, producer_id: NO_MARKER)]


def _begin_anew_with_each_batch() -> Sequence[Patch]:
    update = ProducerStates.update

    def mutant(self: ProducerStates, header: Any, base_offset: int, *more: Any) -> Any:
        entry = self._entries.get(header.producer_id)
        if header.is_transactional and not header.is_control and entry is not None:
            entry.transaction_offset = NO_TRANSACTION
        return update(self, header, base_offset, *more)

    return [(ProducerStates, "update", mutant)]


# Offsets


def _show_pending_offsets() -> Sequence[Patch]:
    def mutant(self: GroupOffsets, result: Any, producer_id: int, *offset: Any) -> None:
        self.commit(result, *offset)

    return [(GroupOffsets, "commit_pending", mutant)]


def _commit_aborted_offsets() -> Sequence[Patch]:
    end_transaction = GroupOffsets.end_transaction

    def mutant(self: GroupOffsets, producer_id: int, *, is_commit: bool) -> list[str]:
        return end_transaction(self, producer_id, is_commit=True)

    return [(GroupOffsets, "end_transaction", mutant)]


def _drop_committed_offsets() -> Sequence[Patch]:
    end_transaction = GroupOffsets.end_transaction

    def mutant(self: GroupOffsets, producer_id: int, *, is_commit: bool) -> list[str]:
        return end_transaction(self, producer_id, is_commit=False)

    return [(GroupOffsets, "end_transaction", mutant)]


def _load_aborted_offsets() -> Sequence[Patch]:
    end = LatestRecords._end

    def mutant(self: LatestRecords, producer_id: int, *, is_commit: bool) -> None:
        end(self, producer_id, is_commit=True)

    return [(LatestRecords, "_end", mutant)]


def _load_no_open_offsets() -> Sequence[Patch]:
    return [(GroupShard, "replay_open", lambda self, stamp, key, value: None)]


def _answer_unstable_offsets() -> Sequence[Patch]:
    return [(PendingOffsets, "has", lambda self, group_id, partition: False)]


def _leave_questions_under_way() -> Sequence[Patch]:
    markers_applied = GroupGuards.markers_applied

    def mutant(self: GroupGuards, *marker: Any) -> None:
        under_way, self._open = self._open, {}
        markers_applied(self, *marker)
        self._open = under_way

    return [(GroupGuards, "markers_applied", mutant)]


def _mutation(name: str, what: str, patches: Callable[[], Sequence[Patch]]) -> Mutation:
    return Mutation(name, what, patches, TRANSACTIONS)


MUTATIONS = (
    _mutation(
        "high-watermark-for-stable",
        "readers of committed records read up to the high watermark",
        _read_up_to_the_high_watermark,
    ),
    _mutation("aborted-not-told", "readers learn of no aborted transactions", _tell_of_none_aborted),
    _mutation(
        "begins-with-each-batch", "each batch begins a transaction of its own", _begin_anew_with_each_batch
    ),
    _mutation("pending-offsets-shown", "offsets of open transactions count", _show_pending_offsets),
    _mutation("aborted-offsets-count", "offsets of aborted transactions count", _commit_aborted_offsets),
)


def _sync_what_was_removed() -> Sequence[Patch]:
    cut = AbortedIndex._cut

    def mutant(self: AbortedIndex, count: int) -> None:
        was_synced = self._is_synced
        cut(self, count)
        self._is_synced = self._is_synced and was_synced

    return [(AbortedIndex, "_cut", mutant)]


RARE = (
    _mutation(
        "removed-index-synced",
        "a log fails at a flush after a truncation has removed its index of aborted transactions",
        _sync_what_was_removed,
    ),
    _mutation(
        "ended-transaction-repeated",
        "a batch with the sequence of one of an ended transaction is acknowledged, and not written",
        lambda: [
            (producer_state, "check_same_transaction", lambda header, earlier, transaction_offset: None)
        ],
    ),
    _mutation(
        "settled-by-marker", "a transaction counts before its marker is committed", _settle_at_the_marker
    ),
    _mutation(
        "settled-at-high-watermark",
        "a marker at the high watermark counts as committed",
        _settle_at_the_high_watermark,
    ),
    _mutation(
        "aborted-told-late",
        "readers are told only of aborted transactions that end in the range",
        _tell_of_those_ended_in_the_range,
    ),
    _mutation(
        "aborted-index-left", "a truncation leaves the index of aborted transactions", _leave_the_index
    ),
    _mutation("aborted-index-trusted", "recovery trusts the index of aborted transactions", _trust_the_index),
    _mutation(
        "open-forgotten-at-start",
        "a restarted broker does not know open transactions",
        _forget_open_transactions,
    ),
    _mutation(
        "unsettled-forgotten",
        "snapshots forget what has ended and is not committed",
        _forget_what_is_unsettled,
    ),
    _mutation("any-marker-taken", "markers of old epochs are written", _fence_no_marker),
    _mutation("written-outside", "a producer writes outside of its open transaction", _write_outside),
    _mutation("answer-remembered", "a marker leaves what was confirmed before it", _remember_the_answer),
    _mutation(
        "committed-offsets-dropped", "offsets of committed transactions are dropped", _drop_committed_offsets
    ),
    _mutation("aborted-offsets-loaded", "a new coordinator takes aborted offsets", _load_aborted_offsets),
    _mutation(
        "open-offsets-not-loaded",
        "a new coordinator forgets the offsets of open transactions",
        _load_no_open_offsets,
    ),
    _mutation(
        "unstable-offsets-told",
        "who wants stable offsets gets those that may be replaced",
        _answer_unstable_offsets,
    ),
    _mutation(
        "questions-under-way-left",
        "a marker leaves the questions about offsets under way",
        _leave_questions_under_way,
    ),
)
