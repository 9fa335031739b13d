"""Record batches for tests, in the real format (`protocol.records`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.protocol.batches import HEADER_SIZE, TimestampType, attributes, read_header, write_header
from holdfast_log.protocol.compression import Compression, compress
from holdfast_log.protocol.record_codec import encode_headers, zigzag_varint
from holdfast_log.protocol.records import BatchBuilder, Headers, records_of

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


def compacted_batch(
    rows: Mapping[int, Row],
    base_offset: int,
    last_offset: int,
    compression: Compression = Compression.NONE,
    append_time: int | None = None,
) -> bytes:
    """A batch of rows by their offsets, as compaction leaves it: any may be missing between the two ends.

    With `append_time` (ms) the broker has set the timestamps.
    """
    base_time = next((row[0] for row in rows.values()), -1)
    records = b"".join(
        encoded_record(offset - base_offset, row[0] - base_time, *row[1:]) for offset, row in rows.items()
    )
    batch = bytearray(HEADER_SIZE) + compress(compression, records)
    kind = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
    write_header(
        batch,
        attributes=attributes(compression, timestamp_type=kind),
        record_count=len(rows),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_time,
        max_timestamp=max((row[0] for row in rows.values()), default=-1)
        if append_time is None
        else append_time,
        base_offset=base_offset,
    )
    return bytes(batch)


def encoded_record(
    offset_delta: int, timestamp_delta: int, key: _Bytes, value: _Bytes, headers: Headers = ()
) -> bytes:
    """One record, with its length first."""
    body = b"".join(
        (
            b"\0",
            zigzag_varint(timestamp_delta),
            zigzag_varint(offset_delta),
            *(piece for item in (key, value) for piece in _measured(item)),
            encode_headers(headers),
        )
    )
    return zigzag_varint(len(body)) + body


def _measured(item: _Bytes) -> tuple[bytes, ...]:
    return (zigzag_varint(-1),) if item is None else (zigzag_varint(len(item)), item)


def fetched(batch: bytes, start: int = 0) -> EncodedBatch:
    """A batch of the partition log-0 as a consumer whose position is `start` returns it."""
    header = read_header(batch)
    return EncodedBatch("log", 0, header, records_of(batch, header), start)
