"""Log compaction over record batches: which keys there are, and what remains of the batches (Kafka design
§4.8).

Compaction makes two passes over a log. The first one enters the keys of the log's uncompacted part into a
table (`add_keys`); the second one copies all batches and leaves out records for which the table knows a later
one (`filter_batches`). The loops are in the compiled `protocol._compaction` if it is installed, else in
`protocol.compaction_loops`; the environment variable HOLDFAST_PURE_PYTHON selects the latter. The compiled
loops run without the global interpreter lock.

The table is a writable buffer of slots of 24 bytes: the BLAKE2b digest of a key in 16 bytes, and the offset
of its last record plus one; 0 marks a free slot. A digest of 128 bits is as good as the key: nobody can make
two keys with the same digest. The first 8 bytes of a digest choose its slot; if that is taken, the next free
one follows.

What stays of a batch:

- Records stay unless the table has a later offset for their key. Records without a key stay.
- A tombstone, which is a record with a key and a null value, stays too. The first pass whose table covers a
  batch with tombstones writes their *delete horizon* into its header: attribute bit 6, with the time in the
  base timestamp (KIP-534). A pass after that time leaves the tombstones out.
- Offsets, leader epoch, producer and sequences never change. A batch keeps its first and its last offset,
  even if the records there are gone.
- A batch without records disappears, unless its header is needed: the first batch of a leader epoch, from
  which a replica that copies the compacted log learns where the epoch began; and those whose base offsets the
  caller names. Such a header has record count 0.
- Of transactional batches and control batches the caller decides (`broker.cleaning.transactions`).
- Batches whose records no reader can decode stay as they are.

Functions that take batches read them from `position` of `data`. They check the CRC and the offsets of each:
at least `expected`, which is the offset after the batch before, and below `upper`. They return the position
and the expected offset after the last batch that they have dealt with, and a status:

- ENDED: the data end before the next batch does;
- COMPRESSED: the next batch is sound and compressed. The caller decompresses its records and uses
  `add_batch_keys` or `filter_records`;
- MARKED: the next batch is sound, and belongs to a transaction or ends one;
- FULL: the table has no place for the key at the offset that is returned too; it has all keys before it;
- DAMAGED: no sound batch begins at the position.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import NamedTuple, TypeAlias

from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, Compression
from holdfast_log.protocol.compaction_loops import (
    COMPRESSED,
    DAMAGED,
    DIGEST_BYTES,
    ENDED,
    FULL,
    MARKED,
    SLOT_BYTES,
    Table,
    contains,
    rewritten,
    row_of,
)
from holdfast_log.protocol.compression import DecompressionError, compress, decompress
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE
from holdfast_log.protocol.wire import Buffer

__all__ = [
    "COMPRESSED", "DAMAGED", "DIGEST_BYTES", "ENDED", "FULL", "MARKED", "SLOT_BYTES",
    "Filtered", "Mapped", "Rules", "Table",
    "add_batch_keys", "add_compressed_keys", "add_keys", "contains",
    "filter_batches", "filter_compressed", "filter_records", "rewritten", "row_of",
]  # fmt: skip


def _fastest_loops() -> ModuleType:
    if not os.environ.get(PURE_PYTHON_VARIABLE):
        try:
            from holdfast_log.protocol import _compaction
        except ImportError:
            pass
        else:
            return _compaction
    from holdfast_log.protocol import compaction_loops

    return compaction_loops


_loops = _fastest_loops()


class Mapped(NamedTuple):
    """The result of `add_keys`."""

    position: int
    expected: int
    key_count: int
    """Keys that are in the table now."""
    status: int
    full_at: int
    """The offset of the first record whose key has no place, if the status is FULL."""


class Filtered(NamedTuple):
    """The result of `filter_batches`."""

    output: bytes
    """The batches that remain."""
    rows: bytes
    """For each of them three native 64-bit integers: its last offset, largest timestamp in ms, and size in
    bytes."""
    position: int
    expected: int
    previous_epoch: int
    """The leader epoch of the last batch of the data, whether it remains or not."""
    status: int
    is_changed: bool
    """Whether the output differs from the batches that were dealt with."""


class Rules(NamedTuple):
    """What decides which records stay.

    `table` covers all records below the offset `map_end`. `now_ms` is the time of the pass; tombstones that
    it is the first to cover get `horizon_ms`. Two sorted arrays of native 64-bit integers hold base offsets
    of batches: those whose header stays, and those whose first record stays because it has a remembered
    append id.
    """

    table: Table
    map_end: int
    now_ms: int
    horizon_ms: int
    kept_headers: bytes = b""
    kept_firsts: bytes = b""


_Remaining: TypeAlias = "tuple[bytes, int, int, bool, bool] | None"


def add_keys(
    data: Buffer,
    position: int,
    expected: int,
    upper: int,
    table: Table,
    count: int,
    count_max: int,
    first_offset: int,
) -> Mapped:
    """Enter the keys of all records from `first_offset` on into the table, which has `count` keys and takes
    `count_max`, fewer than it has slots."""
    return Mapped(*_loops.add_keys(data, position, expected, upper, table, count, count_max, first_offset))


def add_batch_keys(
    payload: Buffer, header: BatchHeader, table: Table, count: int, count_max: int, first_offset: int
) -> tuple[int, int, int]:
    """Like `add_keys`, for the decompressed records of one batch. Returns (number of keys, ENDED or FULL,
    offset of the first record that has no place)."""
    result: tuple[int, int, int] = _loops.add_batch_keys(
        payload, header.record_count, header.last_offset_delta, header.base_offset,
        table, count, count_max, first_offset,
    )  # fmt: skip
    return result


def filter_batches(
    data: Buffer, position: int, expected: int, upper: int, rules: Rules, previous_epoch: int
) -> Filtered:
    """What remains of the batches. `previous_epoch` is the leader epoch of the batch before them; a number
    below -1 if there is none."""
    return Filtered(
        *_loops.filter_batches(
            data, position, expected, upper, rules.table, rules.map_end,
            memoryview(rules.kept_headers), memoryview(rules.kept_firsts),
            previous_epoch, rules.now_ms, rules.horizon_ms,
        )
    )  # fmt: skip


def filter_records(payload: Buffer, header: BatchHeader, keeps_first: bool, rules: Rules) -> _Remaining:
    """What remains of the decompressed records of one batch: (their bytes, their number, the largest
    timestamp in ms, whether the batch gets a delete horizon, whether the record at the batch's base offset is
    among them). None if the batch stays as it is."""
    result: _Remaining = _loops.filter_records(
        payload, header.record_count, header.last_offset_delta, header.base_offset, header.base_timestamp,
        header.attributes, keeps_first, rules.table, rules.map_end, rules.now_ms, rules.horizon_ms,
    )  # fmt: skip
    return result


def filter_compressed(
    batch: bytes,
    header: BatchHeader,
    rules: Rules,
    previous_epoch: int,
    limit: int,
    unreadable: list[int] | None = None,
) -> bytes:
    """What remains of one compressed batch, in its own codec; no bytes if nothing does. A batch that cannot
    be decompressed to at most `limit` bytes stays as it is, and `unreadable` gets its base offset."""
    payload = _payload(batch, header, limit)
    if payload is None:
        if unreadable is not None:
            unreadable.append(header.base_offset)
        return batch
    is_kept = header.leader_epoch != previous_epoch or _contains(rules.kept_headers, header)
    keeps_first = header.has_append_id and _contains(rules.kept_firsts, header)
    result = filter_records(payload, header, keeps_first, rules)
    if result is None:
        return batch
    packed = compress(Compression(header.compression), result[0]) if result[1] else b""
    return rewritten(header, (packed, *result[1:]), rules.horizon_ms, is_kept=is_kept)


def add_compressed_keys(
    batch: bytes,
    header: BatchHeader,
    table: Table,
    count: int,
    count_max: int,
    first_offset: int,
    limit: int,
) -> tuple[int, int, int]:
    """Like `add_batch_keys`, for a compressed batch. Keys of a batch that cannot be decompressed to at most
    `limit` bytes are not entered."""
    payload = _payload(batch, header, limit)
    if payload is None:
        return count, ENDED, 0
    return add_batch_keys(payload, header, table, count, count_max, first_offset)


def _payload(batch: bytes, header: BatchHeader, limit: int) -> bytes | None:
    try:
        codec = Compression(header.compression)
        return bytes(decompress(codec, memoryview(batch)[HEADER_SIZE:], limit))
    except (DecompressionError, ValueError):  # Damaged or too large, or of an unknown codec.
        return None


def _contains(offsets: bytes, header: BatchHeader) -> bool:
    return contains(memoryview(offsets), header.base_offset)
