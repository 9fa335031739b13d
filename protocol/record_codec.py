"""The two loops over the records of a batch, in Python: one encodes all records, the other decodes them.

The layout of a record; every number except the attributes is a zigzag varint:

    length | attributes (int8) | timestamp delta | offset delta | key length, key | value length, value
    | header count | (key length, key, value length, value) of each header

Length -1 stands for null. `_record_codec.c` is the compiled equivalent, for installations with a compiler.
Both give the same values and the same errors; `protocol.records` uses the compiled one if it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any, TypeAlias, TypeVar

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_MIN_RECORD_SIZE = 7
"""Length, attributes, timestamp, offset, key, value and number of headers: at least one byte each."""


def zigzag_varint(number: int) -> bytes:
    """`number`, a signed integer of at most 64 bits, as Kafka's zigzag varint."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_VARINT_COUNT = 8192
_VARINTS = [bytes((twice,)) for twice in range(0, 0x80, 2)]
_VARINTS += [bytes((twice & 0x7F | 0x80, twice >> 7)) for twice in range(0x80, 2 * _VARINT_COUNT, 2)]
"""Encoded in advance: all varints of one or two bytes, which covers nearly every number in a record."""
_NULL = zigzag_varint(-1)
NO_HEADERS = zigzag_varint(0)
"""The end of a record without headers."""


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < _VARINT_COUNT else zigzag_varint(number)


def encode_headers(headers: Headers) -> bytes:
    """A record's headers encoded, with their number first: the end of the record."""
    parts = [_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (_varint(len(name)), name)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_varint(len(value)), value)
    return b"".join(parts)


def encode(
    prefix_size: int,
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    tails: list[bytes] | None,
) -> bytearray:
    """`prefix_size` zero bytes, then all records.

    The columns have the same length. `tails` has the encoded headers of each record; None if no record has
    any.
    """
    pieces = [bytes(prefix_size)]
    varints, known, slow = _VARINTS, _VARINT_COUNT, zigzag_varint
    base = last = timestamps[0] if timestamps else 0
    start = b"\0\0"  # attributes and timestamp delta, usually the same for many records
    ends: Iterable[bytes] = repeat(NO_HEADERS) if tails is None else tails
    for delta, (timestamp, key, value, tail) in enumerate(zip(timestamps, keys, values, ends, strict=False)):
        if timestamp != last:
            start = b"\0" + _varint(timestamp - base)
            last = timestamp
        offset = varints[delta] if delta < known else slow(delta)
        if key is None:
            key, key_length, size = b"", _NULL, 0
        else:
            size = len(key)
            key_length = varints[size] if size < known else slow(size)
        if value is None:
            value, value_length = b"", _NULL
        else:
            length = len(value)
            value_length = varints[length] if length < known else slow(length)
            size += length
        size += len(start) + len(offset) + len(key_length) + len(value_length) + len(tail)
        total = varints[size] if size < known else slow(size)
        pieces += (total, start, offset, key_length, key, value_length, value, tail)
    return bytearray().join(pieces)


def decode(
    data: bytes, record_count: int, last_offset_delta: int, base_offset: int, base_timestamp: int
) -> tuple[list[int] | None, list[int], list[bytes | None], list[bytes | None], list[Headers] | None]:
    """Offsets, timestamps, keys, values and headers of `record_count` records, which must fill `data`
    exactly.

    Offsets are None if none is missing; headers are None if no record has any. Raises IndexError if the
    data ends before the records do, UnicodeDecodeError for a header key that is not UTF-8, and ValueError,
    with the reason, for any other damage.

    The loop is one function on purpose: with a call for each varint it takes 1.4 times as long. Its pattern
    for a varint: one byte, else two, else the general case.
    """
    if record_count > len(data) // _MIN_RECORD_SIZE:
        raise IndexError("the records of a batch end early")
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: dict[int, Headers] = {}
    sparse_offsets: list[int] = []
    is_sparse = record_count != last_offset_delta + 1
    position = 0
    last_delta = -1
    for index in range(record_count):
        # The length of the rest of the record.
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if number & 1:
            raise ValueError("the length of a record is negative")
        end = position + (number >> 1)

        # The attributes, all undefined, and the timestamp delta.
        position += 1
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        timestamps.append(base_timestamp + ((number >> 1) ^ -(number & 1)))

        # The offset delta.
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if is_sparse:
            delta = (number >> 1) ^ -(number & 1)
            if not last_delta < delta <= last_offset_delta:
                raise ValueError(f"offset delta {delta} after {last_delta}")
            sparse_offsets.append(base_offset + delta)
            last_delta = delta
        elif number != index + index:
            raise ValueError(f"offset delta {(number >> 1) ^ -(number & 1)} where {index} is due")

        # The key.
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if not number & 1:
            start = position
            position += number >> 1
            keys.append(data[start:position])
        elif number == 1:
            keys.append(None)
        else:
            raise ValueError("the length of a key is below -1")

        # The value.
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if not number & 1:
            start = position
            position += number >> 1
            values.append(data[start:position])
        elif number == 1:
            values.append(None)
        else:
            raise ValueError("the length of a value is below -1")

        # The headers.
        if data[position]:
            headers[index], position = _decode_headers(data, position)
        else:
            position += 1
        if position != end:
            raise ValueError(f"a record ends {position - end} bytes from where its length says")
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes after the last record of a batch")
    return (
        sparse_offsets if is_sparse else None,
        timestamps,
        keys,
        values,
        [headers.get(index, ()) for index in range(len(values))] if headers else None,
    )


_RowT = TypeVar("_RowT", bound="tuple[Any, ...]")


def rows(
    row: type[_RowT],
    topic: str,
    partition: int,
    offsets: list[int] | int,
    timestamps: list[int],
    keys: list[Any],
    values: list[Any],
    headers: list[Headers] | None,
    timestamp_type: object,
    leader_epoch: int,
) -> list[_RowT]:
    """The records of a batch as tuples of a class with the fields of `clients.message.ConsumerRecord`.

    `offsets` is the first one if none is missing. Raises ValueError for columns of different lengths.
    """
    size = len(values)
    columns = (timestamps, keys, *([] if headers is None else [headers]))
    if any(len(column) != size for column in columns) or (isinstance(offsets, list) and len(offsets) != size):
        raise ValueError("columns of different lengths")
    fields = zip(
        repeat(topic),
        repeat(partition),
        offsets if isinstance(offsets, list) else count(offsets),
        timestamps,
        keys,
        values,
        repeat(()) if headers is None else headers,
        repeat(timestamp_type),
        repeat(leader_epoch),
        strict=False,
    )
    # What `_make` of a named tuple does, without a Python call for each record.
    return list(map(partial(tuple.__new__, row), fields))


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    """The varint at `position`, still in zigzag form, and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            raise ValueError("a number of more than 64 bits")
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _decode_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _zigzag(data, position)
    if count & 1:
        raise ValueError("the number of a record's headers is negative")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        key, position = _decode_bytes(data, position)
        if key is None:
            raise ValueError("a record's header has no key")
        value, position = _decode_bytes(data, position)
        headers.append((key.decode(), value))
    return tuple(headers), position


def _decode_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    number, position = _zigzag(data, position)
    if number == 1:
        return None, position
    if number & 1:
        raise ValueError("the length in a record's header is below -1")
    end = position + (number >> 1)
    if end > len(data):
        raise IndexError
    return data[position:end], end
