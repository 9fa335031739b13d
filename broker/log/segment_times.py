"""What retention needs to know of a log's segments, above all the time of each one's latest record.

The largest timestamp of a segment that was loaded from disk is unknown until it is read from the time index
and from the batches after its last entry. A worker reads it, because the files may not be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.retention import SegmentFacts
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segment_indexes import largest_timestamp


def segment_facts(log: Log, now_ms: int) -> Iterator[SegmentFacts]:
    """The facts of each segment, oldest first, at this time of day. Raises OSError."""
    for segment, following in zip_longest(log.segments, islice(log.segments, 1, None)):
        yield SegmentFacts(
            segment.base_offset,
            segment.next_offset if following is None else following.base_offset,
            segment.size,
            _latest_ms(log, segment, now_ms),
            is_active=segment is log.segments.active,
        )


def _latest_ms(log: Log, segment: Segment, now_ms: int) -> int | None:
    latest_ms = segment.indexes.max_timestamp
    if latest_ms is None:
        return None
    if segment.damage is not None:
        # Some records cannot be read.
        latest_ms = max(latest_ms, log.disk.modified_ms(segment.path))
    return believed_ms(log, segment, latest_ms, now_ms)


def believed_ms(log: Log, segment: Segment, latest_ms: int, now_ms: int) -> int:
    """When the latest record of a segment was written: by `latest_ms`, the largest timestamp; by the file's
    last write if there is none, or if that time has not come. Otherwise one record with a timestamp in a
    thousand years would keep its log for a thousand years. Raises OSError."""
    if 0 <= latest_ms <= now_ms:
        return latest_ms
    written_ms = log.disk.modified_ms(segment.path)
    return written_ms if latest_ms < 0 else min(latest_ms, written_ms)


@dataclass(frozen=True, slots=True)
class TimestampReading:
    """Reads the largest timestamp of one segment. `run` is for a worker: it uses files of its own."""

    log: Log
    segment: Segment
    copy: Segment
    truncations: int

    @classmethod
    def of(cls, log: Log, base_offset: int) -> TimestampReading:
        """A reading of the segment that begins at `base_offset`."""
        segment = next(log.segments.from_offset(base_offset))
        copy = Segment(OpenFiles(log.disk, capacity=4), log.directory, segment.base_offset, log.settings)
        copy.size, copy.next_offset = segment.size, segment.next_offset
        copy.is_dense, copy.damage = segment.is_dense, segment.damage
        return cls(log, segment, copy, log.truncations)

    def run(self) -> tuple[int, int]:
        """Returns (largest timestamp in ms, or -1; offset of its batch). Raises OSError, and `SuspectSegment`
        if the batches cannot be read."""
        return largest_timestamp(self.copy)

    @property
    def is_current(self) -> bool:
        """Whether the log still has the segment as it was when the reading began."""
        log, segment = self.log, self.segment
        return (
            log.failure is None
            and log.truncations == self.truncations
            and segment in log.segments
            and segment.size == self.copy.size
        )

    def finish(self, result: tuple[int, int]) -> None:
        """Take over what was read, unless the segment has changed meanwhile."""
        indexes = self.segment.indexes
        if self.is_current and indexes.max_timestamp is None:
            indexes.max_timestamp, indexes.offset_of_max_timestamp = result
