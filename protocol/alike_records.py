"""Passes records of one shape without a step for each, where nothing is compiled.

`protocol.record_validation` tries this first. Records of one size whose fields are equally long have each
number at the same place. The bytes at one place of all records are one slice of the batch, whose step is that
size, and are compared in one call. Many producers write such records; of others, the first and the last one
usually show that they are not alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from holdfast_log.protocol.wire import Buffer

_BYTES = [bytes((byte,)) for byte in range(256)]
_INT64_MAX = 2**63 - 1
_TWO_BYTES_MAX = (1 << 14) - 1
"""The largest number that a varint of two bytes has. Numbers are doubled (zigzag)."""
_DELTA_MAX = _TWO_BYTES_MAX >> 1
"""The largest timestamp delta of two bytes, in ms."""
_SHORT_PLACES = 64
"""Number of offset deltas whose varints have one byte."""
_PLACES = (_TWO_BYTES_MAX + 1) >> 1
"""Number of offset deltas whose varints have one or two bytes."""
ALIKE_MIN = 8
"""Fewer records are passed faster one by one."""

# The first bytes of varints of numbers that are not negative: of one byte, and of several.
_ONLY_BYTES = bytes(range(0, 0x80, 2))
_FIRST_BYTES = bytes(range(0x80, 0x100, 2))
# The bytes of the offset deltas from 64 on. Those of the earlier ones are _ONLY_BYTES.
_FIRST_OF_PLACES = _FIRST_BYTES * 127
_SECOND_OF_PLACES = bytes(second for second in range(1, 0x80) for _ in range(64))

AlikeRecords: TypeAlias = tuple[int, int, bool, int, int, int, int]
"""Sound records: the position after the last of them, its index + 1, whether they have keys; the largest
timestamp in ms and the index of the first record that has it, and the same of the smallest."""


def pass_alike(
    data: Buffer, position: int, index: int, record_count: int, base_timestamp: int
) -> AlikeRecords | None:
    """Pass the records from `index` on, at `position`: those whose offset deltas have as many bytes as
    that of the first. None if they are not alike, or not usual (headers, numbers of more than two bytes,
    timestamps before the batch's): then nothing is known about them."""
    is_short = index < _SHORT_PLACES
    count = min(record_count, _SHORT_PLACES if is_short else _PLACES) - index
    if count < ALIKE_MIN or not 0 <= base_timestamp <= _INT64_MAX - _DELTA_MAX:
        return None
    try:
        # What the first record says. The numbers of two bytes are those that take a second place.
        same_at = [position]
        at, length = position + 1, data[position]
        if length > 0x7F:
            length += (data[at] << 7) - 0x80
            same_at.append(at)
            at += 1
        size = at - position + (length >> 1)
        end, time_at = position + size * count, at + 1  # behind the attributes
        if end > len(data) or data[end - size] != data[position] or data[end - 1]:
            return None
        place_at = time_at + 1 if data[time_at] < 0x80 else time_at + 2
        at = place_at + 1 if is_short else place_at + 2
        same_at.append(at)
        key = data[at]
        at += 1
        if key > 0x7F:
            key += (data[at] << 7) - 0x80
            same_at.append(at)
            at += 1
        if key != 1:
            at += key >> 1
        same_at.append(at)
        value = data[at]
        at += 1
        if value > 0x7F:
            value += (data[at] << 7) - 0x80
            same_at.append(at)
            at += 1
        if value != 1:
            at += value >> 1
        same_at.append(at)  # the number of headers; that of the last record is 0
    except IndexError:
        return None
    if at != position + size - 1 or max(length, key, value) > _TWO_BYTES_MAX:
        return None
    if length & 1 or (key & 1 and key != 1) or (value & 1 and value != 1):
        return None
    # Whether all of them are like it, and in order.
    view = data if type(data) is memoryview else memoryview(data)
    for at in same_at:
        if view[at:end:size] != _BYTES[view[at]] * count:
            return None
    if is_short:
        if view[place_at:end:size] != _ONLY_BYTES[index : index + count]:
            return None
    else:
        first = index - _SHORT_PLACES
        if (
            view[place_at:end:size] != _FIRST_OF_PLACES[first : first + count]
            or view[place_at + 1 : end : size] != _SECOND_OF_PLACES[first : first + count]
        ):
            return None
    deltas = _deltas(view, time_at, place_at, end, size)
    if deltas is None:
        return None
    if len(deltas) == 1:
        timestamp = base_timestamp + (deltas[0] >> 1)
        return end, index + count, key != 1, timestamp, index, timestamp, index
    most, least = max(deltas), min(deltas)
    return (
        end,
        index + count,
        key != 1,
        base_timestamp + (most >> 1),
        index + deltas.index(most),
        base_timestamp + (least >> 1),
        index + deltas.index(least),
    )


def _deltas(view: memoryview, at: int, after: int, end: int, size: int) -> Sequence[int] | None:
    """The timestamp deltas, doubled, whose bytes are from `at` to `after` in each record; only the first one,
    if all are the same. None if one of them is negative, or has another number of bytes."""
    firsts = view[at:end:size].tobytes()
    if after - at == 1:
        if firsts.count(firsts[0]) == len(firsts):
            firsts = firsts[:1]
        return None if firsts.translate(None, _ONLY_BYTES) else firsts
    seconds = view[at + 1 : end : size].tobytes()
    if firsts.translate(None, _FIRST_BYTES) or not seconds.isascii():
        return None
    return [(second << 7) + first - 0x80 for first, second in zip(firsts, seconds, strict=True)]
