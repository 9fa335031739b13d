"""The producer's counts, gathered into one `ProducerFeedback`. Kept apart because it is slow to import."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.clients.feedback.snapshots import ConnectionFeedback, ProducerFeedback
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.tally import SendingTally


def producer_feedback(
    connection: ConnectionFeedback,
    sending: SendingTally,
    pending: Iterable[Batch],
    *,
    records_refused: int,
    buffer_used_bytes: int,
    buffer_wait_ms: int,
) -> ProducerFeedback:
    """The counts of a producer. `pending` are the batches that wait or are under way."""
    waiting = [batch for batch in pending if not batch.is_done]
    return ProducerFeedback(
        connection=connection,
        records_waiting=sum(len(batch) for batch in waiting),
        records_acknowledged=sending.records_acknowledged,
        records_failed=sending.records_failed,
        records_refused=records_refused,
        bytes_waiting=sum(_size(batch) for batch in waiting),
        bytes_acknowledged=sending.bytes_acknowledged,
        bytes_failed=sending.bytes_failed,
        batches_acknowledged=sending.batches_acknowledged,
        batches_failed=sending.batches_failed,
        batches_retried=sending.batches_retried,
        batches_split=sending.batches_split,
        batch_fill=sending.fill_sum / sending.batches_filled if sending.batches_filled else None,
        buffer_used_bytes=buffer_used_bytes,
        buffer_wait_ms=buffer_wait_ms,
    )


def _size(batch: Batch) -> int:
    # `Batch.size` is for the sending thread, which may be encoding the batch just now.
    builder = batch.builder
    return len(batch.encoded or b"") if builder is None else builder.size
