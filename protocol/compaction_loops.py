"""The loops of log compaction over record batches, in Python.

`_compaction.c` is the compiled equivalent: both give the same table and the same bytes, and tests compare
them. `protocol.compaction` chooses one, and explains the table, the rules and the results.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple, TypeAlias

from holdfast_log.protocol.batches import (
    DELETE_HORIZON,
    HAS_APPEND_ID,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    has_valid_crc,
    read_header,
    write_header,
)
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.record_codec import zigzag_varint

DIGEST_BYTES = 16
SLOT_BYTES = 24
"""A slot of the table: the key's digest, and the offset of its last record plus one; 0 marks a free slot."""

ENDED = 0
COMPRESSED = 1
FULL = 2
DAMAGED = 3
MARKED = 4

_OFFSET = Struct("<Q")
_ROW = Struct("=qqq")
_COMPRESSION_MASK = 0x07
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)


class Malformed(Exception):
    """The records of a batch do not have the format; no reader can decode them."""


class _Record(NamedTuple):
    """One record: its bytes from `start` to `end`, those after its length from `body` on, and those of its
    timestamp delta from `timed` to `timed_end`."""

    start: int
    end: int
    body: int
    timed: int
    timed_end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


# The table ---------------------------------------------------------------------------------------------

Table: TypeAlias = bytearray | memoryview


def _slot_of(table: memoryview, digest: bytes) -> tuple[int, int]:
    """(position of the slot that has the digest, or would take it; the offset plus one in it)."""
    slots = len(table) // SLOT_BYTES
    number = int.from_bytes(digest[:8], "little") % slots
    while True:
        at = number * SLOT_BYTES
        (found,) = _OFFSET.unpack_from(table, at + DIGEST_BYTES)
        if not found or table[at : at + DIGEST_BYTES] == digest:
            return at, found
        number = (number + 1) % slots


def last_offset_of(table: Table, key: bytes) -> int:
    """The offset of the last record with a key; -1 if the table has no such key."""
    digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
    offset_after: int = _slot_of(memoryview(table), digest)[1]
    return offset_after - 1


def add_batch_keys(
    payload: bytes,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    table: Table,
    count: int,
    count_max: int,
    first_offset: int,
) -> tuple[int, int, int]:
    """See `protocol.compaction.add_batch_keys`."""
    try:
        records = list(_records(payload, record_count, last_offset_delta))
    except Malformed:
        return count, ENDED, 0
    view = memoryview(table)
    for record in records:
        offset = base_offset + record.offset_delta
        if record.key is None or offset < first_offset:
            continue
        digest = blake2b(record.key, digest_size=DIGEST_BYTES).digest()
        at, found = _slot_of(view, digest)
        if not found:
            if count >= count_max:
                return count, FULL, offset
            count += 1
            view[at : at + DIGEST_BYTES] = digest
        _OFFSET.pack_into(view, at + DIGEST_BYTES, offset + 1)
    return count, ENDED, 0


def add_keys(
    data: bytes,
    position: int,
    expected: int,
    upper: int,
    table: Table,
    count: int,
    count_max: int,
    first_offset: int,
) -> tuple[int, int, int, int, int]:
    """See `protocol.compaction.add_keys`."""
    view = memoryview(data)
    while True:
        header = _batch_at(view, position, expected, upper)
        if not isinstance(header, BatchHeader):
            return position, expected, count, header, 0
        if is_marked(header):
            return position, expected, count, MARKED, 0
        if header.last_offset >= first_offset:
            if header.compression:
                return position, expected, count, COMPRESSED, 0
            payload = bytes(view[position + HEADER_SIZE : header.end])
            count, status, offset = add_batch_keys(
                payload, header.record_count, header.last_offset_delta, header.base_offset,
                table, count, count_max, first_offset,
            )  # fmt: skip
            if status == FULL:
                return position, expected, count, FULL, offset
        position, expected = header.end, header.next_offset


# The filter --------------------------------------------------------------------------------------------


def filter_records(
    payload: bytes,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    attributes: int,
    keeps_first: bool,
    table: Table,
    map_end: int,
    now_ms: int,
    horizon_ms: int,
) -> tuple[bytes, int, int, bool, bool] | None:
    """See `protocol.compaction.filter_records`."""
    try:
        records = list(_records(payload, record_count, last_offset_delta))
    except Malformed:
        return None
    may_expire = base_offset + last_offset_delta < map_end
    has_horizon = bool(attributes & DELETE_HORIZON)
    is_expired = may_expire and has_horizon and base_timestamp <= now_ms
    view = memoryview(table)
    kept = []
    has_tombstone = False
    for record in records:
        if record.key is not None and not (keeps_first and not record.offset_delta):
            digest = blake2b(record.key, digest_size=DIGEST_BYTES).digest()
            if base_offset + record.offset_delta < _slot_of(view, digest)[1] - 1:
                continue
            if not record.has_value and is_expired:
                continue
        has_tombstone = has_tombstone or (record.key is not None and not record.has_value)
        kept.append(record)
    timestamps = [base_timestamp + record.timestamp_delta for record in kept]
    new_horizon = has_tombstone and may_expire and not has_horizon
    new_horizon = new_horizon and all(
        _fits(timestamp) and _fits(timestamp - horizon_ms) for timestamp in timestamps
    )
    if len(kept) == len(records) and records and not new_horizon:
        return None
    max_timestamp = max(filter(_fits, timestamps), default=NO_TIMESTAMP)
    pieces = []
    for record, timestamp in zip(kept, timestamps, strict=True):
        if new_horizon:
            delta = zigzag_varint(timestamp - horizon_ms)
            size = record.end - record.body - (record.timed_end - record.timed) + len(delta)
            pieces += [
                zigzag_varint(size), payload[record.body : record.timed], delta,
                payload[record.timed_end : record.end],
            ]  # fmt: skip
        else:
            pieces.append(payload[record.start : record.end])
    has_first = bool(kept) and kept[0].offset_delta == 0
    return b"".join(pieces), len(kept), max_timestamp, new_horizon, has_first


def filter_batches(
    data: bytes,
    position: int,
    expected: int,
    upper: int,
    table: Table,
    map_end: int,
    kept_headers: memoryview,
    kept_firsts: memoryview,
    previous_epoch: int,
    now_ms: int,
    horizon_ms: int,
) -> tuple[bytes, bytes, int, int, int, int, bool]:
    """See `protocol.compaction.filter_batches`."""
    view, start = memoryview(data), position
    output: list[bytes | memoryview] = []
    rows: list[bytes] = []
    while True:
        header = _batch_at(view, position, expected, upper)
        status = header if isinstance(header, int) else _left_to_caller(header)
        if status is not None or isinstance(header, int):
            remaining = b"".join(output)
            is_changed = remaining != bytes(view[start:position])
            return (
                remaining, b"".join(rows), position, expected, previous_epoch, status or ENDED, is_changed
            )  # fmt: skip
        batch: bytes | memoryview = view[position : header.end]
        is_kept = header.leader_epoch != previous_epoch or contains(kept_headers, header.base_offset)
        keeps_first = header.has_append_id and contains(kept_firsts, header.base_offset)
        result = filter_records(
            bytes(batch[HEADER_SIZE:]), header.record_count, header.last_offset_delta, header.base_offset,
            header.base_timestamp, header.attributes, keeps_first, table, map_end, now_ms, horizon_ms,
        )  # fmt: skip
        if result is not None:
            batch = rewritten(header, result, horizon_ms, is_kept=is_kept)
        previous_epoch = header.leader_epoch
        if len(batch):
            output.append(batch)
            rows.append(row_of(batch))
        position, expected = header.end, header.next_offset


def rewritten(
    header: BatchHeader, result: tuple[bytes, int, int, bool, bool], horizon_ms: int, *, is_kept: bool
) -> bytes:
    """The batch with the records that remain; if none do, its header alone if it `is_kept`, else nothing.

    `result` is that of `filter_records`, with the records compressed again in the batch's codec.
    """
    payload, record_count, max_timestamp, has_new_horizon, has_first = result
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if not record_count:
        if not is_kept:
            return b""
        payload, base_timestamp, max_timestamp = b"", NO_TIMESTAMP, NO_TIMESTAMP
        attributes &= ~(_COMPRESSION_MASK | DELETE_HORIZON)
    elif header.has_log_append_time:
        max_timestamp = header.max_timestamp
    if has_new_horizon:
        attributes |= DELETE_HORIZON
        base_timestamp = horizon_ms
    if not has_first:
        attributes &= ~HAS_APPEND_ID
    batch = bytearray(HEADER_SIZE) + payload
    write_header(
        batch,
        attributes=attributes,
        record_count=record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return bytes(batch)


def row_of(batch: bytes | memoryview) -> bytes:
    """A batch's row among the results of `filter_batches`."""
    header = read_header(batch)
    return _ROW.pack(header.last_offset, header.max_timestamp, header.size)


def contains(offsets: memoryview, offset: int) -> bool:
    """Whether a sorted array of 64-bit integers has `offset`."""
    numbers = offsets.cast("B").cast("q")
    index = bisect_left(numbers, offset)
    return index < len(numbers) and numbers[index] == offset


# Parsing -----------------------------------------------------------------------------------------------


def is_marked(header: BatchHeader) -> bool:
    """Whether a batch belongs to a transaction, or ends one."""
    return header.is_control or header.is_transactional


def _left_to_caller(header: BatchHeader) -> int | None:
    """The status with which the filter stops before a sound batch; None if it deals with it."""
    if is_marked(header):
        return MARKED
    return COMPRESSED if header.compression else None


def _batch_at(view: memoryview, position: int, expected: int, upper: int) -> BatchHeader | int:
    """The header of the sound batch at `position`; ENDED if the data end before it does, DAMAGED if no
    sound batch begins there whose offsets are at least `expected` and below `upper`."""
    if len(view) - position < HEADER_SIZE:
        return ENDED
    length = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
    if length < HEADER_SIZE - LOG_OVERHEAD or view[position + 16] != MAGIC:
        return DAMAGED
    if length + LOG_OVERHEAD > len(view) - position:
        return ENDED
    try:
        header = read_header(view, position)
    except BrokerError:
        return DAMAGED
    if header.last_offset_delta < 0 or not expected <= header.base_offset <= header.last_offset < upper:
        return DAMAGED
    return header if has_valid_crc(view, header) else DAMAGED


def _records(payload: bytes, record_count: int, last_offset_delta: int) -> Iterator[_Record]:
    """The records that fill `payload` exactly. Raises `Malformed`."""
    position, last_delta = 0, -1
    if record_count < 0:
        raise Malformed
    for _ in range(record_count):
        start = position
        length, body = _number(payload, position)
        end = body + length
        timestamp_delta, timed_end = _number(payload, body + 1)
        offset_delta, position = _number(payload, timed_end)
        if length < 0 or not last_delta < offset_delta <= last_offset_delta:
            raise Malformed
        last_delta = offset_delta
        key, position = _piece(payload, position, least=-1)
        value, position = _piece(payload, position, least=-1)
        headers, position = _number(payload, position)
        if headers < 0:
            raise Malformed
        for _ in range(headers):
            _, position = _piece(payload, position, least=0)
            _, position = _piece(payload, position, least=-1)
        if position != end:
            raise Malformed
        yield _Record(
            start, end, body, body + 1, timed_end, timestamp_delta, offset_delta, key, value is not None
        )
    if position != len(payload):
        raise Malformed


def _number(payload: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(payload):
            raise Malformed
        byte = payload[position]
        position += 1
        if shift == 63 and byte > 1:
            raise Malformed
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _piece(payload: bytes, position: int, *, least: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; None for length -1."""
    length, position = _number(payload, position)
    if length < least or length > len(payload) - position:
        raise Malformed
    return (None if length < 0 else payload[position : position + length]), position + max(0, length)


def _fits(number: int) -> bool:
    return _INT64_MIN <= number <= _INT64_MAX
