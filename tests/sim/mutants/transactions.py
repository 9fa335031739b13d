"""Bugs of transactions: in their coordinator, in the partitions that they write to, in offsets, in reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.handlers import fetch
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.transactions import NO_TRANSACTION
from holdfast_log.broker.replication import partition
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.transactions.markers import MarkerSender
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.transactions import epochs, shard
from holdfast_log.coordinator.transactions.epochs import NextEpoch
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.transactions.states import TransactionEvent, TransactionState
from holdfast_log.protocol.errors import ErrorCode
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _finish_nothing() -> Sequence[Patch]:
    loaded = TransactionShard.loaded

    def mutant(self: TransactionShard, now_ms: int) -> Any:
        result = loaded(self, now_ms)
        result.claims.clear()
        return result

    return [(TransactionShard, "loaded", mutant)]


def _admit_any_epoch() -> Sequence[Patch]:
    def mutant(transaction: Any, producer: Any) -> ErrorCode:
        return ErrorCode.NONE if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    return [(shard, "_check_producer", mutant), (epochs, "_may_end", lambda *known, **more: True)]


def _give_one_epoch_twice() -> Sequence[Patch]:
    next_epoch = epochs.next_epoch

    def mutant(transaction: Any, expected: Any, new_producer_id: int | None) -> Any:
        found = next_epoch(transaction, expected, new_producer_id)
        if isinstance(found, NextEpoch) and found.producer_id == transaction.producer_id:
            return found._replace(epoch=max(0, found.epoch - 1))
        return found

    return [(shard, "next_epoch", mutant)]


def _in_cell(state: TransactionState, event: TransactionEvent, cell: Any) -> Callable[[], Sequence[Patch]]:
    def patches() -> Sequence[Patch]:
        outcome = shard.outcome

        def mutant(now: TransactionState, happened: TransactionEvent) -> Any:
            return cell if (now, happened) == (state, event) else outcome(now, happened)

        return [(shard, "outcome", mutant)]

    return patches


def _send_each_marker_once() -> Sequence[Patch]:
    return [(MarkerSender, "_fail", lambda self, marker: None)]


def _read_up_to_the_high_watermark() -> Sequence[Patch]:
    return [(Partition, "last_stable_offset", property(lambda self: self.high_watermark))]


def _tell_of_none_aborted() -> Sequence[Patch]:
    return [(partition, "with_aborted", lambda log, offset, max_bytes, read: (read, []))]


def _begin_anew_with_each_batch() -> Sequence[Patch]:
    update = ProducerStates.update

    def mutant(self: ProducerStates, header: Any, base_offset: int, *more: Any) -> Any:
        entry = self._entries.get(header.producer_id)
        if header.is_transactional and not header.is_control and entry is not None:
            entry.transaction_offset = NO_TRANSACTION
        return update(self, header, base_offset, *more)

    return [(ProducerStates, "update", mutant)]


def _show_pending_offsets() -> Sequence[Patch]:
    def mutant(self: GroupOffsets, result: Any, producer_id: int, *offset: Any) -> None:
        self.commit(result, *offset)

    return [(GroupOffsets, "commit_pending", mutant)]


def _commit_aborted_offsets() -> Sequence[Patch]:
    end_transaction = GroupOffsets.end_transaction

    def mutant(self: GroupOffsets, producer_id: int, *, is_commit: bool) -> list[str]:
        return end_transaction(self, producer_id, is_commit=True)

    return [(GroupOffsets, "end_transaction", mutant)]


def _answer_the_gone() -> Sequence[Patch]:
    return [(fetch, "_is_awaited", lambda kept: True)]


_S, _E = TransactionState, TransactionEvent


def _mutation(name: str, what: str, patches: Callable[[], Sequence[Patch]]) -> Mutation:
    return Mutation(name, what, patches, TRANSACTIONS)


MUTATIONS = (
    _mutation(
        "nothing-finished", "a new coordinator sends no markers of decided transactions", _finish_nothing
    ),
    _mutation("any-epoch-admitted", "the coordinator looks at no producer epoch", _admit_any_epoch),
    _mutation(
        "epoch-given-twice", "the next producer gets the epoch of the one before", _give_one_epoch_twice
    ),
    _mutation(
        "init-leaves-open",
        "a new producer does not abort what its predecessor has open",
        _in_cell(_S.ONGOING, _E.INIT, _S.EMPTY),
    ),
    _mutation("marker-sent-once", "a marker that was not written is not sent again", _send_each_marker_once),
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
    _mutation(
        "gone-reader-answered",
        "a fetch is answered whose connection closed during a cold read",
        _answer_the_gone,
    ),
)
