"""One segment of a log: a file of batches and its two indexes, all named after its first offset.

A segment finds positions and bytes; it does not check appended batches and does not know its log. Methods
raise OSError from the disk. Methods that search also raise `SuspectSegment` when they pass a header or an
index entry that no broker writes.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast_log.broker.log import names, scan, suspicion
from holdfast_log.broker.log.aborted_index import AbortedIndex
from holdfast_log.broker.log.damage import Damage, SuspectSegment
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.index_entries import SEGMENT_OFFSETS_MAX
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment_ends import end_before, readable_end_before
from holdfast_log.broker.log.segment_indexes import SegmentIndexes, largest_timestamp
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import LOG_OVERHEAD, BatchHeader
from holdfast_log.protocol.wire import Buffer

REMEMBERED_POSITIONS = 64
_FRESH_BYTES = 64 << 10


class Extent(NamedTuple):
    """Whole batches: their end position in the file, and the offset after the last one.

    `is_full`: they end where the next batch would exceed the maximum of bytes, or where that is reached. It
    may be false although they do.
    """

    end_position: int
    next_offset: int
    is_full: bool = False


class Segment:
    """Batches from `base_offset` on.

    `size` is in bytes; `next_offset` is the offset after the last record. The segment holds its file open
    from an append until `settle` or `release`; otherwise the file is opened when it is needed.
    """

    __slots__ = (
        "_appended", "_appended_from", "_directory", "_file", "_files", "_first_timestamp", "_positions",
        "_sync_error", "aborted", "base_offset", "content", "created_ms", "damage", "indexes", "is_dense",
        "needs_directory_sync", "needs_sync", "next_offset", "path", "size",
    )  # fmt: skip

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, settings: LogSettings) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.created_ms = 0
        self.needs_directory_sync = False
        """Whether the directory entry of the file may be lost in a power failure."""
        self.needs_sync = False
        """Whether a power failure may bring back records that were cut off the end of the file."""
        self.is_dense = settings.is_dense
        """Whether every batch begins at the offset after the batch before it."""
        self.damage: Damage | None = None
        """The part of the file that is known to be unreadable; None if there is none."""
        self._directory = directory
        self.path = self.path_of(names.LOG)
        """Path of the file."""
        self._files = files
        self._file: DiskFile | None = None
        self._appended_from = -1
        """Position of the first byte that this process has appended; -1 before it appends."""
        self._sync_error: OSError | None = None
        self._first_timestamp: int | None = None
        # Positions by offset of the batches at which the last reads ended: the next reads begin there.
        self._positions: dict[int, int] = {}
        # The same of the last appends: high watermarks lie there, and so do the ends of reads below them.
        self._appended: dict[int, int] = {}
        self.content = object()
        """Stands for the bytes of the file: another object as soon as one of them is cut off or replaced."""
        self.indexes = SegmentIndexes(
            files, self.path_of(names.INDEX), self.path_of(names.TIME_INDEX), base_offset, settings
        )
        self.aborted = AbortedIndex(files, self.path_of(names.TRANSACTION_INDEX))
        """The aborted transactions whose markers are in the segment."""

    @classmethod
    def create(
        cls, files: OpenFiles, directory: str, base_offset: int, settings: LogSettings, now_ms: int
    ) -> Segment:
        """A new, empty segment. Files at its paths are replaced."""
        segment = cls(files, directory, base_offset, settings)
        for path in segment.paths():
            files.forget(path)
            files.disk.remove(path)
        segment.indexes.create()
        segment.created_ms = now_ms
        files.get(segment.path, create=True)
        segment.needs_directory_sync = True
        return segment

    def path_of(self, kind: str) -> str:
        return os.path.join(self._directory, names.offset_file(self.base_offset, kind))

    def paths(self) -> list[str]:
        """Paths of the files of the segment, existing or not; the log itself comes first."""
        kinds = (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.DAMAGED)
        return [self.path_of(kind) for kind in kinds]

    def file(self) -> DiskFile:
        """The open file."""
        self.check_synced()
        return self._file if self._file is not None else self._files.get(self.path)

    def file_to_send(self) -> DiskFile:
        """The open file, for a response. Raises OSError with EMFILE where responses keep too many open."""
        self.check_synced()
        return self._file if self._file is not None else self._files.get_to_send(self.path)

    def use_files(self, files: OpenFiles) -> None:
        """Open files through `files` from now on."""
        self._files = files
        self.indexes.use_files(files)
        self.aborted.use_files(files)

    def hold(self) -> None:
        """Hold the file open, for appending."""
        if self._file is not None:
            return
        self.check_synced()
        file = self._files.hold(self.path, self)
        size = file.size()
        if size != self.size:
            if size < self.size:
                raise OSError(errno.EIO, f"the file has {size} bytes, not {self.size}", self.path)
            file.truncate(self.size)  # A failed append has left part of its records.
        self._file = file
        if self._appended_from < 0:
            self._appended_from = self.size

    def settle(self, durable_offset: int) -> None:
        """Note that all records before `durable_offset` are durable. If no others exist, stop holding the
        file."""
        if self._file is None:
            return
        if self.next_offset > durable_offset:
            self._files.hold_on(self.path)
            return
        self._files.settle(self.path, self._file)
        self._file = None

    def check_synced(self) -> None:
        """Raises OSError where `sync_and_release` has failed."""
        if self._sync_error is not None:
            raise OSError(errno.EIO, f"fsync failed: {self._sync_error}", self.path)

    def sync_and_release(self) -> None:
        """Make the file's content durable, then release the file. `check_synced` raises an fsync error."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.fsync()
            except OSError as error:
                self._sync_error = error

    def release(self) -> None:
        """Release the file. Reads that are in progress continue."""
        self._file = None
        self._files.forget(self.path)
        self._files.forget(self.aborted.path)
        self.indexes.offsets.release()

    def move(self, directory: str) -> None:
        """Use the new name of the directory, after it was renamed."""
        for path in self.paths():
            self._files.forget(path)
        self._file = None
        self._directory = directory
        self.path = self.path_of(names.LOG)
        self.indexes.offsets.path = self.path_of(names.INDEX)
        self.indexes.times.path = self.path_of(names.TIME_INDEX)
        self.aborted.path = self.path_of(names.TRANSACTION_INDEX)

    # Appending.

    def has_room(self, size: int, last_offset: int, max_bytes: int) -> bool:
        """Whether batches of `size` bytes up to `last_offset` fit into the segment's maximum size, its
        indexes, and the 32 bits of a relative offset. An empty segment takes a batch of any size."""
        return (
            (self.size + size <= max_bytes or not self.size)
            and last_offset - self.base_offset < SEGMENT_OFFSETS_MAX
            and not self.indexes.offsets.is_full
            and not self.indexes.times.is_full
        )

    def append(self, records: Buffer, headers: Sequence[BatchHeader], base_offsets: Sequence[int]) -> None:
        """Write the batches that `headers` describe, which fill `records`. `base_offsets` are their offsets;
        the headers may have been read before offsets were assigned, and then hold other offsets."""
        if self._file is None:
            self.hold()
        assert self._file is not None
        start = self.size
        self._file.append((records,))
        if not start:
            self._first_timestamp = headers[0].max_timestamp
        indexes = self.indexes
        if indexes.max_timestamp is None:
            self._load_max_timestamp()
        last_offset = self.next_offset - 1
        for number, header in enumerate(headers):
            last_offset = base_offsets[number] + header.last_offset_delta
            size = header.length + LOG_OVERHEAD
            indexes.add(last_offset, start + header.position, size, header.max_timestamp)
        self.size = start + len(records)
        self.next_offset = last_offset + 1
        self._note_appended()

    def _note_appended(self) -> None:
        """Remember where the last append has ended, for the reads that follow it."""
        appended = self._appended
        appended[self.next_offset] = self.size
        if len(appended) > REMEMBERED_POSITIONS:
            del appended[next(iter(appended))]

    def complete(self) -> None:
        """Write the final indexes, with an entry for the last batch: the next segment begins."""
        try:
            after_index = self.headers(self.indexes.offsets.position_up_to(self.size))
        except SuspectSegment:
            after_index = iter(())  # The index has lost entries. The scrubber rebuilds it, with that entry.
        for last in deque(after_index, maxlen=1):
            self.indexes.end_with(last.last_offset, last.position)
        self.finish()

    def finish(self) -> None:
        """Write the final indexes: the log is being closed, or its batches have all been read."""
        if self.indexes.max_timestamp is None:
            self._load_max_timestamp()
        self.indexes.finish()

    # Timestamps.

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record, in ms; -1 if no record has one."""
        if self.indexes.max_timestamp is None:
            self._load_max_timestamp()
        assert self.indexes.max_timestamp is not None
        return self.indexes.max_timestamp

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Time in ms from the first batch to a coming batch of `max_timestamp`, by the timestamps of their
        records; if either has none, or that of the first has not come yet, the time since the segment was
        created."""
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first = next(self.headers(0), None)
            if first is None:
                return now_ms - self.created_ms
            first_timestamp = self._first_timestamp = first.max_timestamp
        if 0 <= first_timestamp <= now_ms and max_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - self.created_ms

    def _load_max_timestamp(self) -> None:
        self.indexes.max_timestamp, self.indexes.offset_of_max_timestamp = largest_timestamp(self)

    # Finding.

    @property
    def readable_size(self) -> int:
        """The number of bytes before the damage; the whole size if there is none."""
        return self.size if self.damage is None else self.damage.position

    def headers(self, position: int, end: int | None = None) -> Iterator[BatchHeader]:
        """The headers of the batches from `position` on that end at or before `end`, and before known
        damage."""
        end = self.readable_size if end is None else min(end, self.readable_size)
        if position >= end:
            return iter(())
        return scan.headers(self.file(), position, end)

    def header_at(self, offset: int) -> BatchHeader | None:
        """Header of the first batch that ends at or after `offset`; None if all batches lie before it."""
        start = end = suspicion.checked(self, self.indexes.offsets.position_below(offset))
        for header in self.headers(start):
            if header.base_offset > offset and header.position == start > 0:
                raise suspicion.misled(self, header, offset)
            if header.last_offset >= offset:
                suspicion.check_expected(self, header, offset)
                return header
            end = header.end
        if end != self.readable_size:
            raise suspicion.no_batch(self, end)
        return None

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no record has `timestamp` or a later one."""
        entry = self.indexes.times.entry_below(timestamp)
        if entry is None:
            return self.base_offset
        if not suspicion.confirms(self, *entry):
            raise suspicion.wrong_timestamp(self, *entry)
        return entry[1]

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches from the one with `offset` on, maybe some before it."""
        header = self.header_at(offset)
        return iter(()) if header is None else self.headers(header.position)

    def position_of(self, offset: int) -> int | None:
        """Position of the first batch that ends at or after `offset`; None if all lie before it."""
        if offset <= self.base_offset:
            return 0 if self.size else None
        if offset >= self.next_offset:
            return None
        position = self._positions.get(offset)
        if position is None:
            position = self._appended.get(offset)
        if position is None:
            header = self.header_at(offset)
            position = None if header is None else header.position
        return position

    def is_fresh(self, position: int) -> bool:
        """Whether the bytes from `position` on are the last that this process has appended, and not durable
        yet: they are in memory as they were written."""
        return self._file is not None and position >= max(self._appended_from, self.size - _FRESH_BYTES)

    def extent(self, start: int, max_bytes: int, upper_offset: int, *, min_one_batch: bool) -> Extent | None:
        """The whole batches from `start` on in at most `max_bytes` and below `upper_offset`; None if there is
        none. With `min_one_batch` the first one is included whatever its size."""
        limit = start + max_bytes
        if self.size <= limit and upper_offset >= self.next_offset and self.damage is None:
            return self._remember(Extent(self.size, self.next_offset))
        end_position = self._appended.get(upper_offset)
        if end_position is not None and start < end_position <= limit and self.damage is None:
            return self._remember(Extent(end_position, upper_offset))
        indexes = self.indexes
        position = start
        if start + indexes.interval_bytes < self.size:
            below = indexes.offsets.position_up_to(min(limit, self.size))
            if upper_offset < self.next_offset:
                below = min(below, indexes.offsets.position_below(upper_offset))
            position = max(start, suspicion.checked(self, below))
        next_offset = -1
        is_full = False
        first = position
        for header in self.headers(position):
            end, base_offset = header.end, header.base_offset
            end_offset = base_offset + header.last_offset_delta + 1
            if header.position == first:
                # A copy of a compacted log may have a gap at the upper offset.
                may_follow_gap = position == start and not self.is_dense
                if (base_offset > upper_offset and not may_follow_gap) or end_offset > self.next_offset:
                    raise suspicion.misled(self, header, upper_offset)
            elif base_offset < next_offset or (base_offset > next_offset and self.is_dense):
                raise suspicion.out_of_order(self, header, next_offset)
            if end_offset > upper_offset:
                break
            if end > limit and not (min_one_batch and header.position == start):
                if header.position > start:
                    next_offset = base_offset
                is_full = True
                break
            position, next_offset = end, end_offset
            if position >= limit:
                is_full = True
                break
        else:
            if position != self.readable_size:
                raise suspicion.no_batch(self, position)
        if position == start:
            return None
        if next_offset < 0:
            # The index led to the first batch that lies outside the extent.
            stopped_at = next(self.headers(position), None)
            if stopped_at is not None:
                next_offset = stopped_at.base_offset
            else:
                next_offset = self.next_offset if self.damage is None else self.damage.offset
        return self._remember(Extent(position, next_offset, is_full))

    def _remember(self, extent: Extent) -> Extent:
        if extent.end_position == self.size and extent.next_offset < self.next_offset:
            return extent  # Compaction has removed what followed. The next read begins in another segment.
        positions = self._positions
        positions[extent.next_offset] = extent.end_position
        if len(positions) > REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        return extent

    def forget_positions(self) -> None:
        """Forget what reads have found: bytes of the file are cut off, or others have replaced them."""
        self._positions.clear()
        self._appended.clear()
        self.content = object()

    # Truncation.

    def cut(self, position: int) -> None:
        """Remove all bytes from `position` on."""
        self.file().truncate(position)
        self.size = position
        self.forget_positions()
        self.needs_sync = True

    def truncate_to(self, offset: int) -> None:
        """Remove the batch with `offset`, if there is one, and all later ones. The next append goes there.

        Where the file is damaged before that batch, the segment ends before the damage.
        """
        end = end_before(self, offset)
        if end == (self.size, self.next_offset):
            self.indexes.resume(self.size)
            return
        is_sound = end is not None
        if end is None:
            end = readable_end_before(self, offset)
            self.indexes.remove()
        position, self.next_offset = end
        self.aborted.truncate_to(self.next_offset)
        self.cut(position)
        if self.damage is not None:
            self.damage = None
            self._files.disk.remove(self.path_of(names.DAMAGED))
        if is_sound:
            self.indexes.truncate_to(self.next_offset, position)
        else:
            self.rebuild_indexes()
        self.forget_positions()
        self.indexes.max_timestamp = None
        self._first_timestamp = self._first_timestamp if position else None
        self.indexes.resume(self.size)

    # Indexes of batches that are in the file already.

    def reload_indexes(self) -> None:
        """Forget what is in memory of the two index files, which have been rebuilt from the batches."""
        self.indexes.reload()
        self.forget_positions()

    def replaced(self, size: int) -> None:
        """Use the file that has replaced the log, with the same records in `size` bytes."""
        self._files.forget(self.path)
        self._file = None
        self.size = size
        self.damage = None
        self._first_timestamp = None
        self.reload_indexes()

    def rebuild_indexes(self) -> tuple[int, int]:
        """Fill both indexes, which are empty, from the log. Returns the position and the offset after the
        last whole batch."""
        self.indexes.begin()
        last = None
        for last in self.headers(0):
            self.indexes.add(last.last_offset, last.position, last.size, last.max_timestamp)
        if last is not None:
            self.indexes.end_with(last.last_offset, last.position)
        self.finish()
        return (0, self.base_offset) if last is None else (last.end, last.next_offset)
