"""The entries of a whole index in memory, in the form of its file: as many bytes as the file has.

Compaction and the examination of a segment handle whole indexes. With the settings of its topic any client
decides how many entries there are; as tuples each would take ten times its size in the file.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

Pair = tuple[int, int]

SEGMENT_OFFSETS_MAX = 2**31
"""A segment has fewer offsets, counted from its base: an entry has 31 bits for what lies between."""
_AT_ONCE = 1024
"""Number of entries that are converted at a time."""
_NOTHING = (0, 0)


class IndexEntries(Sequence[Pair]):
    """Entries in the order of their file."""

    def __init__(self, type_codes: str) -> None:
        """`type_codes` are the types of the two columns, as the modules `array` and `struct` call them."""
        self._type_codes = type_codes
        self._first = array(type_codes[0])
        self._second = array(type_codes[1])

    def append(self, first: int, second: int) -> None:
        """Add an entry at the end."""
        self._first.append(first)
        self._second.append(second)

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self._first, self._second, strict=True)

    @overload
    def __getitem__(self, index: int) -> Pair: ...

    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...

    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return list(zip(self._first[index], self._second[index], strict=True))
        return self._first[index], self._second[index]

    @property
    def last(self) -> Pair | None:
        """The last entry; None if there is none."""
        return self[-1] if self._first else None

    def encode(self) -> bytes:
        """The content of the file."""
        pieces = []
        for start in range(0, len(self), _AT_ONCE):
            some = self[start : start + _AT_ONCE]
            pieces.append(
                struct.pack(">" + self._type_codes * len(some), *[each for pair in some for each in pair])
            )
        return b"".join(pieces)

    def decode(self, data: bytes) -> None:
        """Add the entries of a file, without the zeros behind them that Kafka reserves."""
        entry = struct.Struct(">" + self._type_codes)
        whole = memoryview(data)[: len(data) - len(data) % entry.size]
        for first, second in entry.iter_unpack(whole):
            self._first.append(first)
            self._second.append(second)
        while len(self) > 1 and self[-1] == _NOTHING:
            self._first.pop()
            self._second.pop()
        if len(self) == 1 and self[0] == _NOTHING:
            self._first.pop()
            self._second.pop()


def offset_entries(data: bytes = b"") -> IndexEntries:
    """The entries of an `.index`: relative offset of a batch's last record, position of the batch."""
    return _entries("ii", data)


def time_entries(data: bytes = b"") -> IndexEntries:
    """The entries of a `.timeindex`: largest timestamp so far in ms, relative offset of the last record of
    its batch."""
    return _entries("qi", data)


def _entries(type_codes: str, data: bytes) -> IndexEntries:
    entries = IndexEntries(type_codes)
    entries.decode(data)
    return entries
