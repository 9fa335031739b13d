"""Record batches for tests, in the real format (`protocol.records`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from protocol.compression import Compression
from protocol.records import BatchBuilder, Headers

_Bytes: TypeAlias = bytes | None
Row: TypeAlias = tuple[int, _Bytes, _Bytes] | tuple[int, _Bytes, _Bytes, Headers]
START_MS = 1_700_000_000_000
"""Timestamp of a record unless a test gives another; the simulated clocks start at the same time."""


def encoded(
    rows: Iterable[Row],
    compression: Compression = Compression.NONE,
    **producer: int,
) -> bytearray:
    """A batch of rows (timestamp in ms, key, value, headers); `producer` goes to `BatchBuilder.build`."""
    builder = BatchBuilder(compression)
    for row in rows:
        builder.append(*row)
    return builder.build(**producer)


def batch(
    *values: bytes,
    timestamp: int = START_MS,
    compression: Compression = Compression.NONE,
    **producer: int,
) -> bytes:
    """A batch of records without keys, all with the same timestamp."""
    return bytes(encoded(((timestamp, None, value) for value in values), compression, **producer))


def timed_batch(
    *timestamps: int, size: int = 10, producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> memoryview:
    """A batch with a record for each timestamp (by default one), with values of `size` bytes. Writable."""
    rows = [(timestamp, b"key", b"v" * size) for timestamp in timestamps or (START_MS,)]
    return memoryview(encoded(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
