"""Decides how the rows of one task get into one topic partition exactly once.

The rows are cut into chunks, numbered from 0. A chunk is one conditional append (KIP-27) with an append id,
which names query, micro-batch, task and number. Rules that every attempt of the task keeps:

1. A chunk is appended only if the attempt knows that no chunk of its number is in the log before the offset
   that it expects. So there is at most one chunk of each number.
2. A chunk is appended only after the one before it. So the chunks of a line are a sequence without a gap.
3. A chunk that another attempt has written is read back. If it has the rows that this attempt would write, in
   their order, it counts as written. Otherwise this attempt has received its rows in another order: from then
   on it compares row by row, and leaves out each row that is in the log already.

So the log has each row once, whichever attempts run, one after the other or at the same time, and wherever
they stop. The attempts must only receive the same rows; if they do not, RowsDifferError says so.

Nothing here waits or sends: `next_step` says what to do, and one of the other methods takes the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast_log.pipeline.sink.chunks import LineIdentity, RowBuffer, RowColumns, SinkRow, append_id
from holdfast_log.protocol.topic_partition import TopicPartition

UNKNOWN_REACH = -1


class SinkError(Exception):
    """The sink cannot write; the message says why and what to do."""


class RowsDifferError(SinkError):
    """An earlier attempt of the same task wrote rows that this attempt did not receive."""


class WrittenRowsGoneError(SinkError):
    """Rows that an earlier attempt wrote cannot be compared, because they have been deleted."""


class LogShrankError(SinkError):
    """The log has lost records that were acknowledged."""


@dataclass(frozen=True, slots=True)
class AppendChunk:
    """Append `rows` with `name` as append id if the log ends at `expected_offset`."""

    name: bytes
    rows: RowColumns
    expected_offset: int


@dataclass(frozen=True, slots=True)
class ScanLog:
    """Read the log from `start` to before `end` (None: to its end), and report the line's chunks there."""

    start: int
    end: int | None


Step = AppendChunk | ScanLog


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A chunk of the line in the log. `rows` is None if some of its records no longer exist."""

    number: int
    first_offset: int
    end_offset: int
    rows: RowColumns | None


@dataclass(slots=True)
class LineCounts:
    """What an attempt did in one topic partition, or in several.

    `conflicts`: appends that were refused because the log had grown. `repeats`: chunks that an earlier
    attempt had written. `scans`: times the log was read back. `rows_found`: rows not written because they
    were in the log. `reorders`: times that an earlier attempt's rows were found in another order.
    """

    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    conflicts: int = 0
    repeats: int = 0
    scans: int = 0
    rows_found: int = 0
    reorders: int = 0

    def add(self, other: LineCounts) -> None:
        """Add the counts of `other` to these."""
        for name in LineCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class _Merge:
    """Rows in the log that this attempt has not met yet, with their numbers."""

    rows: Counter[SinkRow] = field(default_factory=Counter)

    def add(self, rows: RowColumns) -> None:
        self.rows.update(_comparable(row) for row in rows)

    def without_known(self, rows: RowColumns) -> RowColumns:
        """The rows that are not in the log; each that is there is left out once."""
        left: list[SinkRow] = []
        for row in rows:
            known = _comparable(row)
            if self.rows[known] > 0:
                self.rows[known] -= 1
            else:
                left.append(row)
        return RowColumns.of(left)


class ChunkLine:
    """The chunks of one task for one topic partition, in one attempt.

    `start` is an offset before which the log has no chunk of the line. Rows go in by `add`, and `finish`
    says that there are no more. All methods raise `SinkError`.
    """

    def __init__(
        self,
        identity: LineIdentity,
        partition: TopicPartition,
        start: int,
        *,
        bytes_max: int,
        rows_max: int,
    ) -> None:
        self.partition = partition
        self.counts = LineCounts()
        self._identity = identity
        self._prefix = identity.prefix
        self._absent_before = start
        """The log has no chunk with the number `_next` before this offset."""
        self._next = 0
        self._buffer = RowBuffer(bytes_max, rows_max)
        self._chunk: RowColumns | None = None
        self._scan: ScanLog | None = None
        self._after_scan: int | None = None
        """Where the log ended when the scan became necessary, if everything from the scan's end to there is
        known already."""
        self._must_find = False
        """Whether the log has a chunk `_next`, so that a scan which does not find it shows a loss."""
        self._merge: _Merge | None = None
        self._may_continue = False
        """Whether the log may have a chunk `_next`, because another attempt has written the one before."""
        self._has_ended = False

    @property
    def prefix(self) -> bytes:
        """The beginning of the append ids of this line."""
        return self._prefix

    @property
    def end_offset(self) -> int:
        """The offset after the last chunk, once the line is done."""
        return self._absent_before

    @property
    def backlog(self) -> float:
        """How many chunks wait, about."""
        return self._buffer.fill + (self._chunk is not None)

    @property
    def is_done(self) -> bool:
        """Whether all rows are in the log."""
        return self._has_ended and self.next_step() is None

    # Rows ---------------------------------------------------------------------------------------------

    def add(self, rows: RowColumns) -> None:
        """Add rows at the end of the line."""
        if self._merge is not None:
            rows = self._left_of(self._merge, rows)
        self._buffer.add(rows)

    def finish(self) -> None:
        """There are no more rows."""
        self._has_ended = True

    # Steps --------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """What to do next; None to wait for more rows, or if the line is done. Raises RowsDifferError once
        the line is done and the log has rows of it which this attempt did not receive."""
        if self._scan is not None:
            return self._scan
        if self._has_chunk():
            assert self._chunk is not None
            return AppendChunk(append_id(self._prefix, self._next), self._chunk, self._absent_before)
        if self._has_ended and self._may_continue:
            self._scan = ScanLog(self._absent_before, None)
            return self._scan
        if self._has_ended and self._merge is not None:
            self._check_all_met(self._merge)
        return None

    def appended(self, first_offset: int, size: int = 0) -> None:
        """The chunk was written at this offset, in a batch of `size` bytes."""
        assert self._chunk is not None
        self.counts.chunks += 1
        self.counts.rows += len(self._chunk)
        self.counts.bytes += size
        self._pass(first_offset + len(self._chunk), may_continue=False)

    def repeated(self, first_offset: int) -> None:
        """The log already had a chunk with this id, at this offset."""
        self._scan = ScanLog(first_offset, first_offset + 1)
        self._must_find = True

    def contested(self) -> None:
        """The log already had a chunk with this id, and another number of rows; where was not said."""
        self._scan = ScanLog(self._absent_before, None)
        self._must_find = True

    def mismatched(self, end_offset: int, ids_from: int = UNKNOWN_REACH) -> None:
        """Nothing was written: the log ends at `end_offset`.

        `ids_from` is the offset from which on the broker remembers all append ids: it does not know the
        chunk's id, so the log does not have the chunk from there to its end.
        """
        self.counts.conflicts += 1
        start = self._absent_before
        if end_offset < start:
            self._check_shrunk(end_offset)
            self._absent_before = end_offset
        elif UNKNOWN_REACH < ids_from <= start:
            self._absent_before = end_offset
        else:
            stop = end_offset if ids_from == UNKNOWN_REACH else min(ids_from, end_offset)
            self._scan = ScanLog(start, stop)
            self._after_scan = end_offset

    def scanned(self, found: Sequence[FoundChunk], end_offset: int) -> None:
        """The line's chunks in the part of the log that was scanned, in order; it was read up to
        `end_offset`."""
        assert self._scan is not None
        scan, self._scan = self._scan, None
        known_to, self._after_scan = self._after_scan, None
        must_find, self._must_find = self._must_find, False
        self.counts.scans += 1
        is_new = False
        for chunk in found:
            if chunk.number != self._next:
                continue
            if is_new and self._merge is None and not self._has_chunk() and not self._has_ended:
                break  # There are not enough rows yet to compare it with: it will be found again.
            self._meet(chunk)
            is_new = True
        if is_new and self._merge is not None:
            # All that the log has of the line must be known before rows are compared with it.
            self._scan = ScanLog(self._absent_before, None)
            return
        if is_new:
            return
        if must_find:
            raise WrittenRowsGoneError(
                f"{self._where}: chunk {self._next} was written at or behind offset {scan.start} by an "
                "earlier attempt, and cannot be read any more (retention, compaction or DeleteRecords). "
                "Whether its rows are complete cannot be known: see docs/spark-sink.md, Retention"
            )
        self._absent_before = end_offset if known_to is None else known_to
        self._may_continue = False
        if self._merge is not None:
            self._filter(self._merge)

    def _has_chunk(self) -> bool:
        """Whether there is a chunk to write; cuts one if there are enough rows."""
        if self._chunk is None and (self._buffer.is_full or (self._has_ended and len(self._buffer))):
            self._chunk = self._buffer.cut()
        return self._chunk is not None

    def _meet(self, chunk: FoundChunk) -> None:
        """Take a chunk that is in the log into account."""
        if chunk.rows is None:
            raise WrittenRowsGoneError(
                f"{self._where}: records of chunk {chunk.number}, from offset {chunk.first_offset} on, were "
                "deleted (retention or compaction), so they cannot be compared with the rows of this "
                "attempt: see docs/spark-sink.md, Retention"
            )
        self.counts.repeats += 1
        if self._merge is None and self._chunk is not None and _are_equal(self._chunk, chunk.rows):
            self.counts.rows_found += len(self._chunk)
            self._pass(chunk.end_offset, may_continue=True)
            return
        if self._merge is None:
            self._merge = _Merge()
            self.counts.reorders += 1
        self._merge.add(chunk.rows)
        self._next += 1
        self._absent_before = chunk.end_offset
        self._may_continue = True

    def _pass(self, end_offset: int, *, may_continue: bool) -> None:
        self._chunk = None
        self._next += 1
        self._absent_before = end_offset
        self._may_continue = may_continue

    def _filter(self, merge: _Merge) -> None:
        """Leave out what the log has of the rows that are not written yet."""
        rows, self._chunk = self._chunk or RowColumns(), None
        rows.extend(self._buffer.take_all())
        self._buffer.add(self._left_of(merge, rows))

    def _left_of(self, merge: _Merge, rows: RowColumns) -> RowColumns:
        left = merge.without_known(rows)
        self.counts.rows_found += len(rows) - len(left)
        return left

    # Errors -------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        identity = self._identity
        return f"{self.partition}, {identity.query} micro-batch {identity.batch} task {identity.task}"

    def _check_all_met(self, merge: _Merge) -> None:
        strange = merge.rows.total()
        if strange:
            raise RowsDifferError(
                f"{self._where}: an earlier attempt wrote {strange} rows which this attempt did not receive. "
                "A retry must compute the same rows: look for random values, clocks and sources that change "
                "in the query, or give it delivery=at-least-once"
            )

    def _check_shrunk(self, end_offset: int) -> None:
        if self._next:
            raise LogShrankError(
                f"{self._where}: the log ends at {end_offset}, before offset {self._absent_before}, where "
                "acknowledged records were: an unclean election has lost records"
            )


def _comparable(row: SinkRow) -> SinkRow:
    key, value, headers = row
    return key, value, tuple(headers)


def _are_equal(ours: RowColumns, theirs: RowColumns) -> bool:
    if ours.keys != theirs.keys or ours.values != theirs.values:
        return False
    if ours.headers is None and theirs.headers is None:
        return True
    return [tuple(headers) for _, _, headers in ours] == [tuple(headers) for _, _, headers in theirs]
