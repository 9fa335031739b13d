"""The loop from the records of a batch to the buffers of Arrow columns, in Python.

`_arrow_columns.c` is the compiled equivalent: both give the same buffers and the same errors, and tests
compare them. `protocol.arrow_columns` chooses one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any, TypeAlias

from holdfast_log.protocol.batches import TimestampType
from holdfast_log.protocol.record_codec import Headers, decode
from holdfast_log.protocol.wire import Buffer

LIMIT_MAX = 2**31 - 1
"""The largest limit of rows and of bytes: Arrow says with 32 bits where a key, value or header ends."""

_HEADER_ENDS = 8
"""Bytes that a header takes besides those of its key and value."""
_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1

BinaryParts: TypeAlias = tuple[int, Buffer, Buffer, Buffer]
"""A column of bytes: number of nulls, validity bits, ends of the items, and the bytes of all items."""
HeaderParts: TypeAlias = tuple[int, Buffer, Buffer, int, Buffer, Buffer, BinaryParts]
"""Headers: number of records without any, validity bits of the lists, ends of the lists, number of headers,
ends and bytes of their keys, and their values."""
ColumnParts: TypeAlias = tuple[int, BinaryParts, BinaryParts, Buffer, Buffer, Buffer, HeaderParts | None]
"""Number of rows, keys, values, offsets (64 bits), timestamps (64 bits, microseconds since the epoch),
timestamp types (32 bits), and the headers unless they are left out."""
Rest: TypeAlias = Any
"""What remains of a batch when the columns are full; only the loop that made it can read it."""


@dataclass(slots=True)
class _Wanted:
    """Checked records of a batch, a column for each field, and how many of them were added."""

    offsets: Sequence[int]
    timestamps: list[int]
    """In microseconds."""
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: Sequence[Headers]
    """Empty if they are left out."""
    ends: list[int]
    """The size of each record together with those before it."""
    added: int = 0


class ColumnBuffers:
    """Columns that grow until they are full: at most `row_limit` rows, and `byte_limit` bytes of keys, values
    and headers.

    A record that is larger than `byte_limit` is the only row. A header counts 8 bytes more than its key and
    value have. All numbers have the machine's byte order; "ends" are 32-bit numbers after a zero. Raises
    ValueError for limits outside 1 to `LIMIT_MAX`.
    """

    def __init__(self, has_headers: bool, row_limit: int, byte_limit: int) -> None:
        if not (1 <= row_limit <= LIMIT_MAX and 1 <= byte_limit <= LIMIT_MAX):
            raise ValueError(f"the limits of rows and bytes are from 1 to {LIMIT_MAX}")
        self._has_headers = has_headers
        self._row_limit = row_limit
        self._byte_limit = byte_limit
        self._begin()

    def _begin(self) -> None:
        self._size = 0
        self._keys = _Binary()
        self._values = _Binary()
        self._offsets = array("q")
        self._timestamps = array("q")
        self._timestamp_types = array("i")
        self._lists = _Items()
        self._names = _Binary()
        self._contents = _Binary()

    def __len__(self) -> int:
        return len(self._offsets)

    def add(
        self,
        data: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        timestamp_type: int,
        append_time: int,
        start: int,
        end: int,
        rest: Rest = None,
    ) -> Rest:
        """Add the records of a batch whose offsets are in [start, end).

        `data` has all records of the batch, decompressed. `append_time` (ms) is the timestamp of each record
        if the type is LOG_APPEND_TIME. Returns None after the last record. If the columns are full, returns
        what remains, which must be passed with the same arguments after `take`.

        Before it adds any record, it raises for damage in any of them what `protocol.record_codec.decode`
        raises, and OverflowError for a wanted record whose timestamp or size Arrow cannot hold. Raises
        ValueError for offsets of more than 64 bits.
        """
        if rest is None:
            if last_offset_delta > min(LIMIT_MAX, _INT64_MAX - base_offset):
                raise ValueError("the place or the offsets of the records are impossible")
            append_ms = append_time if timestamp_type == TimestampType.LOG_APPEND_TIME else None
            decoded = decode(bytes(data), record_count, last_offset_delta, base_offset, base_timestamp)
            rest = self._wanted(decoded, base_offset, append_ms, start, end)
        self._append(rest, timestamp_type)
        return rest if rest.added < len(rest.offsets) else None

    def _wanted(
        self, decoded: tuple[Any, ...], base_offset: int, append_ms: int | None, start: int, end: int
    ) -> _Wanted:
        offsets, timestamps, keys, values, headers = decoded
        if offsets is None:
            offsets = range(base_offset, base_offset + len(values))
        low, high = bisect_left(offsets, start), bisect_left(offsets, end)
        rows = slice(low, max(low, high))
        offsets, keys, values = offsets[rows], keys[rows], values[rows]
        if append_ms is not None:
            timestamps = [append_ms * 1000] * len(offsets)
        else:
            timestamps = [1000 * timestamp for timestamp in timestamps[rows]]
        sizes: Iterable[int] = map(add, _sizes(keys), _sizes(values))
        lists: Sequence[Headers] = ()
        if self._has_headers:
            lists = [()] * len(offsets) if headers is None else headers[rows]
            sizes = map(add, sizes, map(_header_size, lists))
        wanted = _Wanted(offsets, timestamps, keys, values, lists, list(accumulate(sizes)))
        _refuse_what_is_too_large(wanted)
        return wanted

    def _append(self, rest: _Wanted, timestamp_type: int) -> None:
        """Add as many records as have room, but at least one if there is no row yet."""
        first = rest.added
        before = rest.ends[first - 1] if first else 0
        by_bytes = bisect_right(rest.ends, before + self._byte_limit - self._size)
        last = min(by_bytes, first + self._row_limit - len(self), len(rest.offsets))
        last = max(last, first if len(self) else min(first + 1, len(rest.offsets)))
        if last == first:
            return
        self._keys.extend(rest.keys[first:last])
        self._values.extend(rest.values[first:last])
        self._offsets.extend(rest.offsets[first:last])
        self._timestamps.extend(rest.timestamps[first:last])
        self._timestamp_types.extend([timestamp_type] * (last - first))
        if rest.headers:
            lists = rest.headers[first:last]
            ends = accumulate(map(len, lists), initial=self._names.count)
            next(ends)
            self._lists.extend(map(bool, lists), ends)
            self._names.extend([name.encode() for headers in lists for name, _ in headers])
            self._contents.extend([content for headers in lists for _, content in headers])
        self._size += rest.ends[last - 1] - before
        rest.added = last

    def take(self) -> ColumnParts:
        """Return the columns, and begin new ones without rows."""
        headers: HeaderParts | None = None
        if self._has_headers:
            nulls, validity, ends = self._lists.parts()
            _, _, name_ends, names = self._names.parts()
            headers = nulls, validity, ends, self._names.count, name_ends, names, self._contents.parts()
        parts: ColumnParts = (
            len(self._offsets),
            self._keys.parts(),
            self._values.parts(),
            _view(self._offsets),
            _view(self._timestamps),
            _view(self._timestamp_types),
            headers,
        )
        self._begin()
        return parts


class _Items:
    """Which items of a column are not null, and where they end."""

    __slots__ = ("_ends", "_marks")

    def __init__(self) -> None:
        self._marks = bytearray()  # b"1", or b"0" for null
        self._ends = array("i", [0])

    @property
    def count(self) -> int:
        return len(self._marks)

    def extend(self, marks: Iterable[bool], ends: Iterable[int]) -> None:
        self._marks += bytes([49 if is_valid else 48 for is_valid in marks])
        self._ends.extend(ends)

    def parts(self) -> tuple[int, Buffer, Buffer]:
        count = len(self._marks)
        self._marks.reverse()
        bits = int(self._marks or b"0", 2).to_bytes((count + 7) // 8, "little")
        return self._marks.count(b"0"), bits, _view(self._ends)


class _Binary:
    """A column of bytes, any of which may be null."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._items = _Items()
        self._bytes = bytearray()

    @property
    def count(self) -> int:
        return self._items.count

    def extend(self, items: Sequence[bytes | None]) -> None:
        ends = accumulate(_sizes(items), initial=len(self._bytes))
        next(ends)
        self._items.extend([item is not None for item in items], ends)
        self._bytes += b"".join([item for item in items if item])

    def parts(self) -> BinaryParts:
        return *self._items.parts(), self._bytes


def _view(numbers: array[int]) -> Buffer:
    """The bytes of numbers, shared, which must not grow afterwards."""
    return memoryview(numbers).cast("B") if numbers else b""


def _sizes(items: Iterable[bytes | None]) -> list[int]:
    return [len(item or b"") for item in items]


def _header_size(headers: Headers) -> int:
    if not headers:
        return 0
    return sum(len(name.encode()) + len(content or b"") + _HEADER_ENDS for name, content in headers)


def _refuse_what_is_too_large(wanted: _Wanted) -> None:
    times = wanted.timestamps or [0]
    if wanted.ends[-1:] <= [LIMIT_MAX] and min(times) >= _INT64_MIN and max(times) <= _INT64_MAX:
        return
    before = 0
    for offset, timestamp, end in zip(wanted.offsets, wanted.timestamps, wanted.ends, strict=True):
        if end - before > LIMIT_MAX:
            raise OverflowError(
                f"the record at offset {offset} has {end - before} bytes, and {LIMIT_MAX} are possible"
            )
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise OverflowError(f"the timestamp at offset {offset} does not fit in 64 bits of microseconds")
        before = end
