"""The examination of one segment: every batch's checksum, offsets and leader epoch, and every index entry.

A worker thread does the work in parts of bounded size. An inspection shares no state with the log: it opens
the files itself, and the scrubber applies the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast_log.broker.log import index_checks, scan
from holdfast_log.broker.log.batch_order import BatchOrder
from holdfast_log.broker.log.behind_damage import end_of_damaged_batch
from holdfast_log.broker.log.damage import BatchPlace, Damage
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.index_entries import (
    SEGMENT_OFFSETS_MAX,
    IndexEntries,
    offset_entries,
    time_entries,
)
from holdfast_log.protocol.batches import NO_TIMESTAMP, BatchHeader


@dataclass(slots=True)
class _Expected:
    """The index entries that the coming batches must confirm, in the order of the file."""

    entries: Sequence[tuple[int, int]]
    number: int = 0

    @property
    def next(self) -> tuple[int, int] | None:
        return self.entries[self.number] if self.number < len(self.entries) else None


@dataclass(slots=True)
class Inspection:
    """Examines `size` bytes of the log file at `path`, which begins at `base_offset`.

    `next_offset` is that of the segment that follows, None for the last one. `is_dense`: offsets may have no
    gap after `log_start_offset`, since the topic is not compacted. `epochs` are (leader epoch, start offset);
    they say nothing of records before `log_start_offset`. An index path of None is not examined.
    """

    disk: Disk
    path: str
    base_offset: int
    size: int
    next_offset: int | None
    is_dense: bool
    epochs: Sequence[tuple[int, int]]
    log_start_offset: int
    index_interval: int
    offset_index: str | None = None
    time_index: str | None = None
    damage: Damage | None = None
    are_indexes_sound: bool = True
    is_done: bool = False
    _position: int = 0
    _next_offset: int = -1
    _offsets: _Expected | None = None
    _times: _Expected | None = None
    _pending_offset: int | None = None
    _bytes_since_entry: int = 0
    _last_position: int = 0
    _max_timestamp: int = NO_TIMESTAMP
    _offset_of_max_timestamp: int = 0
    _indexed: IndexEntries = field(default_factory=offset_entries)
    _behind: BatchPlace | None = None
    _behind_position: int = -1
    _behind_next_offset: int = -1
    _timed: IndexEntries = field(default_factory=time_entries)

    @property
    def end_offset(self) -> int:
        """The offset after the last sound batch so far."""
        return self._next_offset

    @property
    def _upper_offset(self) -> int:
        """All batches lie before it: the next segment begins there, or offsets in the indexes end there."""
        return self.base_offset + SEGMENT_OFFSETS_MAX if self.next_offset is None else self.next_offset

    def advance(self, bytes_max: int) -> int:
        """Examine about `bytes_max` more bytes; `is_done` says whether these were the last. Returns the
        number of bytes read. Raises OSError."""
        if self._offsets is None:
            self._begin()
        if self.damage is not None:
            return self._look_behind(bytes_max)
        start = self._position
        order = BatchOrder(
            self._next_offset,
            self.is_dense,
            self.log_start_offset,
            self._upper_offset,
            LeaderEpochs(self.epochs).epoch_at,
        )
        file = self.disk.open(self.path)
        try:
            end = min(self.size, file.size())
            for header, _ in scan.valid_batches(file, start, end):
                reason = order.implausible(header)
                if reason is not None:
                    self._found(reason)
                    return self._position - start
                order.passed(header)
                self._note(header)
                if self._position - start >= bytes_max and self._position < self.size:
                    return self._position - start
        finally:
            file.close()
        self._end(end)
        return self._position - start

    def _begin(self) -> None:
        self._next_offset = self._offset_of_max_timestamp = self.base_offset
        offsets: Sequence[tuple[int, int]] = ()
        times: Sequence[tuple[int, int]] = ()
        try:
            if self.offset_index is not None:
                offsets = offset_entries(self.disk.read(self.offset_index))
            if self.time_index is not None:
                times = time_entries(self.disk.read(self.time_index))
        except FileNotFoundError:
            self.are_indexes_sound = False
        self._offsets, self._times = _Expected(offsets), _Expected(times)

    def _found(self, reason: str) -> None:
        self.damage = Damage(self.base_offset, self._position, self._next_offset, reason)
        self.is_done = True

    def _begin_behind(self) -> None:
        """Go on behind the damaged batch, if its header says where it ends."""
        file = self.disk.open(self.path)
        try:
            behind = end_of_damaged_batch(file, self._position, min(self.size, file.size()))
        finally:
            file.close()
        self._behind_position = -1 if behind is None else behind

    def _look_behind(self, bytes_max: int) -> int:
        """Examine about `bytes_max` more bytes behind the damage. It ends where the damaged batch says if all
        batches from there on are sound. Returns the number of bytes read. Raises OSError."""
        assert self.damage is not None
        start = self._behind_position
        order = BatchOrder(
            max(self._behind_next_offset, self.damage.offset + 1),
            self._behind is not None,
            self.log_start_offset,
            self._upper_offset,
            LeaderEpochs(self.epochs).epoch_at,
        )
        file = self.disk.open(self.path)
        try:
            for header, _ in scan.valid_batches(file, start, min(self.size, file.size())):
                if order.implausible(header) is not None:
                    break
                if self._behind is None:
                    self._behind = BatchPlace(header.position, header.base_offset)
                    order.is_dense = True
                order.passed(header)
                self._behind_position, self._behind_next_offset = header.end, header.next_offset
                if self._behind_position - start >= bytes_max and self._behind_position < self.size:
                    return self._behind_position - start
        finally:
            file.close()
        is_complete = self.next_offset in (None, self._behind_next_offset)
        if self._behind_position == self.size and is_complete:
            self.damage = replace(self.damage, behind=self._behind)
        self.is_done = True
        return self._behind_position - start

    def _end(self, end: int) -> None:
        if end < self.size:
            self._found(f"the file has {end} bytes, not {self.size}")
        elif self._position < self.size:
            self._found("no sound batch begins there")
            if self.is_dense:
                self._begin_behind()
        elif self.is_dense and self.next_offset not in (None, self._next_offset):
            self._found(f"the records before offset {self.next_offset}, of the next segment, are missing")
        elif self._next_offset < (indexed_end := self._indexed_end()):
            self._found(f"the indexes name batches up to offset {indexed_end - 1}, which are missing")
        assert self._offsets is not None and self._times is not None
        if self._pending_offset is not None or self._offsets.next or self._times.next:
            self.are_indexes_sound = False
        self._note_end()
        self.is_done = self._behind_position < 0

    # Comparing the indexes with the batches.

    def _indexed_end(self) -> int:
        """The offset after the last batch that the indexes of a closed segment name."""
        assert self._offsets is not None and self._times is not None
        if self.next_offset is None:
            return self.base_offset
        named = [offset for offset, _ in self._offsets.entries[-1:]]
        named += [offset for _, offset in self._times.entries[-1:]]
        return index_checks.end_of_entries(named, self.base_offset, self.next_offset)

    def _note(self, header: BatchHeader) -> None:
        last_offset = header.last_offset
        self._compare(header)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, last_offset
        if self._bytes_since_entry > self.index_interval:
            self._indexed.append(last_offset - self.base_offset, header.position)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size
        self._last_position = header.position
        self._position, self._next_offset = header.end, header.next_offset

    def _note_time(self) -> None:
        last = self._timed.last
        if self._max_timestamp != NO_TIMESTAMP and (last is None or self._max_timestamp > last[0]):
            self._timed.append(self._max_timestamp, self._offset_of_max_timestamp - self.base_offset)

    def _note_end(self) -> None:
        """Add the last entries of a segment that is complete."""
        last = self._indexed.last
        if self._last_position and (last is None or last[1] < self._last_position):
            self._indexed.append(self._next_offset - 1 - self.base_offset, self._last_position)
        self._note_time()

    def _compare(self, header: BatchHeader) -> None:
        """Check the entries that point to this batch. Kafka's followers make one entry for all batches of a
        response: it has the position of the first batch, and the last offset of the last batch."""
        offsets, times = self._offsets, self._times
        assert offsets is not None and times is not None
        relative = header.last_offset - self.base_offset
        entry = offsets.next
        if entry is not None and entry[1] <= header.position:
            if entry[1] < header.position or self._pending_offset is not None:
                self.are_indexes_sound = False
            offsets.number += 1
            self._pending_offset = entry[0]
        if self._pending_offset is not None and relative >= self._pending_offset:
            if relative > self._pending_offset:
                self.are_indexes_sound = False
            self._pending_offset = None
        while (timed := times.next) is not None and timed[1] <= relative:
            if timed[0] != header.max_timestamp or timed[1] < header.base_offset - self.base_offset:
                self.are_indexes_sound = False
            times.number += 1

    def write_indexes(self, offset_index: str, time_index: str) -> None:
        """Replace both index files by ones built from the batches. Raises OSError."""
        self.disk.write_atomically(offset_index, self._indexed.encode())
        self.disk.write_atomically(time_index, self._timed.encode())
