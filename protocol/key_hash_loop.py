"""The hashes by which Kafka chooses partitions, of one key and of a column, in Python.

`_key_hash.c` is the compiled equivalent. Both give the same values; `protocol.key_hash` uses the compiled one
if it is there.
"""

from __future__ import annotations

import struct
import sys
from array import array
from functools import lru_cache
from operator import mul

from holdfast_log.protocol.wire import Buffer

_POSITIVE = 0x7FFFFFFF
_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_REMEMBERED_MAX = 256
"""Bytes of a key whose hash is remembered: thousands of keys of any length would take any memory."""
_powers = array("L", [1])


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with the seed that Kafka's Java client uses, as an unsigned number."""
    return _remembered_murmur2(data) if len(data) <= _REMEMBERED_MAX else _murmur2(data)


def _murmur2(data: bytes) -> int:
    multiplier = 0x5BD1E995
    length = len(data)
    state = 0x9747B28C ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * multiplier & 0xFFFFFFFF
        word ^= word >> 24
        state = (state * multiplier & 0xFFFFFFFF) ^ (word * multiplier & 0xFFFFFFFF)
    rest = data[whole:]
    if rest:
        state ^= int.from_bytes(rest, "little")
        state = state * multiplier & 0xFFFFFFFF
    state ^= state >> 13
    state = state * multiplier & 0xFFFFFFFF
    return state ^ (state >> 15)


_remembered_murmur2 = lru_cache(maxsize=16 * 1024)(_murmur2)
"""Keys repeat; a look-up costs a tenth of the loop."""


def java_hash(text: str) -> int:
    """Java's String.hashCode, computed over UTF-16 code units, as an unsigned number."""
    units = array("H", text.encode(_UTF_16, "surrogatepass"))
    # Each unit times a power of 31, without a step of Python's for it: a name has up to 32 KB.
    number: int = sum(map(mul, reversed(units), _powers_of_31(len(units))))
    return number & 0xFFFFFFFF


def _powers_of_31(count: int) -> array[int]:
    """At least so many, from the first one on, each modulo 2**32."""
    while len(_powers) < count:
        _powers.append(_powers[-1] * 31 & 0xFFFFFFFF)
    return _powers


def places(
    ends: Buffer,
    data: Buffer,
    valid: Buffer | None,
    start: int,
    rows: int,
    partitions: int,
    without_key: int,
) -> bytes:
    """The partition of each of `rows` keys of an Arrow column from row `start` on, as int32 numbers.

    The column's keys are in `data`; key n ends where key n + 1 begins, at the int32 number n + 1 of `ends`.
    Bit n of `valid` is 0 if row n has no key; None: all have one. A row without a key gets `without_key`.
    Raises ValueError if the buffers are shorter than that.
    """
    if partitions < 1 or start < 0 or rows < 0 or len(memoryview(ends).cast("B")) // 4 < start + rows + 1:
        raise ValueError("a column ends before its rows do")
    if valid is not None and len(valid) < (start + rows + 7) // 8:
        raise ValueError("a column ends before its rows do")
    offsets = memoryview(ends).cast("B")[4 * start : 4 * (start + rows + 1)].cast("i")
    found = array("i", [without_key]) * rows
    for row in range(rows):
        number = start + row
        if valid is not None and not memoryview(valid)[number >> 3] >> (number & 7) & 1:
            continue
        begin, end = offsets[row], offsets[row + 1]
        if begin < 0 or end < begin or end > len(data):
            raise ValueError("a key ends outside the data of its column")
        found[row] = (murmur2(bytes(data[begin:end])) & _POSITIVE) % partitions
    return found.tobytes()
