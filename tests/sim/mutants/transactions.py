"""Bugs of the coordinator of transactions: in what it decides, and in how it has markers written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.transactions.markers import MarkerSender
from holdfast_log.broker.transactions.verification import CoordinatorVerifier
from holdfast_log.coordinator.shards.hosted_shard import HostedShard
from holdfast_log.coordinator.transactions import epochs, shard
from holdfast_log.coordinator.transactions.epochs import NextEpoch
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.transactions.states import TransactionEvent, TransactionState
from holdfast_log.protocol.errors import ErrorCode
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _decide_before_durable() -> Sequence[Patch]:
    return [(HostedShard, "_may_answer", lambda self, result, committed: True)]


def _complete_at_the_first_marker() -> Sequence[Patch]:
    marked = TransactionShard.marked

    def mutant(self: TransactionShard, written: Any, partitions: Any, now_ms: int) -> Any:
        return marked(self, written, written.partitions, now_ms)

    return [(TransactionShard, "marked", mutant)]


def _finish_nothing() -> Sequence[Patch]:
    loaded = TransactionShard.loaded

    def mutant(self: TransactionShard, now_ms: int) -> Any:
        result = loaded(self, now_ms)
        result.claims.clear()
        return result

    return [(TransactionShard, "loaded", mutant)]


def _abort_what_was_committed() -> Sequence[Patch]:
    loaded = TransactionShard.loaded

    def mutant(self: TransactionShard, now_ms: int) -> Any:
        result = loaded(self, now_ms)
        result.claims[:] = [replace(each, is_commit=False) for each in result.claims]
        return result

    return [(TransactionShard, "loaded", mutant)]


def _admit_any_epoch() -> Sequence[Patch]:
    def mutant(transaction: Any, producer: Any) -> ErrorCode:
        return ErrorCode.NONE if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    return [(shard, "_check_producer", mutant), (epochs, "_may_end", lambda *known, **more: True)]


def _end_by_any_epoch() -> Sequence[Patch]:
    return [(epochs, "_may_end", lambda *known, **more: True)]


def _keep_the_epoch() -> Sequence[Patch]:
    fence = TransactionShard._fence

    def mutant(
        self: TransactionShard,
        result: Any,
        name: str,
        transaction: Any,
        now_ms: int,
        *,
        may_go_on: bool = False,
    ) -> None:
        lowered = replace(transaction, producer_epoch=transaction.producer_epoch - 1)
        fence(self, result, name, lowered, now_ms, may_go_on=may_go_on)

    return [(TransactionShard, "_fence", mutant)]


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


def _verify_nothing() -> Sequence[Patch]:
    verify = CoordinatorVerifier.verify

    def mutant(self: CoordinatorVerifier, *asked: Any, adds: bool = False) -> Any:
        return verify(self, *asked, adds=True)

    return [(CoordinatorVerifier, "verify", mutant)]


def _keep_what_was_refused() -> Sequence[Patch]:
    refused = TransactionShard.refused

    def mutant(self: TransactionShard, result: Any, error: ErrorCode, now_ms: int) -> Any:
        known = dict(self.transactions)
        undone = refused(self, result, error, now_ms)
        for name in result.before:
            self._put(name, known.get(name))
        return undone

    return [(TransactionShard, "refused", mutant)]


def _send_each_marker_once() -> Sequence[Patch]:
    return [(MarkerSender, "_fail", lambda self, marker: None)]


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
    _mutation(
        "never-timed-out",
        "open transactions do not time out",
        _in_cell(_S.ONGOING, _E.TIME_OUT, ErrorCode.NONE),
    ),
    _mutation("marker-sent-once", "a marker that was not written is not sent again", _send_each_marker_once),
)

RARE = (
    _mutation(
        "decided-before-durable",
        "a decision is acted on before it is on enough replicas",
        _decide_before_durable,
    ),
    _mutation(
        "complete-at-first-marker",
        "a transaction is complete once one partition has its marker",
        _complete_at_the_first_marker,
    ),
    _mutation(
        "commit-turned-into-abort",
        "a new coordinator aborts what its predecessor has committed",
        _abort_what_was_committed,
    ),
    _mutation(
        "ended-by-any-epoch", "a fenced producer may end the transaction of its successor", _end_by_any_epoch
    ),
    _mutation(
        "time-out-keeps-epoch", "a producer whose transaction timed out is not fenced", _keep_the_epoch
    ),
    _mutation(
        "init-overtakes-markers",
        "a new producer begins while markers of its predecessor are missing",
        _in_cell(_S.PREPARE_COMMIT, _E.INIT, _S.EMPTY),
    ),
    _mutation(
        "add-overtakes-markers",
        "a transaction begins while markers of the one before are missing",
        _in_cell(_S.PREPARE_COMMIT, _E.ADD, _S.ONGOING),
    ),
    _mutation(
        "abort-answers-commit",
        "a commit is acknowledged although the transaction was aborted",
        _in_cell(_S.COMPLETE_ABORT, _E.COMMIT, ErrorCode.NONE),
    ),
    _mutation("question-adds", "a leader's question adds the partition to the transaction", _verify_nothing),
    _mutation("refused-decision-stays", "what the log refuses stays decided", _keep_what_was_refused),
)
