"""Checks the records of a batch, before a broker appends them, and finds one by its timestamp.

Readers decode what a broker has acknowledged: one record that cannot be decoded stops every reader of the
partition at its offset. The checks are those of Kafka's LogValidator. The records fill the batch exactly,
each fills its length exactly, their offset deltas are 0, 1, 2, ..., and every number has the size that
Kafka's readers accept.

No object is made for a record. The loops are in the compiled `protocol._record_validation` if it is
installed, else here; the environment variable HOLDFAST_PURE_PYTHON selects the latter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from holdfast_log.protocol.alike_records import ALIKE_MIN, pass_alike
from holdfast_log.protocol.batches import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.wire import Buffer

MISSING_KEYS_MAX = 1000
"""Maximum number of records without a key that a verdict names."""
_INT64_MAX = 2**63 - 1
_TWO_BYTES_MAX = (1 << 14) - 1
"""The largest number that a varint of two bytes has."""
_HEADER = struct.Struct(">qi4xB6xi8xq18x")
"""Base offset, length, magic, last offset delta and largest timestamp of a batch."""
_DAMAGED = "the records of a batch are damaged"


class RecordsVerdict(NamedTuple):
    """What is found in the records of a batch.

    `reason` says what is wrong with the record at this index; -1: with the batch as a whole. It is None if
    nothing is wrong. `most` is the largest timestamp in ms, -1 if there is none, and `most_at` its record;
    `least` is the smallest one that is not negative. `missing_keys` is the number of records without a key,
    and `missing` has the indexes of the first of them.
    """

    record: int
    reason: str | None
    most: int
    most_at: int
    least: int
    least_at: int
    missing_keys: int
    missing: tuple[int, ...]


_Extremes: TypeAlias = tuple[int, int, int, int]
"""The four fields of a verdict about timestamps, while they are looked for."""
_NO_EXTREMES = -1, -1, _INT64_MAX, -1

# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__


class _Fault(Exception):
    """The reason why a record is refused."""


def validate_in_python(data: Buffer, record_count: int, base_timestamp: int) -> RecordsVerdict:
    """Check the encoded records of a batch, decompressed. Only the first fault is named."""
    size = len(data)
    missing: list[int] = []
    position, index, missing_keys = 0, 0, 0
    extremes: _Extremes = _NO_EXTREMES
    reason = None
    try:
        while record_count - index >= ALIKE_MIN:
            alike = pass_alike(data, position, index, record_count, base_timestamp)
            if alike is None:
                break
            start = index
            position, index, has_keys, most, most_at, least, least_at = alike
            extremes = (
                _with(_with(extremes, most, most_at), least, least_at)
                if start
                else (most, most_at, least, least_at)  # None of them is negative.
            )
            if not has_keys:
                missing_keys += index - start
                missing.extend(range(start, min(index, MISSING_KEYS_MAX)))
        while index < record_count:
            position, index, missing_keys, extremes = _pass_usual(
                data, position, index, record_count, base_timestamp, extremes, missing_keys, missing
            )
            if index >= record_count:
                break
            position, timestamp, has_key = _check_record(data, position, size, index, base_timestamp)
            extremes = _with(extremes, timestamp, index)
            if not has_key:
                missing_keys += 1
                if missing_keys <= MISSING_KEYS_MAX:
                    missing.append(index)
            index += 1
        index = -1
        if position != size:
            raise _Fault("bytes follow the last record")
    except _Fault as fault:
        reason = str(fault)
    most, most_at, least, least_at = extremes
    if least_at < 0:
        least = -1
    return _new_tuple(
        RecordsVerdict, (index, reason, most, most_at, least, least_at, missing_keys, tuple(missing))
    )


def _with(extremes: _Extremes, timestamp: int, index: int) -> _Extremes:
    most, most_at, least, least_at = extremes
    if timestamp > most:
        most, most_at = timestamp, index
    if 0 <= timestamp < least:
        least, least_at = timestamp, index
    return most, most_at, least, least_at


def _pass_usual(
    data: Buffer,
    position: int,
    index: int,
    record_count: int,
    base_timestamp: int,
    extremes: _Extremes,
    missing_keys: int,
    missing: list[int],
) -> tuple[int, int, int, _Extremes]:
    """Pass the records from `index` on, at `position`, as long as they are sound, have no headers, and have
    numbers of one or two bytes. Returns where the next record is, its index, and the last three arguments
    with what was found; `_check_record` has to decide about that record. It takes a sixth of the time.

    One loop without a call, since it runs for each record that is produced. Nothing before the last check of
    a record is sure to lie within it. Positions only grow, so that check, of the last one, is one of all.
    """
    start, place = position, index << 1
    places = range(place, min(record_count << 1, _TWO_BYTES_MAX + 1), 2)
    known_delta = -1
    most, most_at, least, least_at = extremes
    try:
        for place in places:
            length = data[position]
            if length > 0x7F:
                position += 1
                length += (data[position] << 7) - 0x80
                if length > _TWO_BYTES_MAX:
                    break
            last = position + (length >> 1)
            delta = data[position + 2]  # behind the attributes
            position += 3
            if delta > 0x7F:
                delta += (data[position] << 7) - 0x80
                position += 1
                if delta > _TWO_BYTES_MAX:
                    break
            found_place = data[position]
            position += 1
            if found_place > 0x7F:
                found_place += (data[position] << 7) - 0x80
                position += 1
            key = data[position]
            position += 1
            if key > 0x7F:
                key += (data[position] << 7) - 0x80
                position += 1
                if key > _TWO_BYTES_MAX:
                    break
            if key != 1:
                position += key >> 1
            value = data[position]
            position += 1
            if value > 0x7F:
                value += (data[position] << 7) - 0x80
                position += 1
                if value > _TWO_BYTES_MAX:
                    break
            if value != 1:
                if value & 1:
                    break
                position += value >> 1
            if position != last or found_place != place or data[position] or length & 1:
                break
            if key & 1 and key != 1:
                break
            if delta != known_delta:
                timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
                if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
                    break
                known_delta = delta
                if timestamp > most:
                    most, most_at = timestamp, place >> 1
                if 0 <= timestamp < least:
                    least, least_at = timestamp, place >> 1
            if key == 1:
                missing_keys += 1
                if missing_keys <= MISSING_KEYS_MAX:
                    missing.append(place >> 1)
            position += 1
            start = position
        else:
            place = max(place, places.stop)
    except IndexError:
        pass
    return start, place >> 1, missing_keys, (most, most_at, least, least_at)


def _check_record(
    data: Buffer, position: int, size: int, index: int, base_timestamp: int
) -> tuple[int, int, bool]:
    """Check the record at `position`. Returns the position after it, its timestamp, and whether it has a
    key."""
    if position == size:
        raise _Fault("the batch ends before this record")
    length, position = _varint(data, position, size, 32, "its length is cut off or has more than 32 bits")
    if length & 1:
        raise _Fault("its length is negative")
    end = position + (length >> 1)
    if end > size:
        raise _Fault("it ends beyond the batch")
    if end == position:
        raise _Fault("it is empty")
    # Behind the attributes, all undefined.
    delta, position = _varint(
        data, position + 1, end, 64, "its timestamp is cut off or has more than 64 bits"
    )
    timestamp = base_timestamp + _signed(delta)
    if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
        raise _Fault("its timestamp has more than 64 bits")
    delta, position = _varint(data, position, end, 32, "its offset is cut off or has more than 32 bits")
    if delta != index << 1:
        raise _Fault("its offset delta is not its place in the batch")
    key, position = _bytes(
        data, position, end, "its key ends beyond the record", "the length of its key is below -1"
    )
    _, position = _bytes(
        data, position, end, "its value ends beyond the record", "the length of its value is below -1"
    )
    position = _check_headers(data, position, end)
    if position != end:
        raise _Fault("bytes follow its last header")
    return position, timestamp, key is not None


def _check_headers(data: Buffer, position: int, end: int) -> int:
    count, position = _varint(
        data, position, end, 32, "the number of its headers is cut off or has more than 32 bits"
    )
    if count & 1:
        raise _Fault("the number of its headers is negative")
    for _ in range(count >> 1):
        key, position = _bytes(
            data, position, end, "a header's key ends beyond the record",
            "the length of a header's key is negative",
        )  # fmt: skip
        if key is None:
            raise _Fault("a header has no key")
        try:
            key.decode()
        except UnicodeDecodeError:
            raise _Fault("a header's key is not UTF-8") from None
        _, position = _bytes(
            data, position, end, "a header's value ends beyond the record",
            "the length of a header's value is below -1",
        )  # fmt: skip
    return position


def _bytes(data: Buffer, position: int, end: int, early: str, negative: str) -> tuple[bytes | None, int]:
    number, position = _varint(data, position, end, 32, early)
    if number == 1:
        return None, position
    if number & 1:
        raise _Fault(negative)
    after = position + (number >> 1)
    if after > end:
        raise _Fault(early)
    return bytes(data[position:after]), after


def _varint(data: Buffer, position: int, end: int, bits: int, refusal: str) -> tuple[int, int]:
    """The number at `position`, still in zigzag form, and the position after it."""
    number = shift = 0
    while position < end and shift < bits:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if number >> bits:
            break
        if byte < 0x80:
            return number, position
        shift += 7
    raise _Fault(refusal)


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def find_time_in_python(
    data: Buffer,
    record_count: int,
    base_timestamp: int,
    timestamp: int,
    max_timestamp: int,
    least_delta: int,
) -> tuple[int, int] | None:
    """The offset delta, from `least_delta` on, and the timestamp of the first record from `timestamp` to
    `max_timestamp` (ms); None if there is none. Raises ValueError if the records up to it are damaged."""
    position, size = 0, len(data)
    try:
        for _ in range(record_count):
            length, position = _varint(data, position, size, 32, _DAMAGED)
            end = position + (length >> 1)
            if length & 1 or not length or end > size:
                raise _Fault(_DAMAGED)
            number, position = _varint(data, position + 1, end, 64, _DAMAGED)
            found = base_timestamp + _signed(number)
            if not -_INT64_MAX - 1 <= found <= _INT64_MAX:
                raise _Fault(_DAMAGED)
            number, position = _varint(data, position, end, 32, _DAMAGED)
            delta = _signed(number)
            if timestamp <= found <= max_timestamp and delta >= least_delta:
                # As in C, where a negative delta means that there is none.
                return (delta, found) if delta >= 0 else None
            position = end
    except _Fault as fault:
        raise ValueError(str(fault)) from None
    return None


def find_batch_in_python(data: Buffer, timestamp: int, least_offset: int) -> int:
    """Position of the first batch with `timestamp` (ms) or a later one that does not end before
    `least_offset`, by the headers alone, or of the first that is no batch. Otherwise the position after the
    last batch whose header is in `data`, which may lie beyond it."""
    position, size = 0, len(data)
    while size - position >= _HEADER.size:
        base_offset, length, magic, last_offset_delta, max_timestamp = _HEADER.unpack_from(data, position)
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or base_offset < 0:
            break
        if max_timestamp >= timestamp and base_offset + last_offset_delta >= least_offset:
            break
        position += length + LOG_OVERHEAD
    return position


FindTime: TypeAlias = "Callable[[Buffer, int, int, int, int, int], tuple[int, int] | None]"

_compiled = extension("_record_validation")
find_batch: Callable[[Buffer, int, int], int] = (
    find_batch_in_python if _compiled is None else _compiled.find_batch
)
find_time: FindTime = find_time_in_python if _compiled is None else _compiled.find_time


def _validate_compiled(data: Buffer, record_count: int, base_timestamp: int) -> RecordsVerdict:
    assert _compiled is not None
    return _new_tuple(RecordsVerdict, _compiled.validate(data, record_count, base_timestamp))


validate: Callable[[Buffer, int, int], RecordsVerdict] = (
    validate_in_python if _compiled is None else _validate_compiled
)
"""See `validate_in_python`."""
