"""Finds the batches of a read in the files of a log: the part of `Log.read` that looks for them.

A read names whole batches in one file, to be sent from there. Their headers are checked before that, because
a disk may change its content; where it would wait for the device, they are checked once they are in memory.
Damage that is found is reported to the log, which has the segment examined.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast_log.broker.log import behind_damage
from holdfast_log.broker.log.batch_order import BatchOrder
from holdfast_log.broker.log.damage import Damage, SuspectSegment
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.known_reads import KnownRead
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segments import Segments
from holdfast_log.broker.log.suspicion import check_batches
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.frames import FileSlice
from holdfast_log.protocol.topic_partition import TopicPartition


class LogRead(NamedTuple):
    """Whole batches, still in their file.

    `slice` is None if there is nothing to read below the upper offset. The first batch may begin before the
    requested offset. If sending the slice would wait for the device, `unchecked` is what its batches must be
    like: they have to be checked once they are in memory.
    """

    slice: FileSlice | None
    first_offset: int
    next_offset: int
    unchecked: BatchOrder | None = None


class ReadableLog(Protocol):
    """What a read needs of a `broker.log.log.Log`, which calls this module."""

    topic_partition: TopicPartition
    log_start_offset: int
    segments: Segments
    epochs: LeaderEpochs
    files: OpenFiles

    def refused(self, error: OSError) -> BrokerError:
        """Handle a failure of the file system. Returns the error for the caller."""

    def suspect(self, segment: Segment, error: SuspectSegment) -> BrokerError:
        """Have a segment examined. Returns the error for the caller."""


class Reading:
    """One read from `offset` on, in progress; `segment` is where it has come."""

    __slots__ = (
        "_log", "_max_bytes", "_min_one_batch", "_offset", "_segment", "_skips_empty", "_upper_offset",
    )  # fmt: skip

    def __init__(
        self,
        log: ReadableLog,
        segment: Segment,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        *,
        min_one_batch: bool,
        skips_empty: bool,
    ) -> None:
        self._log = log
        self._segment = segment
        self._offset = offset
        self._max_bytes = max_bytes
        self._upper_offset = upper_offset
        self._min_one_batch = min_one_batch
        self._skips_empty = skips_empty

    def run(self) -> LogRead:
        """The batches, as `Log.read` says. Raises BrokerError."""
        segment, offset = self._segment, self._offset
        try:
            if segment.damage is not None and behind_damage.is_behind(segment, offset):
                return self._read_behind()
            known = self._known()
            if known is None:
                known = self._find()
            if known is None:
                return LogRead(None, offset, offset)
            file = self._segment.file_to_send()
            start, end = known.start, known.end
            unchecked = self._check(file, known)
        except OSError as error:
            raise self._log.refused(error) from error
        except SuspectSegment as error:
            raise self._log.suspect(self._segment, error) from error
        return LogRead(FileSlice(file, start, end - start), offset, known.next_offset, unchecked)

    def _known(self) -> KnownRead | None:
        """What an earlier read has found, if this one finds the same."""
        segment = self._segment
        if segment.damage is not None or not (segment.is_dense or not self._skips_empty):
            return None
        known = self._log.files.known_reads.find(segment.content, self._offset, self._max_bytes)
        if known is not None and known.is_found_by(
            self._upper_offset, self._max_bytes, min_one_batch=self._min_one_batch
        ):
            return known
        return None

    def _find(self) -> KnownRead | None:
        """Look for the batches; None if there are none."""
        start = self._start()
        if start is None:
            return None
        skips_empty = self._skips_empty
        if skips_empty and not self._segment.is_dense:
            start = self._first_with_records(start)
        segment, offset, max_bytes = self._segment, self._offset, self._max_bytes
        extent = segment.extent(start, max_bytes, self._upper_offset, min_one_batch=self._min_one_batch)
        if extent is None:
            return None
        end = extent.end_position
        known_reads = self._log.files.known_reads
        known = known_reads.find(segment.content, offset, max_bytes)
        if known is None or known.start != start or known.end != end:
            # Only a consumer passes over batches without records.
            is_full = extent.is_full or (end == segment.size and segment is not self._log.segments.active)
            is_full = is_full and (segment.is_dense or not skips_empty)
            known = KnownRead(start, end, extent.next_offset, is_full=is_full)
            if is_full or not segment.is_fresh(start):
                known_reads.remember(segment.content, offset, max_bytes, known)
        return known

    def _start(self) -> int | None:
        """The position of the first batch that ends at or after the offset, in this or a later segment."""
        segment, offset = self._segment, self._offset
        if segment.damage is None:
            start = segment.position_of(offset)
            if start is not None:
                return start
        for segment in self._log.segments.from_offset(offset):
            self._segment = segment
            if segment.damage is not None:
                self._check_readable(segment.damage)
                self._upper_offset = min(self._upper_offset, segment.damage.offset)
            start = segment.position_of(offset)
            if start is not None:
                return start
            if segment.is_dense and offset < segment.next_offset:
                raise SuspectSegment(f"{segment.path} has no offset {offset}")
        return None

    def _check_readable(self, damage: Damage) -> None:
        if self._offset >= damage.offset:
            raise error_for(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._log.topic_partition} is damaged from offset {damage.offset} on: {damage.reason}",
            )

    def _first_with_records(self, start: int) -> int:
        """The position of the first batch with records, from position `start` on, maybe in a later segment;
        `start` if there is none."""
        for number, each in enumerate(self._log.segments.from_offset(self._segment.base_offset)):
            for header in each.headers(0 if number else start):
                if header.record_count:
                    self._segment = each
                    return header.position
            if each.damage is not None:
                break
        return start

    def _check(self, file: DiskFile, known: KnownRead) -> BatchOrder | None:
        """Check the headers of the batches, unless that was done a short time ago. What they must be like is
        returned if it cannot be done yet."""
        segment, start, end = self._segment, known.start, known.end
        # What was checked or appended a short time ago is in memory, or all of it has left.
        is_checked = known.is_checked() or segment.is_fresh(start)
        if not file.is_cached(1 if is_checked else end - start, start):
            return self._order_to_check_later()
        if not is_checked:
            check_batches(segment, start, end, self._order())
            known.remember_checked()
        return None

    def _read_behind(self) -> LogRead:
        """Read sound batches behind the damage of a segment; they have to be checked before they are sent."""
        segment, offset = self._segment, self._offset
        found = behind_damage.find_behind(
            segment, offset, self._max_bytes, self._upper_offset, min_one_batch=self._min_one_batch
        )
        if found is None:
            return LogRead(None, offset, offset)
        order = self._order_to_check_later()
        piece = FileSlice(segment.file_to_send(), found.start, found.end - found.start)
        return LogRead(piece, offset, found.next_offset, order)

    def _order(self) -> BatchOrder:
        """What batches of the segment must be like, from the one with the offset on."""
        log, segment = self._log, self._segment
        upper_offset = None if segment is log.segments.active else segment.next_offset
        epochs = log.epochs
        return BatchOrder(
            self._offset, segment.is_dense, log.log_start_offset, upper_offset, epochs.epoch_at, epochs.latest
        )

    def _order_to_check_later(self) -> BatchOrder:
        """The same, as it is now: the log may change until the batches are in memory."""
        order = self._order()
        order.epoch_at = LeaderEpochs(self._log.epochs.entries).epoch_at
        return order
