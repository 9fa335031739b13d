"""Bugs of producers that get a new epoch with each transaction, and whose partitions are added for them
(KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.log import producer_state
from holdfast_log.coordinator.transactions import epochs, shard
from holdfast_log.coordinator.transactions.effects import PartitionsAnswer, TransactionResult
from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.protocol.errors import ErrorCode
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _store_the_old_epoch() -> Sequence[Patch]:
    transaction_record = shard.transaction_record

    def mutant(transactional_id: str, transaction: Any, *, is_flexible: bool) -> Any:
        if transaction is not None and transaction.state.is_ending and transaction.client_version:
            transaction = replace(transaction, producer_epoch=transaction.producer_epoch - 1)
        return transaction_record(transactional_id, transaction, is_flexible=is_flexible)

    return [(shard, "transaction_record", mutant)]


def _raise_no_epoch() -> Sequence[Patch]:
    return [(shard, "_bumped", lambda ended, new_producer_id: ended)]


def _admit_ended_epochs() -> Sequence[Patch]:
    check_producer, check_sequence = shard._check_producer, producer_state.check_sequence

    def admits(transaction: Any, producer: Any) -> ErrorCode:
        error = check_producer(transaction, producer)
        is_ended = error is ErrorCode.PRODUCER_FENCED and producer.epoch < transaction.producer_epoch
        return ErrorCode.NONE if is_ended else error

    def in_log(header: Any, epoch: int, last_sequence: int) -> None:
        if header.producer_epoch >= epoch:
            check_sequence(header, epoch, last_sequence)

    return [(shard, "_check_producer", admits), (producer_state, "check_sequence", in_log)]


def _record_only_the_first() -> Sequence[Patch]:
    add = TransactionShard.add_partitions

    def mutant(
        self: TransactionShard,
        request: Any,
        transactional_id: str,
        producer: Any,
        partitions: Any,
        *,
        now_ms: int,
        client_version: int = 0,
    ) -> TransactionResult:
        known = self.transactions.get(transactional_id)
        if client_version >= BUMPING_VERSION and known is not None and known.partitions:
            result = TransactionResult()
            result.reply(request, PartitionsAnswer(shard._check_producer(known, producer)))
            return result
        return add(
            self, request, transactional_id, producer, partitions,
            now_ms=now_ms, client_version=client_version,
        )  # fmt: skip

    return [(TransactionShard, "add_partitions", mutant)]


def _know_no_repetition() -> Sequence[Patch]:
    may_end = epochs._may_end

    def mutant(transaction: Any, producer: Any, *, recorded: bool, is_repeated: bool) -> bool:
        return may_end(transaction, producer, recorded=recorded, is_repeated=False)

    return [(epochs, "_may_end", mutant)]


def _fence_whoever_is_late() -> Sequence[Patch]:
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
        fence(self, result, name, transaction, now_ms)

    return [(TransactionShard, "_fence", mutant)]


def _fence_whoever_is_early() -> Sequence[Patch]:
    def mutant(transaction: Any, producer: Any) -> bool:
        return False

    return [(epochs, "is_next", mutant), (shard, "is_next", mutant)]


def _mutation(name: str, what: str, patches: Callable[[], Sequence[Patch]]) -> Mutation:
    return Mutation(name, what, patches, TRANSACTIONS)


MUTATIONS = (
    _mutation(
        "early-producer-fenced",
        "a producer that goes on while markers of its last transaction are missing is fenced",
        _fence_whoever_is_early,
    ),
    _mutation("end-raises-no-epoch", "a producer goes on with the epoch that has ended", _raise_no_epoch),
    _mutation(
        "ended-epoch-admitted", "records of an ended epoch join the next transaction", _admit_ended_epochs
    ),
    _mutation(
        "later-partitions-not-added",
        "only the first partition that leaders add belongs to the transaction",
        _record_only_the_first,
    ),
    _mutation("repeated-end-fenced", "an end whose answer was lost fences its producer", _know_no_repetition),
    _mutation(
        "late-producer-fenced",
        "a producer that may repeat its abort after a time-out is fenced",
        _fence_whoever_is_late,
    ),
)

RARE = (
    _mutation(
        "next-epoch-not-stored",
        "the record of a decision lacks the epoch that the producer is answered",
        _store_the_old_epoch,
    ),
)
