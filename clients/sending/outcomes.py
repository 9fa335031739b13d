"""The outcomes of batches: acknowledged, sent again, split, or given up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast_log.clients.errors import (
    DeliveryTimeoutError,
    GuardMismatchError,
    TransactionAbortedError,
    is_fenced,
    is_retriable,
)
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.conditions import judged, poison
from holdfast_log.clients.sending.queues import PartitionQueue, Queues
from holdfast_log.clients.sending.settings import SenderSettings
from holdfast_log.clients.sending.tally import SendingTally
from holdfast_log.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from holdfast_log.clients.sending.transaction_port import TransactionPort

_LOST_SEQUENCE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_NOT_WRITTEN = (
    ErrorCode.OFFSET_MISMATCH,
    ErrorCode.APPEND_ID_UNKNOWN,
    ErrorCode.KEY_VERSION_MISMATCH,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
"""Errors that prove that the broker has not appended the batch."""


class Outcomes:
    """Decides the outcome of each batch. The lock must be held for all but `call_back`."""

    def __init__(
        self,
        queues: Queues,
        settings: SenderSettings,
        tally: SendingTally,
        transactions: TransactionPort | None = None,
    ) -> None:
        self.callbacks: list[Callable[[], object]] = []
        """The callbacks to run, without the lock."""
        self._queues = queues
        self._settings = settings
        self._tally = tally
        self._transactions = transactions

    def succeeded(self, batch: Batch) -> None:
        """The broker has acknowledged a batch."""
        queue = self._queues.queue_of(batch)
        if batch.is_repeat and self._transactions is not None:
            self.give_up(queue, batch, _not_in_transaction(batch))
            return
        queue.in_flight.remove(batch)
        if batch.base_sequence >= 0 and batch.is_repeat:
            # The log has another batch with the same append id: the broker has not counted these numbers.
            queue.sequences.given_up() if batch.attempts > 1 else queue.sequences.refused()
        elif batch.base_sequence >= 0:
            queue.sequences.succeeded(batch.base_sequence, len(batch))
        self.finish(batch, None)

    def failed(self, batch: Batch, error: Exception, now_ms: int, *, was_sent: bool = True) -> None:
        """Queue the batch again if another attempt may help and time is left; else give it up."""
        queue = self._queues.queue_of(batch)
        # An earlier attempt without an answer may still arrive.
        batch.is_unwritten = batch.attempts == 1 and _is_not_written(error)
        if batch.expected_offset >= 0:
            error = judged(queue, batch, error)
        code = error.code if isinstance(error, BrokerError) else None
        is_lost = code in _LOST_SEQUENCE and batch.base_sequence >= 0
        if is_fenced(error) and batch.base_sequence >= 0:
            self.give_up(queue, batch, error)
            if self._transactions is None:  # Else its coordinator says who is fenced.
                self._queues.fatal_error = error
            return
        if is_lost and queue.is_first(batch):
            # No earlier batch is missing: the numbers themselves are wrong, and the batch is not written.
            queue.sequences.must_restart = True
            if self._transactions is not None:
                self.give_up(queue, batch, error)
                return
        abandoned = None if self._transactions is None else self._transactions.abandons()
        if abandoned is not None and not batch.is_done:
            self.give_up(queue, batch, abandoned)
            return
        is_bystander = code is ErrorCode.OPERATION_NOT_ATTEMPTED
        if not was_sent or is_bystander:
            batch.attempts -= 1
        may_help = is_lost or is_bystander or is_retriable(error)
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.middle and not batch.is_done:
            self._split(queue, batch, error)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.expected_offset >= 0 and len(batch) > 1:
            self.give_up(queue, batch, _unit_too_large(batch, error))
        elif batch.is_done or not may_help or batch.attempts > self._settings.retries:
            self.give_up(queue, batch, error)
        elif now_ms - batch.created_ms >= self._settings.delivery_timeout_ms:
            self.give_up(queue, batch, self.too_late(batch, error))
        else:
            queue.in_flight.remove(batch)
            queue.put_back(batch)
            self._tally.retried(batch, error)
            batch.last_error = error
            batch.retry_at_ms = (
                now_ms if is_lost or is_bystander else now_ms + self._backoff_ms(batch.attempts)
            )

    def give_up_mismatched(self, queue: PartitionQueue) -> None:
        """Give up the waiting batches whose condition depends on a batch that was refused."""
        for batch in [batch for batch in queue.batches if batch.mismatch is not None]:
            assert batch.mismatch is not None
            queue.batches.remove(batch)
            self.give_up(queue, batch, batch.mismatch)

    def give_up_first(self, queue: PartitionQueue, error: Exception) -> None:
        """Give up the first waiting batch, which has a condition, and all that depend on it."""
        self.give_up(queue, queue.batches.popleft(), error)
        poison(queue.batches, error)
        self.give_up_mismatched(queue)

    def give_up_unsendable(self, batch: Batch, error: Exception) -> None:
        """A batch that was taken to be sent cannot be encoded: it fails, and what depends on it."""
        queue = self._queues.queue_of(batch)
        batch.is_unwritten = batch.attempts == 1
        self.give_up(queue, batch, error)
        if batch.expected_offset >= 0:
            poison((*queue.in_flight, *queue.batches), error)
            self.give_up_mismatched(queue)

    def _split(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        """Queue a batch that is too large for the broker as two. Counts as no retry: the requests differ."""
        self._tally.split(batch, error)
        queue.in_flight.remove(batch)
        batch.last_error = error
        if batch.base_sequence >= 0:
            queue.sequences.outstanding += 1
        self.callbacks += self._queues.split(queue, batch)

    def _backoff_ms(self, attempts: int) -> int:
        doubled = self._settings.retry_backoff_ms << min(max(attempts - 1, 0), 16)
        return min(doubled, max(self._settings.retry_backoff_max_ms, self._settings.retry_backoff_ms))

    def give_up(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        """A batch of this queue has failed for good."""
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        if batch.base_sequence >= 0 and batch.is_unwritten:
            queue.sequences.refused()
        elif batch.base_sequence >= 0:
            queue.sequences.given_up()
        self.finish(batch, error)

    def too_late(self, batch: Batch, because: Exception | None) -> DeliveryTimeoutError:
        """The error of a batch that was not acknowledged within `delivery.timeout.ms`."""
        waited_ms = self._settings.delivery_timeout_ms
        if because is not None:
            last = f"; the last attempt: {because}"
        else:
            last = f"; {self._queues.lock.why_waiting(batch)}"
        error = DeliveryTimeoutError(
            f"{batch.topic}-{batch.partition}: not acknowledged within delivery.timeout.ms={waited_ms}"
            f" after {batch.attempts} attempts{last}"
        )
        error.__cause__ = because
        return error

    def finish(self, batch: Batch, error: Exception | None) -> None:
        """A batch has its outcome."""
        self._tally.finished(batch, error)
        if error is not None and not batch.is_done:
            if self._transactions is None:
                self._queues.losses.add(batch, error)
            else:
                self._transactions.failed(error)
        self.callbacks += batch.finish(error)
        self._queues.release(batch)

    def call_back(self) -> None:
        """Run the callbacks, without the lock."""
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                sys.excepthook(*sys.exc_info())  # An error of the application must not stop the sending.


def _not_in_transaction(batch: Batch) -> TransactionAbortedError:
    return TransactionAbortedError(
        f"{batch.topic}-{batch.partition} has an append with this append_id already, at offset "
        f"{batch.base_offset}: it is no part of this transaction, and the transaction that it is part of may "
        "be aborted. Send it without an append_id: a transaction needs none"
    )


def _unit_too_large(batch: Batch, error: Exception) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"nothing was appended to {batch.topic}-{batch.partition}: the {len(batch)} messages of one send_at "
        f"are one batch of {batch.size} bytes, because they are written all or none, and the broker accepts "
        "no batch of that size. Raise the topic's max.message.bytes, or send fewer messages at once "
        f"({error})",
    )


def _is_not_written(error: Exception) -> bool:
    return isinstance(error, GuardMismatchError) or (
        isinstance(error, BrokerError) and error.code in _NOT_WRITTEN
    )
