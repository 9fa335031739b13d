"""Checks of one batch against what its producer has written before: epoch, sequence, transaction (KIP-98)."""

from __future__ import annotations

from holdfast_log.broker.log.producer_entry import AppendedBatch
from holdfast_log.broker.log.transactions import NO_TRANSACTION
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

_SEQUENCE_MASK = 0x7FFFFFFF


def check_epoch(header: BatchHeader, epoch: int) -> None:
    """Raise INVALID_PRODUCER_EPOCH for an epoch below the producer's."""
    if header.producer_epoch < epoch:
        raise error_for(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} sends epoch {header.producer_epoch}, but its current epoch is "
            f"{epoch}",
        )


def check_inside(header: BatchHeader, transaction_offset: int) -> None:
    """Raise INVALID_TXN_STATE if a producer whose transaction began at `transaction_offset` writes outside of
    it."""
    if transaction_offset == NO_TRANSACTION or header.is_transactional:
        return
    raise error_for(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {header.producer_id} writes outside of the transaction that it has open here since offset "
        f"{transaction_offset}: it must end it first",
    )


def check_same_transaction(header: BatchHeader, earlier: AppendedBatch, first_offset: int) -> None:
    """Raise UNKNOWN_PRODUCER_ID if a batch has the sequence of one of an earlier transaction of its producer,
    `earlier`. The transaction that is open began at `first_offset`; `NO_TRANSACTION`: none is.

    It is no repeated attempt: a producer ends a transaction only when it knows what has become of all its
    batches. librdkafka gives the sequences of a batch that waited to be sent again, when its transaction was
    aborted, to the records of the next transaction, though the batch may have been written at the first
    attempt. They would be acknowledged, and lost. After this error it takes a new epoch.
    """
    if not header.is_transactional:
        return
    if first_offset != NO_TRANSACTION and earlier.first_offset >= first_offset:
        return
    raise error_for(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {header.producer_id} sends sequence {header.base_sequence} again, with which it has "
        f"written offset {earlier.first_offset} in a transaction that has ended: it must take a new epoch",
    )


def check_sequence(header: BatchHeader, epoch: int, last_sequence: int) -> None:
    """Raise for a batch that does not continue what its producer has written under `epoch`, up to
    `last_sequence`."""
    check_epoch(header, epoch)
    if header.base_sequence < 0:
        return  # A coordinator's own, as are the offsets of a group that are committed in a transaction.
    who = f"producer {header.producer_id}"
    if header.producer_epoch > epoch:
        if header.base_sequence != 0:
            raise _out_of_order(
                f"{who} begins epoch {header.producer_epoch} with sequence {header.base_sequence}, not 0"
            )
        return
    expected = (last_sequence + 1) & _SEQUENCE_MASK
    if header.base_sequence == expected:
        return
    # A sequence before the remembered batches is refused, because a duplicate would be acknowledged. If the
    # state lacks the producer's first batches, this batch may never have arrived; if it arrived, it may not
    # be committed. Producers with at most five batches in flight never repeat an older one.
    raise _out_of_order(f"{who} sends sequence {header.base_sequence}, expected {expected}")


def _out_of_order(message: str) -> BrokerError:
    return error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
