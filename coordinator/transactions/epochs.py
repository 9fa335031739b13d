"""The rules of producer epochs: who may go on, with which id and epoch, and who is fenced. Pure.

Every producer that asks for its id gets an epoch of its own; the one before it is fenced (KIP-98). A producer
that names the id and epoch that it has may go on after an error (KIP-360). A producer of transaction.version
2 gets a new epoch with each end of a transaction (KIP-890). The last epoch, 32767, is never given to a
producer, so that there is always one to fence it with: before that the id is replaced.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast_log.coordinator.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Transaction
from holdfast_log.coordinator.transactions.states import TransactionEvent, TransactionState
from holdfast_log.protocol.errors import ErrorCode

EPOCH_MAX = 2**15 - 1
BUMPING_VERSION = 2
"""The first transaction.version in which each end of a transaction raises the epoch."""


class ProducerName(NamedTuple):
    """The id and epoch that a producer says to have."""

    producer_id: int
    epoch: int


class NextEpoch(NamedTuple):
    """With what a producer goes on, and the epoch that a repeated request will name."""

    producer_id: int
    epoch: int
    last_epoch: int


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may get an epoch after this one."""
    return epoch >= EPOCH_MAX - 1


def may_init(transaction: Transaction, expected: ProducerName | None) -> bool:
    """Whether a producer that asks for its next epoch is the one that has the id, or its only predecessor: it
    repeats a request whose answer, with a new id, it has not received."""
    return (
        expected is None
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.epoch))
    )


def next_epoch(
    transaction: Transaction, expected: ProducerName | None, new_producer_id: int | None
) -> NextEpoch | ErrorCode:
    """The answer to a producer that `may_init` while no transaction is open. COORDINATOR_NOT_AVAILABLE stands
    for: a new id is needed."""
    epoch, last = transaction.producer_epoch, transaction.last_producer_epoch
    is_repeated = expected is not None and expected.epoch != epoch and expected.epoch == last
    if is_repeated:
        return NextEpoch(transaction.producer_id, epoch, last)
    if expected is not None and expected.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    remembered = NO_PRODUCER_EPOCH if expected is None else epoch
    if not is_exhausted(epoch):
        return NextEpoch(transaction.producer_id, epoch + 1, remembered)
    if new_producer_id is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return NextEpoch(new_producer_id, 0, remembered)


def event_of_end(
    transaction: Transaction, producer: ProducerName, *, is_commit: bool, bumps: bool
) -> TransactionEvent | ErrorCode:
    """What the end of a transaction means, or the error for a producer that may not end it. `bumps`: the
    producer gets a new epoch with each end."""
    if is_next(transaction, producer):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    recorded = transaction.client_version >= BUMPING_VERSION
    has_new_id = (
        recorded
        and transaction.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != producer.producer_id and not has_new_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_repeated = has_new_id or (recorded and transaction.producer_epoch == producer.epoch + 1)
    if not _may_end(transaction, producer, recorded=recorded, is_repeated=is_repeated):
        return ErrorCode.PRODUCER_FENCED
    if bumps and not is_repeated:
        return TransactionEvent.COMMIT_NEXT if is_commit else TransactionEvent.ABORT_NEXT
    return TransactionEvent.COMMIT if is_commit else TransactionEvent.ABORT


def _may_end(transaction: Transaction, producer: ProducerName, *, recorded: bool, is_repeated: bool) -> bool:
    is_current = producer.epoch == transaction.producer_epoch
    if not recorded:
        return is_current
    if transaction.state.is_ending:
        return is_repeated
    if transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return is_repeated or is_current
    return is_current


def is_next(transaction: Transaction, producer: ProducerName) -> bool:
    """Whether a producer goes on already, with the id and epoch that the end of its transaction has given it,
    while markers of that transaction are still missing. It has to ask again, and is not fenced."""
    is_ending = transaction.state.is_ending and transaction.client_version >= BUMPING_VERSION
    return is_ending and producer == after_end(transaction)


def after_end(transaction: Transaction) -> ProducerName:
    """What the producer has once its transaction, whose end is decided, is complete."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerName(transaction.next_producer_id, 0)
    return ProducerName(transaction.producer_id, transaction.producer_epoch)
