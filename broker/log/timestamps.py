"""Looks up a record by timestamp, in steps: the reactor's thread finds the batch, and the caller chooses the
thread that unpacks it, because unpacking may take long.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.records import Columns, decode_columns

LOOK_UP_BYTES_MAX = 32 * 1024 * 1024
"""Maximum bytes to which a look-up unpacks one batch, unless larger batches are allowed."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its timestamp, in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """The search in one batch for the first record from `start_offset` on with `timestamp` or a later one.

    Any thread may run it: it uses no log. At most `limit` bytes are unpacked.
    """

    file: DiskFile
    header: BatchHeader
    timestamp: int
    start_offset: int
    limit: int

    def run(self) -> TimestampOffset | None:
        """The record; None if the batch has none. Raises OSError, and BrokerError for a batch that cannot be
        unpacked."""
        header = self.header
        try:
            columns = decode_columns(self.file.pread(header.size, header.position), limit=self.limit)
        except BrokerError as error:
            refusal = error_for(error.code, error.message)
        else:
            return self._first_in(columns)
        # A new error after the first is freed: its traceback would keep the unpacked records until the next
        # garbage collection.
        raise refusal

    def _first_in(self, columns: Columns) -> TimestampOffset | None:
        header = self.header
        for offset, timestamp in zip(columns.offsets, columns.timestamps, strict=True):
            # Skip records later than their batch's maximum: such timestamps are invalid.
            if self.timestamp <= timestamp <= header.max_timestamp and offset >= self.start_offset:
                return TimestampOffset(offset, timestamp, header.leader_epoch)
        return None


LookUp: TypeAlias = "Generator[BatchSearch, TimestampOffset | None, TimestampOffset | None]"
"""A look-up in progress: yields searches; send it the result of each, or throw the error into it."""
