"""A copy of a damaged segment, which replaces it: another broker's batches, and indexes built from them.

Workers write the copy into files of their own, and read it again as the scrubber reads every segment: a copy
that is damaged too replaces nothing. The files then take the segment's names in one turn of the reactor. The
old indexes do not fit the copy of a compacted segment: the other broker may have removed batches that they
name.
"""

from __future__ import annotations

from holdfast_log.broker.log import names
from holdfast_log.broker.log.inspection import Inspection
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.protocol.errors import ErrorCode, error_for

_INDEXES = (names.INDEX, names.TIME_INDEX)


class SegmentCopy:
    """The copy of a closed segment. Methods raise OSError from the disk.

    Workers call `begin`, `append`, `sync` and then `write_indexes`, one at a time.
    The reactor calls `inspection` after `sync`, and `replace_segment` last."""

    def __init__(self, log: Log, segment: Segment) -> None:
        self._log = log
        self._segment = segment
        self._path = segment.path + names.TEMPORARY
        self.size = 0
        """The number of bytes that were appended."""

    def begin(self) -> None:
        """Create the file, empty."""
        disk = self._log.disk
        disk.remove(self._path)
        disk.open(self._path, create=True).close()

    def append(self, records: bytes) -> None:
        """Append whole batches."""
        file = self._log.disk.open(self._path)
        file.append([records])
        file.close()
        self.size += len(records)

    def sync(self) -> None:
        """Make the batches durable."""
        file = self._log.disk.open(self._path)
        file.fsync()
        file.close()

    def inspection(self) -> Inspection:
        """An examination of the copy, as of the segment that it is to replace."""
        log, segment = self._log, self._segment
        return Inspection(
            log.disk,
            self._path,
            segment.base_offset,
            self.size,
            segment.next_offset,
            segment.is_dense,
            log.epochs.entries,
            log.log_start_offset,
            log.settings.index_interval_bytes,
        )

    def write_indexes(self, inspection: Inspection) -> None:
        """Write the indexes that an examination of the whole copy has built. Raises BrokerError with
        CORRUPT_MESSAGE if it has found damage."""
        if inspection.damage is not None:
            raise error_for(
                ErrorCode.CORRUPT_MESSAGE,
                f"the copy is damaged at byte {inspection.damage.position}: {inspection.damage.reason}",
            )
        inspection.write_indexes(*(self._segment.path_of(kind) + names.TEMPORARY for kind in _INDEXES))

    def replace_segment(self) -> None:
        """Give the files the segment's names, the log last: before that the segment counts as damaged."""
        disk, segment = self._log.disk, self._segment
        for kind in (*_INDEXES, names.LOG):
            path = segment.path_of(kind)
            disk.rename(path + names.TEMPORARY, path)
        segment.replaced(self.size)
