"""Writes what remains of some adjacent segments into a new one. For workers: it uses no log.

The new segment has the first offset of the old ones. It ends with a batch that has their last offset, if need
be one without records: so its file shows which segments it replaces (`broker.log.recovery`), and a log whose
last records are all removed keeps its end. Its files have the suffix `.cleaned` until they are complete and
durable.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast_log.broker.cleaning.horizons import horizons_in
from holdfast_log.broker.cleaning.sources import Source, SourceReader
from holdfast_log.broker.cleaning.transactions import PassTransactions, remaining_marker, without_records
from holdfast_log.broker.log import names
from holdfast_log.broker.log.aborted_index import encode_entries
from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.broker.log.index_entries import IndexEntries, offset_entries, time_entries
from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.protocol import compaction
from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    write_header,
)
from holdfast_log.protocol.compaction import Rules

_ROW = struct.Struct("=qqq")
_ENTRIES_AT_ONCE = 1_000
"""Aborted transactions that are written to the new index together."""
_NO_BATCH = NO_LEADER_EPOCH - 1
"""Stands for the leader epoch of the batch before the first one of a log."""


def sorted_offsets(offsets: Sequence[int]) -> bytes:
    """The form in which `Rules` take offsets."""
    return array("q", sorted(offsets)).tobytes()


@dataclass(slots=True)
class _NewIndexes:
    """The index entries of the new segment, by the rule of `SegmentIndexes`."""

    base_offset: int
    interval_bytes: int
    offsets: IndexEntries = field(default_factory=offset_entries)
    times: IndexEntries = field(default_factory=time_entries)
    max_timestamp: int = NO_TIMESTAMP
    _offset_of_max_timestamp: int = 0
    _bytes_since_entry: int = 0
    _last: tuple[int, int] = (0, 0)

    def add(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset - self.base_offset
        if self._bytes_since_entry > self.interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self._last = last_offset - self.base_offset, position

    def finish(self) -> None:
        """Add the last entries: no batch follows."""
        if self._last[1] and self._last != self.offsets.last:
            self.offsets.append(*self._last)
        self._note_time()

    def _note_time(self) -> None:
        last = self.times.last
        if self.max_timestamp != NO_TIMESTAMP and (last is None or self.max_timestamp > last[0]):
            self.times.append(self.max_timestamp, self._offset_of_max_timestamp)


class _NewAbortedIndex:
    """The index of the aborted transactions that the new segment has, written piece by piece."""

    def __init__(self, disk: Disk, log_path: str) -> None:
        self.count = 0
        self._disk = disk
        self._path = log_path.removesuffix(names.LOG) + names.TRANSACTION_INDEX + names.CLEANED
        self._unwritten: list[AbortedEntry] = []
        self._file: DiskFile | None = None

    def add(self, entry: AbortedEntry) -> None:
        self.count += 1
        self._unwritten.append(entry)
        if len(self._unwritten) == _ENTRIES_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._disk.remove(self._path)
            self._file = self._disk.open(self._path, create=True)
        self._file.append([encode_entries(self._unwritten)])
        self._unwritten.clear()

    def finish(self, *, is_needed: bool) -> None:
        """Make the file durable, or remove it."""
        if is_needed:
            self._write()
            assert self._file is not None
            self._file.fsync()
        self.close()
        if not is_needed:
            self._disk.remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class GroupCopy:
    """Copies what remains of the batches of `sources`, adjacent segments of a log.

    `previous_epoch` is the leader epoch of the batch before them (None if there is none), and `last_epoch`
    that of the last offset (-1 if unknown). `indexed` is the number of aborted transactions that end in them.
    Once `is_done`, the files are complete, and the log file is durable.
    """

    def __init__(
        self,
        disk: Disk,
        sources: Sequence[Source],
        rules: Rules,
        *,
        previous_epoch: int | None,
        last_epoch: int,
        index_interval_bytes: int,
        piece_bytes: int,
        batch_bytes_max: int,
        transactions: PassTransactions,
        indexed: int = 0,
    ) -> None:
        self.size = 0
        """Bytes of the new log file so far."""
        self.is_done = False
        self.is_changed = len(sources) > 1
        """Whether the new segment differs from the old one."""
        self.unreadable: list[int] = []
        """The first offsets of the batches that cannot be decompressed, and stay as they are."""
        self.horizons: set[int] = set()
        """The delete horizons of the batches in the new segment."""
        self.previous_epoch = _NO_BATCH if previous_epoch is None else previous_epoch
        self._aborted = _NewAbortedIndex(disk, sources[0].path)
        self._indexed = indexed
        self._transactions = transactions
        self._disk = disk
        self._rules = rules
        self._last_epoch = last_epoch
        self._end_offset = sources[-1].next_offset
        self._next_offset = sources[0].base_offset
        self._batch_bytes_max = batch_bytes_max
        self._reader = SourceReader(disk, sources, piece_bytes)
        self._path = sources[0].path + names.CLEANED
        self._file: DiskFile | None = None
        self._indexes = _NewIndexes(sources[0].base_offset, index_interval_bytes)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch in ms; -1 if none has one."""
        return self._indexes.max_timestamp

    def advance(self, bytes_max: int) -> int:
        """Read and write about `bytes_max` more bytes, up to a batch that the known transactions do not
        cover. Returns how many. Raises OSError and `UncleanableSegment`."""
        if self._file is None:
            self._disk.remove(self._path)
            self._file = self._disk.open(self._path, create=True)
        done, size = 0, self.size
        while done + self.size - size < bytes_max and not self.is_done and not self._transactions.is_behind:
            piece = self._reader.next_piece()
            if piece is None:
                self._finish(self._file)
            else:
                self._copy(piece, self._file)
                done += len(piece)
        return done + self.size - size

    def _copy(self, piece: bytes, file: DiskFile) -> None:
        reader, position, expected = self._reader, 0, self._reader.expected
        while True:
            result = compaction.filter_batches(
                piece, position, expected, reader.upper, self._rules, self.previous_epoch
            )
            position, expected, self.previous_epoch = result.position, result.expected, result.previous_epoch
            self._append(file, result.output, result.rows, is_changed=result.is_changed)
            if result.status not in (compaction.COMPRESSED, compaction.MARKED):
                break
            header = read_header(piece, position)
            batch = piece[position : header.end]
            inner = header._replace(position=0)
            is_marked = result.status == compaction.MARKED
            if is_marked and not self._transactions.covers(header):
                break
            output = self._remaining_marked(batch, inner) if is_marked else self._remaining(batch, inner)
            rows = compaction.row_of(output) if output else b""
            self._append(file, output, rows, is_changed=output != batch)
            position, expected, self.previous_epoch = header.end, header.next_offset, header.leader_epoch
        if result.status == compaction.DAMAGED:
            raise reader.refuse_next(position)
        if position or not self._transactions.is_behind:
            reader.take(position, expected)

    def _remaining(self, batch: bytes, header: BatchHeader) -> bytes:
        """What remains of a batch by the keys of its records."""
        return compaction.filter_compressed(
            batch, header, self._rules, self.previous_epoch, self._batch_bytes_max, self.unreadable
        )

    def _remaining_marked(self, batch: bytes, header: BatchHeader) -> bytes:
        """What remains of a batch of a transaction, or of a marker."""
        transactions, rules = self._transactions, self._rules
        is_kept = header.leader_epoch != self.previous_epoch or compaction.contains(
            memoryview(rules.kept_headers), header.base_offset
        )
        if not header.is_control:
            if transactions.is_aborted(header):
                return without_records(header, is_kept=is_kept)
            return self._remaining(batch, header)
        may_go, kept = transactions.end(batch, header)
        if kept is not None:
            self._aborted.add(kept)
        is_last = transactions.is_last_of_producer(header)
        return remaining_marker(batch, header, rules, may_go=may_go and not is_last, is_kept=is_kept)

    def _append(self, file: DiskFile, output: bytes, rows: bytes, *, is_changed: bool) -> None:
        self.is_changed = self.is_changed or is_changed
        if not output:
            return
        file.append([output])
        self.horizons |= horizons_in(output, (row[2] for row in _ROW.iter_unpack(rows)))
        for last_offset, max_timestamp, size in _ROW.iter_unpack(rows):
            self._indexes.add(last_offset, max_timestamp, self.size, size)
            self.size += size
            self._next_offset = last_offset + 1

    def _finish(self, file: DiskFile) -> None:
        if self._next_offset < self._end_offset:
            # A log that starts later no longer knows the epochs of the records before its start.
            epoch = max(self._last_epoch, self.previous_epoch)
            end = _empty_batch(self._end_offset - 1, epoch)
            self._append(file, end, compaction.row_of(end), is_changed=True)
        self._indexes.finish()
        self.is_done = True
        self.is_changed = self.is_changed or self.has_aborted is not None
        self._aborted.finish(is_needed=bool(self.has_aborted))
        if self.is_changed:
            file.fsync()
            stem = self._path.removesuffix(names.LOG + names.CLEANED)
            self._write(stem + names.INDEX + names.CLEANED, self._indexes.offsets.encode())
            self._write(stem + names.TIME_INDEX + names.CLEANED, self._indexes.times.encode())
        self.close()

    @property
    def has_aborted(self) -> bool | None:
        """Whether the new segment has aborted transactions, which are in a new index; None if the old index
        stays as it is: none of its transactions was left out."""
        return None if self._aborted.count == self._indexed else bool(self._aborted.count)

    def _write(self, path: str, data: bytes) -> None:
        # No fsync: recovery rebuilds an index that does not fit its log.
        self._disk.remove(path)
        file = self._disk.open(path, create=True)
        file.append([data])
        file.close()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
        self._aborted.close()
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        """Remove what was written, which nothing uses. Raises OSError."""
        self.close()
        stem = os.path.splitext(os.path.splitext(self._path)[0])[0]
        for kind in (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            self._disk.remove(stem + kind + names.CLEANED)


def _empty_batch(offset: int, leader_epoch: int) -> bytes:
    """A batch without records at one offset."""
    batch = bytearray(HEADER_SIZE)
    write_header(
        batch,
        attributes=0,
        record_count=0,
        last_offset_delta=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        base_offset=offset,
        leader_epoch=leader_epoch,
    )
    return bytes(batch)
