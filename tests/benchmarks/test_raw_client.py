"""The raw load is made of whole, valid batches of the size asked for."""

from __future__ import annotations

import pytest

from benchmarks.raw_client import build_batch
from protocol.batches import has_valid_crc, read_header


@pytest.mark.parametrize("batch_bytes", [16 * 1024, 64 * 1024, 1024 * 1024])
def test_a_batch_fills_what_it_may_take(batch_bytes: int) -> None:
    batch, records = build_batch(batch_bytes)

    header = read_header(batch)
    assert header.record_count == records
    assert has_valid_crc(batch, header)
    assert 0.95 * batch_bytes < len(batch) <= batch_bytes
