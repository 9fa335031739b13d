"""Looks up a record by timestamp, in steps: the reactor's thread finds the segment, and workers walk over its
batches and unpack them, because both may take long.

A segment may change while a worker reads it: a truncation cuts its file, and other records are written there.
So a worker believes a batch only if its checksum fits, and says where it came upon something else; the
reactor's thread, which makes the changes, knows whether that is damage (`broker.log.time_search`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast_log.broker.log.decompression import DECOMPRESSED_BYTES_MAX
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, corrupt, has_valid_crc, read_header
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.record_validation import find_batch, find_time
from holdfast_log.protocol.records import records_of
from holdfast_log.protocol.wire import Buffer

_PIECE_BYTES = 64 << 10
"""Bytes of headers and records that a search reads at a time."""
_STEP_BYTES = 4 << 20
"""Bytes after which a search lets others have their turn."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its timestamp, in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


class SearchStep(NamedTuple):
    """What one step of a search has come to: the record, or the position from which to go on. `doubt` says
    what at that position is no sound batch."""

    position: int
    found: TimestampOffset | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentSearch:
    """One step of the search in a segment, from `position` to `end`, for the first record from `start_offset`
    on with `timestamp` or a later one.

    Any thread may run it: it uses no log.
    """

    file: DiskFile
    position: int
    end: int
    timestamp: int
    start_offset: int

    def run(self, batch_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> SearchStep:
        """Search in some megabytes. A batch is decompressed to at most `batch_bytes_max`. Raises OSError, and
        BrokerError with CORRUPT_MESSAGE for a sound batch whose records cannot be unpacked."""
        position, left = self.position, _STEP_BYTES
        while left > 0 and position < self.end:
            piece = self.file.pread(min(_PIECE_BYTES, self.end - position), position)
            passed = find_batch(piece, self.timestamp, self.start_offset)
            position += passed
            left -= len(piece)
            if passed and passed + HEADER_SIZE > len(piece):
                continue  # No such batch begins in the piece.
            header = self._header(piece, passed)
            if header is None:
                return SearchStep(position, doubt=f"no batch begins at position {position}")
            if header.record_count:  # Compaction may have left no record of the batch.
                if header.has_log_append_time:
                    offset = max(header.base_offset, self.start_offset)
                    return SearchStep(
                        position, TimestampOffset(offset, header.max_timestamp, header.leader_epoch)
                    )
                batch = self.file.pread(header.size, position)
                if len(batch) != header.size or not has_valid_crc(batch, header):
                    return SearchStep(position, doubt=f"the batch at position {position} is damaged")
                left -= len(batch)
                found = self._in_batch(batch, header, batch_bytes_max)
                if found is not None:
                    return SearchStep(position, found)
            position += header.size
        if position > self.end:
            return SearchStep(position, doubt=f"its last batch ends at position {position}, beyond its end")
        return SearchStep(position)

    def _header(self, piece: Buffer, position: int) -> BatchHeader | None:
        """The header of the batch at a position of the piece, as if the piece began there."""
        try:
            return read_header(piece[position:])
        except BrokerError:
            return None

    def _in_batch(self, batch: Buffer, header: BatchHeader, batch_bytes_max: int) -> TimestampOffset | None:
        try:
            # Records later than their batch's maximum are skipped: such timestamps are invalid.
            found = find_time(
                records_of(batch, header, limit=batch_bytes_max),
                header.record_count,
                header.base_timestamp,
                self.timestamp,
                header.max_timestamp,
                self.start_offset - header.base_offset,
            )
        except BrokerError as error:
            refusal = error_for(error.code, error.message)
        except ValueError as error:
            refusal = corrupt(str(error))
        else:
            if found is None:
                return None
            delta, timestamp = found
            return TimestampOffset(header.base_offset + delta, timestamp, header.leader_epoch)
        # A new error after the first is freed: its traceback would keep the unpacked records until the next
        # garbage collection.
        raise refusal


LookUp: TypeAlias = "Generator[SegmentSearch, SearchStep, TimestampOffset | None]"
"""A look-up in progress: yields searches for a worker; send it the result of each, or throw the error into
it."""
