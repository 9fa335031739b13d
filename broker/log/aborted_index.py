"""The index of the aborted transactions whose markers are in one segment, in Kafka's file `.txnindex`.

Entries of 34 bytes, in the order of the markers: version 0 (int16), producer id, first offset, offset of the
marker, and last stable offset behind it (int64 each). A segment without aborted transactions has no file.

An entry is written after its marker. If descriptors or memory are lacking, it stays in memory until the next
write; a flush writes it before the recovery point may pass the marker, so recovery rebuilds what is missing.

A look-up reads the entries of the transactions that end in what is read, all of which it returns. Of those
that end later it reads the runs of entries of which one may have begun before (`least_offsets.py`), so a
transaction that was open for long does not make it read all that were aborted meanwhile.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.least_offsets import RUN, LeastOffsets
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.pressure import is_pressure
from holdfast_log.broker.log.transactions import AbortedEntry

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_UNKNOWN = -1


def encode_entries(entries: Sequence[AbortedEntry]) -> bytes:
    """The content of a file."""
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_entries(data: bytes) -> list[AbortedEntry]:
    """The whole entries in the content of a file, or in a part of it."""
    whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
    return [AbortedEntry(*values) for _, *values in ENTRY.iter_unpack(whole)]


class AbortedIndex:
    """The index of one segment. Methods raise OSError from the disk."""

    __slots__ = ("_files", "_is_synced", "_least", "_size", "_unwritten", "path")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self.path = path
        self._files = files
        self._size = _UNKNOWN
        """Bytes of whole entries in the file."""
        self._unwritten: list[AbortedEntry] = []
        self._is_synced = True
        self._least = LeastOffsets()

    def use_files(self, files: OpenFiles) -> None:
        """Open the file through `files` from now on."""
        self._files = files

    def forget(self) -> None:
        """Look at the file anew: it was replaced, removed or renamed."""
        self._files.forget(self.path)
        self._size = _UNKNOWN
        self._least.clear()

    @property
    def is_empty(self) -> bool:
        """Whether no marker in the segment ends an aborted transaction."""
        return not self._known_size() and not self._unwritten

    def _known_size(self) -> int:
        if self._size == _UNKNOWN:
            disk = self._files.disk
            size = disk.size(self.path) if disk.exists(self.path) else 0
            self._size = size // ENTRY.size * ENTRY.size
        return self._size

    # Writing.

    def append(self, entry: AbortedEntry) -> None:
        """Add the transaction that the last marker has aborted."""
        self._unwritten.append(entry)
        try:
            self.write()
        except OSError as error:
            if not is_pressure(error):
                raise

    def write(self) -> None:
        """Write the entries that are only in memory."""
        if not self._unwritten:
            return
        size = self._known_size()
        file = self._files.get(self.path, create=True)
        if file.size() > size:
            file.truncate(size)  # Part of an entry, or what another process has left.
        data = encode_entries(self._unwritten)
        self._is_synced = False
        file.append([data])
        self._size = size + len(data)
        for number, entry in enumerate(self._unwritten, size // ENTRY.size):
            self._least.appended(number, entry.first_offset)
        self._unwritten.clear()

    def file_to_sync(self) -> DiskFile | None:
        """The file, all entries written, if they may not be durable; else None. See `synced`."""
        self.write()
        return None if self._is_synced else self._files.get(self.path)

    def synced(self) -> None:
        """Note that an fsync of the file is about to begin; if it fails, so has the log."""
        self._is_synced = True

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of markers at `offset` or later."""
        self._unwritten = [entry for entry in self._unwritten if entry.last_offset < offset]
        kept, count = self._number_of(offset), self._known_size() // ENTRY.size
        if kept < count:
            self._cut(kept)

    def _cut(self, count: int) -> None:
        if count:
            self._files.get(self.path).truncate(count * ENTRY.size)
            self._is_synced = False
        else:
            self._files.forget(self.path)
            self._files.disk.remove(self.path)
            self._is_synced = True  # There is no file that a flush could sync.
        self._size = count * ENTRY.size
        self._least.cut(count)

    def replace(self, entries: Sequence[AbortedEntry]) -> None:
        """Have these entries and no others."""
        self._unwritten.clear()
        if self._known_size() or self._files.disk.exists(self.path):
            self._cut(0)
        self._unwritten.extend(entries)
        self.write()

    # Reading.

    def find(
        self, first_offset: int, end_offset: int, ends_max: int = sys.maxsize
    ) -> tuple[list[AbortedEntry], bool, int]:
        """The aborted transactions with offsets from `first_offset` to before `end_offset`, whether the
        indexes of later segments have no others, and the end. If more than `ends_max` of them end before it,
        the end is that of so many."""
        found: list[AbortedEntry] = []
        number, count = self._number_of(first_offset), self._known_size() // ENTRY.size
        is_last = False
        while not is_last:
            is_last = number >= count
            for entry in self._run_at(number, count) or self._unwritten_from(first_offset):
                if entry.last_offset < end_offset:
                    if not ends_max:
                        end_offset = entry.last_offset
                    else:
                        ends_max -= 1
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found, True, end_offset
            # The next run, and what is passed over: nothing in it began before the end.
            number = self._least.passed((number // RUN + 1) * RUN, end_offset)
        is_all = bool(count) and self._read(count - 1, 1)[0].last_stable_offset >= end_offset
        return found, is_all, end_offset

    @property
    def count(self) -> int:
        """The number of all entries."""
        return self._known_size() // ENTRY.size + len(self._unwritten)

    def entries(self) -> list[AbortedEntry]:
        """All entries."""
        count = self._known_size() // ENTRY.size
        runs = [self._run_at(number, count) for number in range(0, count, RUN)]
        return [*chain.from_iterable(runs), *self._unwritten]

    def _number_of(self, offset: int) -> int:
        """The number of the first entry in the file whose marker is at `offset` or later."""
        count = self._known_size() // ENTRY.size
        if not count or self._read(0, 1)[0].last_offset >= offset:
            return 0
        return bisect_left(range(count), offset, 1, key=lambda number: self._read(number, 1)[0].last_offset)

    def _run_at(self, number: int, count: int) -> list[AbortedEntry]:
        """The entries from a number to the end of its run, of `count`; none behind them."""
        run = number // RUN
        size = min((run + 1) * RUN, count) - number
        if size <= 0:
            return []
        entries = self._read(number, size)
        if size == RUN == len(entries):
            self._least.note(run, min(entry.first_offset for entry in entries))
        return entries

    def _unwritten_from(self, offset: int) -> list[AbortedEntry]:
        return [entry for entry in self._unwritten if entry.last_offset >= offset]

    def _read(self, number: int, count: int) -> list[AbortedEntry]:
        data = self._files.get(self.path).pread(count * ENTRY.size, number * ENTRY.size)
        entries = decode_entries(data)
        if not entries:
            raise OSError(5, "the index of aborted transactions is shorter than it was", self.path)
        return entries
