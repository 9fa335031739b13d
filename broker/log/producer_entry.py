"""What a log knows of one idempotent producer: its epoch, its last batches and its open transaction."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from holdfast_log.broker.log.transactions import NO_TRANSACTION
from holdfast_log.protocol.batches import BatchHeader

REMEMBERED_BATCHES = 5
NO_MARKER = -1
NO_SEQUENCE = -1
_NO_COORDINATOR_EPOCH = -1
_SEQUENCE_MASK = 0x7FFFFFFF


class AppendedBatch(NamedTuple):
    """What identifies one batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer. `batches` are its last ones under `epoch`, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "ended_at",
        "epoch",
        "last_write_ms",
        "producer_id",
        "transaction_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[AppendedBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self.last_write_ms = 0
        self.coordinator_epoch = _NO_COORDINATOR_EPOCH
        self.transaction_offset = NO_TRANSACTION
        """Offset at which its open transaction began; -1 if none is open."""
        self.ended_at = NO_MARKER
        """Offset of its last marker that this process has seen."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find(self, header: BatchHeader) -> AppendedBatch | None:
        """The remembered batch that `header` repeats; None if it repeats none."""
        if header.producer_epoch != self.epoch or header.base_sequence < 0:
            return None
        wanted_sequence, wanted_delta = header.last_sequence, header.last_offset_delta
        for batch in self.batches:
            # Read together, because each read of a named tuple's field is a call.
            last_sequence, _, offset_delta, _ = batch
            if last_sequence == wanted_sequence and offset_delta == wanted_delta:
                return batch
        return None
