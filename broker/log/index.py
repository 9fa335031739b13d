"""The two indexes of a segment: offset → position, and timestamp → offset, in Kafka's file formats.

Both are sorted files of fixed-size pairs. New pairs are kept in memory and written many at a time: an append
to the log costs no system call for its index. Entries lost in a crash are rebuilt from the log.

Kafka creates an index file at its maximum size, full of zeros, and truncates it when the segment is closed.
After an unclean stop the zeros are still there; they are recognised and ignored.

A disk may change an index without an error, so every entry is checked before it is used. Loading a log checks
that entries ascend and lie within the log; a segment compares each entry that it uses with the batch to which
the entry points. A wrong index is rebuilt from the log.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import le, lt
from typing import NamedTuple

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.index_entries import Pair
from holdfast_log.broker.log.open_files import OpenFiles

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
WRITE_EVERY = 512
"""Number of entries that are written to an index file together."""
_WINDOW_ENTRIES = 512
_CHECKED_AT_ONCE = 8192
"""Number of entries in memory while an index is checked, however many it has."""


class _PairFile:
    """A sorted file of pairs; the newest pairs are still in memory. Methods raise OSError from the disk, and
    `SuspectSegment` if the file has lost entries."""

    __slots__ = ("_entry", "_files", "_first", "_last_written", "_max_count", "_second", "_written", "path")

    def __init__(self, files: OpenFiles, path: str, entry: struct.Struct, max_bytes: int) -> None:
        self.path = path
        self._files = files
        self._entry = entry
        self._max_count = max_bytes // entry.size
        self._written: int | None = None  # Entries in the file; None until first needed.
        self._last_written: Pair | None = None  # The last entry of the file; None if it is to be read.
        self._first: list[int] = []
        self._second: list[int] = []

    def __len__(self) -> int:
        written = self._count_written() if self._written is None else self._written
        return written + len(self._first)

    @property
    def is_full(self) -> bool:
        written = self._written
        count = len(self) if written is None else written + len(self._first)
        return count >= self._max_count

    @property
    def is_ahead(self) -> bool:
        """Whether entries are only in memory."""
        return bool(self._first)

    def use_files(self, files: OpenFiles) -> None:
        """Open the file through `files` from now on."""
        self._files = files

    def begin_empty(self) -> None:
        """Start without entries and without a file access: the file does not exist, or is empty."""
        self._last_written = None
        self._written = 0

    def create(self) -> None:
        """Create the file, which does not exist, without entries: Kafka's tools expect it beside every
        log."""
        self._files.create(self.path)
        self._written = 0

    def pair(self, number: int) -> Pair:
        """Entry `number`, from 0 on."""
        written = self._count_written() if self._written is None else self._written
        if number >= written:
            return self._first[number - written], self._second[number - written]
        return _as_pair(self._entry.unpack(self._read(number, 1)))

    def _read(self, number: int, count: int) -> bytes:
        """The bytes of `count` entries of the file."""
        size = self._entry.size
        data = self._files.get(self.path).pread(count * size, number * size)
        if len(data) < count * size:
            raise SuspectSegment(f"{self.path} has lost entries")
        return data

    def pairs(self) -> list[Pair]:
        """All entries."""
        written = self._count_written() if self._written is None else self._written
        data = self._read(0, written) if written else b""
        return [
            *map(_as_pair, self._entry.iter_unpack(data)),
            *zip(self._first, self._second, strict=True),
        ]

    def _windows(self) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """The two columns of the entries in the file, a part at a time."""
        written = self._count_written() if self._written is None else self._written
        for start in range(0, written, _CHECKED_AT_ONCE):
            data = self._read(start, min(_CHECKED_AT_ONCE, written - start))
            first, second = zip(*self._entry.iter_unpack(data), strict=True)
            yield first, second

    def reload(self) -> None:
        """Forget the open file and the entries in memory: another file, with all entries, has replaced it."""
        self._files.forget(self.path)
        self._written = self._last_written = None
        self._first.clear()
        self._second.clear()

    def last(self) -> Pair | None:
        if self._first:
            return self._first[-1], self._second[-1]
        if self._last_written is not None:
            return self._last_written
        count = len(self)
        return self.pair(count - 1) if count else None

    def write(self, *, create: bool = False) -> None:
        """Write the entries that are only in memory; with `create`, create the file even without any."""
        if not self._first and not create:
            return
        written = self._count_written() if self._written is None else self._written
        size = self._entry.size
        file = self._files.get(self.path, create=True)
        if file.size() != written * size:
            file.truncate(written * size)  # Kafka's zeros, or half an entry.
        pairs = zip(self._first, self._second, strict=True)
        file.append([b"".join([self._entry.pack(first, second) for first, second in pairs])])
        self._written = written + len(self._first)
        if self._first:
            self._last_written = self._first[-1], self._second[-1]
        self._first.clear()
        self._second.clear()

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        written = self._count_written() if self._written is None else self._written
        if count >= written:
            del self._first[count - written :]
            del self._second[count - written :]
            return
        self._last_written = None
        self._first.clear()
        self._second.clear()
        self._files.get(self.path).truncate(count * self._entry.size)
        self._written = count

    def floor(self, column: int, target: int) -> int:
        """Number of the last entry whose value in `column` is at most `target`; -1 if there is none."""
        written = self._count_written() if self._written is None else self._written
        memory = self._second if column else self._first
        if memory and memory[0] <= target:
            return written + bisect_right(memory, target) - 1
        low, high = 0, written
        while low < high:
            middle = (low + high) // 2
            if self.pair(middle)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _count_written(self) -> int:
        if not self._files.disk.exists(self.path):
            self._written = 0
            return 0
        count = self._files.get(self.path).size() // self._entry.size
        # Entries ascend, so only the first may be all zeros. A later zero entry is the start of the part that
        # Kafka reserved but never wrote.
        self._written = count
        low, high = min(1, count), count
        while low < high:
            middle = (low + high) // 2
            if self.pair(middle) != (0, 0):
                low = middle + 1
            else:
                high = middle
        self._written = 0 if low == 1 and count > 1 and self.pair(0) == (0, 0) else low
        return self._written


def _as_pair(values: tuple[int, ...]) -> Pair:
    return values[0], values[1]


class _Window(NamedTuple):
    """Consecutive entries of an offset index, as last read from the file."""

    offsets: array[int]
    positions: array[int]


class OffsetIndex(_PairFile):
    """`.index`: (relative offset of a batch's last record, position of the batch)."""

    __slots__ = ("_window", "base_offset")

    def __init__(self, files: OpenFiles, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, path, _OFFSET_ENTRY, max_bytes)
        self.base_offset = base_offset
        self._window: _Window | None = None

    def append(self, last_offset: int, position: int) -> None:
        self._first.append(last_offset - self.base_offset)
        self._second.append(position)
        if len(self._first) >= WRITE_EVERY:
            self.write()

    def position_below(self, offset: int) -> int:
        """The last known position that is not after the batch with `offset`."""
        return self._position(0, offset - self.base_offset)

    def position_up_to(self, position: int) -> int:
        """The last known position of a batch at or before `position`."""
        return self._position(1, position)

    def _position(self, column: int, target: int) -> int:
        """The position in the last entry whose value in `column` is at most `target`; 0 if there is none."""
        window = self._window
        if window is not None and window[column][0] <= target < window[column][-1]:
            return window.positions[bisect_right(window[column], target) - 1]
        number = self.floor(column, target)
        if number < 0:
            return 0
        if number < len(self) - len(self._first):
            # Start at this entry: a reader that continues from it needs the next entries.
            self._window = window = self._window_from(number)
            return window.positions[0]
        return self.pair(number)[1]

    def _window_from(self, number: int) -> _Window:
        written = len(self) - len(self._first)
        values = array("i", self._read(number, min(_WINDOW_ENTRIES, written - number)))
        if sys.byteorder == "little":
            values.byteswap()
        return _Window(values[0::2], values[1::2])

    def release(self) -> None:
        """Drop from memory the entries that are in the file."""
        self._window = None

    def truncate(self, count: int) -> None:
        self._window = None
        super().truncate(count)

    def truncate_to(self, end_offset: int, size: int) -> None:
        """Remove the entries of batches at or after `end_offset`; the log is truncated to `size` bytes."""
        count = self.floor(0, end_offset - self.base_offset - 1) + 1
        while count and self.pair(count - 1)[1] >= size:
            count -= 1
        self.truncate(count)

    def reload(self) -> None:
        self._window = None
        super().reload()

    def is_sound(self, log_size: int, next_offset: int) -> bool:
        """Whether all entries ascend and are possible in a log of `log_size` bytes up to `next_offset`. Reads
        the whole file."""
        before = (0, 0)
        for values in self._windows():
            offsets, positions = values
            if not (
                before[0] < offsets[0]
                and before[1] < positions[0]
                and all(map(lt, offsets, islice(offsets, 1, None)))
                and all(map(lt, positions, islice(positions, 1, None)))
            ):
                return False
            before = offsets[-1], positions[-1]
        return before == (0, 0) or (before[0] < next_offset - self.base_offset and before[1] < log_size)


class TimeIndex(_PairFile):
    """`.timeindex`: (largest timestamp so far, relative offset of the last record of its batch)."""

    __slots__ = ("base_offset",)

    def __init__(self, files: OpenFiles, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, path, _TIME_ENTRY, max_bytes)
        self.base_offset = base_offset

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry for the largest timestamp so far. No effect if the index has that timestamp."""
        newest = self._first
        if newest:
            is_later = timestamp > newest[-1]
        else:
            last = self.last()
            is_later = last is None or timestamp > last[0]
        if is_later:
            newest.append(timestamp)
            self._second.append(offset - self.base_offset)
            if len(newest) >= WRITE_EVERY:
                self.write()

    def truncate_to(self, end_offset: int) -> None:
        """Remove the entries of records at or after `end_offset`."""
        self.truncate(self.floor(1, end_offset - self.base_offset - 1) + 1)

    def entry_below(self, timestamp: int) -> Pair | None:
        """(largest timestamp so far, offset of the last record of its batch) of the last entry that has
        `timestamp` or an earlier one; None if there is none."""
        number = self.floor(0, timestamp)
        if number < 0:
            return None
        found, relative_offset = self.pair(number)
        return found, self.base_offset + relative_offset

    def is_sound(self, next_offset: int) -> bool:
        """Whether all entries ascend and are possible in a segment up to `next_offset`. Reads the whole
        file."""
        before: Pair = (-1, 0)
        for timestamps, offsets in self._windows():
            if not (
                before[0] < timestamps[0]
                and before[1] <= offsets[0]
                and all(map(lt, timestamps, islice(timestamps, 1, None)))
                and all(map(le, offsets, islice(offsets, 1, None)))
            ):
                return False
            before = timestamps[-1], offsets[-1]
        return before[0] < 0 or before[1] < next_offset - self.base_offset
