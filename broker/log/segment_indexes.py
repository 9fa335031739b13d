"""The two indexes of one segment, and what decides when they get an entry.

Both get an entry for every `index.interval.bytes` of log, so that an index is the same whether the batches
were indexed when they were appended or from the file.
"""

from __future__ import annotations

from holdfast_log.broker.log import suspicion
from holdfast_log.broker.log.index import OffsetIndex, TimeIndex
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment_view import SegmentView
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import NO_TIMESTAMP


class SegmentIndexes:
    """The indexes of the batches from `base_offset` on. Methods raise OSError from the disk.

    `max_timestamp` is the largest timestamp of a batch, in ms; -1 if no record has one, and None while it is
    unknown. It must be known before batches are added: see `largest_timestamp`. `offset_of_max_timestamp` is
    the last offset of the first batch that has it.
    """

    __slots__ = (
        "_base_offset", "_bytes_since_entry", "_files", "interval_bytes", "max_timestamp",
        "offset_of_max_timestamp", "offsets", "times",
    )  # fmt: skip

    def __init__(
        self, files: OpenFiles, offsets_path: str, times_path: str, base_offset: int, settings: LogSettings
    ) -> None:
        self._base_offset = base_offset
        self._files = files
        self.offsets = OffsetIndex(files, offsets_path, base_offset, settings.segment_index_bytes)
        self.times = TimeIndex(files, times_path, base_offset, settings.segment_index_bytes)
        self.interval_bytes = settings.index_interval_bytes
        self._bytes_since_entry = 0
        self.max_timestamp: int | None = None
        self.offset_of_max_timestamp = base_offset

    def use_files(self, files: OpenFiles) -> None:
        """Open files through `files` from now on."""
        self._files = files
        self.offsets.use_files(files)
        self.times.use_files(files)

    def begin_empty(self) -> None:
        """Start without batches and without a file access: the files do not exist."""
        self.offsets.begin_empty()
        self.times.begin_empty()
        self.max_timestamp = NO_TIMESTAMP

    def create(self) -> None:
        """Start without batches, with empty files."""
        self.offsets.create()
        self.times.create()
        self.max_timestamp = NO_TIMESTAMP

    def begin(self) -> None:
        """Prepare for calls of `add` for every batch, from the first on. Entries are kept."""
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self._base_offset
        self._bytes_since_entry = 0

    def resume(self, size: int) -> None:
        """Prepare complete indexes of a log of `size` bytes for further batches.

        Removes the last entry of the time index, which has no counterpart in the offset index.
        """
        self._bytes_since_entry = size - self.offsets.position_up_to(size)
        last = self.offsets.last()
        self.times.truncate_to(self._base_offset + (last[0] + 1 if last else 0))

    def add(self, last_offset: int, position: int, size: int, max_timestamp: int) -> None:
        """Add one batch, at `position` in the file and `size` bytes long."""
        known = self.max_timestamp
        assert known is not None, "the largest timestamp is unknown"
        if max_timestamp > known:
            self.max_timestamp = known = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_entry > self.interval_bytes:
            self.offsets.append(last_offset, position)
            if known != NO_TIMESTAMP:
                self.times.append(known, self.offset_of_max_timestamp)
            self._bytes_since_entry = size
        else:
            self._bytes_since_entry += size

    def end_with(self, last_offset: int, position: int) -> None:
        """Note the last batch of a segment that is complete: if the log file loses its end, the index shows
        it. A batch at position 0 needs no entry."""
        last = self.offsets.last()
        if position and (last is None or last[1] < position) and not self.offsets.is_full:
            self.offsets.append(last_offset, position)

    @property
    def are_ahead(self) -> bool:
        """Whether entries are only in memory."""
        return self.offsets.is_ahead

    def write(self) -> None:
        """Write the entries that are only in memory."""
        self.offsets.write()
        self.times.write()

    def finish(self) -> None:
        """Write the final indexes: no batch follows."""
        self._note_max_timestamp()
        self.offsets.write(create=True)
        self.times.write(create=True)

    def _note_max_timestamp(self) -> None:
        max_timestamp = self.max_timestamp
        assert max_timestamp is not None, "the largest timestamp is unknown"
        if max_timestamp != NO_TIMESTAMP:
            self.times.append(max_timestamp, self.offset_of_max_timestamp)

    def truncate_to(self, end_offset: int, size: int) -> None:
        """Remove the entries of batches at or after `end_offset`; the log is truncated to `size` bytes."""
        self.offsets.truncate_to(end_offset, size)
        self.times.truncate_to(end_offset)

    def exist(self) -> bool:
        """Whether both files exist."""
        return self._files.disk.exists(self.offsets.path) and self._files.disk.exists(self.times.path)

    def remove(self) -> None:
        """Remove both files, and all entries."""
        for index in (self.offsets, self.times):
            self._files.forget(index.path)
            self._files.disk.remove(index.path)
            index.reload()

    def reload(self) -> None:
        """Forget what is in memory of the two files, which have been rebuilt from the batches."""
        self.offsets.reload()
        self.times.reload()
        self.max_timestamp = None


def largest_timestamp(segment: SegmentView) -> tuple[int, int]:
    """The largest timestamp of a segment, in ms, and the last offset of the first batch that has it; -1 and
    the base offset if no record has a timestamp.

    The index of a closed segment ends with its largest timestamp; only the batches after that entry are read.
    Raises OSError, and `SuspectSegment` where the batches cannot be read.
    """
    indexes = segment.indexes
    largest, offset, start = NO_TIMESTAMP, segment.base_offset, 0
    last = indexes.times.last()
    if last is not None and suspicion.confirms(segment, last[0], segment.base_offset + last[1]):
        largest, offset = last[0], segment.base_offset + last[1]
        start = indexes.offsets.position_below(offset)
    for header in segment.headers(start):
        if header.max_timestamp > largest:
            largest, offset = header.max_timestamp, header.last_offset
    return largest, offset
