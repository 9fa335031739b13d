"""The counts of a producer's batches, records and bytes."""

from __future__ import annotations

from holdfast_log.clients.feedback.events import BatchFailed, BatchRetried, BatchSplit, Events
from holdfast_log.clients.sending.batch import Batch


class SendingTally:
    """What a producer counts. Guarded by its lock."""

    def __init__(self, events: Events) -> None:
        self.batches_acknowledged = 0
        self.batches_failed = 0
        self.batches_retried = 0
        self.batches_split = 0
        self.batches_filled = 0
        """How many batches `fill_sum` sums up; each is counted when it is first sent."""
        self.fill_sum = 0.0
        self.records_acknowledged = 0
        self.records_failed = 0
        self.bytes_acknowledged = 0
        self.bytes_failed = 0
        self._events = events

    def taken(self, batch: Batch, limit: int) -> None:
        """A batch is about to be sent; its largest size is `limit` bytes."""
        if batch.builder is not None:
            self.batches_filled += 1
            self.fill_sum += min(1.0, batch.size / max(limit, 1))

    def retried(self, batch: Batch, error: Exception) -> None:
        """A batch will be sent again."""
        self.batches_retried += 1
        self._events.note(BatchRetried(batch.topic, batch.partition, len(batch), batch.attempts, error))

    def split(self, batch: Batch, error: Exception) -> None:
        """A batch will be sent as two."""
        self.batches_split += 1
        self._events.note(BatchSplit(batch.topic, batch.partition, len(batch), error))

    def finished(self, batch: Batch, error: Exception | None) -> None:
        """A batch gets its outcome. Later outcomes of the same batch do not count."""
        if batch.is_done:
            return
        if error is None:
            self.batches_acknowledged += 1
            self.records_acknowledged += len(batch)
            self.bytes_acknowledged += batch.size
        else:
            self.batches_failed += 1
            self.records_failed += len(batch)
            self.bytes_failed += batch.size
            self._events.note(BatchFailed(batch.topic, batch.partition, len(batch), error))
