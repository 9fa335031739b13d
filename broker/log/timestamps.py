"""Looks up a record by timestamp, in steps: the reactor's thread finds the segment, and the caller chooses
the thread that finds the batch in it and unpacks that, because both may take long.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast_log.broker.log.decompression import DECOMPRESSED_BYTES_MAX
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, corrupt
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.record_validation import find_batch, find_time
from holdfast_log.protocol.records import records_of

_PIECE_BYTES = 256 * 1024
"""Bytes of headers and records that a look-up reads at a time."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its timestamp, in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """The search in one batch for the first record from `start_offset` on with `timestamp` or a later one.

    Any thread may run it: it uses no log.
    """

    file: DiskFile
    header: BatchHeader
    timestamp: int
    start_offset: int

    def run(self) -> TimestampOffset | None:
        """The record; None if the batch has none. Raises OSError, and BrokerError for a batch that cannot be
        unpacked."""
        header = self.header
        try:
            batch = self.file.pread(header.size, header.position)
            # Records later than their batch's maximum are skipped: such timestamps are invalid.
            found = find_time(
                records_of(batch, header._replace(position=0), limit=DECOMPRESSED_BYTES_MAX),
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


@dataclass(frozen=True, slots=True)
class HeaderSearch:
    """The search in one segment, from `position` to `end`, for the first batch with `timestamp` or a later
    one that does not end before `start_offset`. Any thread may run it: it uses no log."""

    file: DiskFile
    position: int
    end: int
    timestamp: int
    start_offset: int

    def run(self) -> int:
        """Position of the batch, or of bytes that are no batch; `end` if there is neither. Raises OSError."""
        position = self.position
        while self.end - position >= HEADER_SIZE:
            piece = self.file.pread(min(_PIECE_BYTES, self.end - position), position)
            found = find_batch(piece, self.timestamp, self.start_offset)
            position += found
            if found + HEADER_SIZE <= len(piece) or not found:
                return position
        return self.end


LookUp: TypeAlias = "Generator[BatchSearch | HeaderSearch, Any, TimestampOffset | None]"
"""A look-up in progress: yields searches for a worker; send it the result of each, or throw the error into
it."""
