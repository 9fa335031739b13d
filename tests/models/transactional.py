"""Batches of transactions for tests."""

from __future__ import annotations

from holdfast_log.protocol.batches import attributes, read_header, write_header
from tests.models.batches import START_MS, Row, encoded

PRODUCER = 7


def transactional_batch(
    *rows: Row | bytes, producer_id: int = PRODUCER, epoch: int = 0, sequence: int = 0
) -> bytearray:
    """A transactional batch of rows, or of values without keys."""
    whole = [(START_MS, None, row) if isinstance(row, bytes) else row for row in rows or (b"value",)]
    batch = encoded(whole)
    header = read_header(batch)
    write_header(
        batch,
        attributes=attributes(0, is_transactional=True),
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return batch
