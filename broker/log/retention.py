"""Decides which segments at a log's beginning are removed: by age, by size, and by the log start.

The decision (Kafka design §4.8) is a function of values, without files or a clock.
`broker.replication.retention` collects the values and carries the decision out.

Segments are removed only whole, only from the log's beginning, and only below the high watermark: records
that are not committed are never removed. The active segment can be among them. The log then rolls, and its
new active segment is empty.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_log.broker.log.settings import LogSettings

UNLIMITED = -1


class RemovalReason(enum.Enum):
    """Why a segment is removed; the value names what the operator can change."""

    LOG_START = "the log start offset"
    SIZE = "retention.bytes"
    AGE = "retention.ms"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """The limits of one log; -1 stands for no limit."""

    age_ms_max: int = UNLIMITED
    bytes_max: int = UNLIMITED

    @classmethod
    def of(cls, settings: LogSettings, *, is_internal: bool) -> RetentionRule:
        """The limits that a log's settings set. Age and size limit only logs with cleanup.policy=delete, and
        never the broker's internal topics: their old records are still in use."""
        if is_internal or not settings.is_deleted:
            return cls()
        return cls(settings.retention_ms, settings.retention_bytes)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the decision needs to know of one segment.

    `next_offset` is where the following segment begins, or the log end. After compaction it may be later than
    the segment's last record.
    `latest_ms` is the largest timestamp of a record in ms, or, if no record has one or that time has not come
    yet, the time at which the file was last written; None if it has not been read yet.
    """

    base_offset: int
    next_offset: int
    size: int
    latest_ms: int | None
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """The decision about one log: its new start, and the segments before it that can be removed, oldest
    first, each with the reason.

    `unread` is the base offset of the segment that would be next if it is old enough, but whose `latest_ms`
    must be read first. `kept_by_future` is the base offset of the first segment that stays, if even its
    file was written later than now, so that a clock must be wrong.
    """

    log_start_offset: int
    segments: tuple[tuple[int, RemovalReason], ...] = ()
    unread: int | None = None
    kept_by_future: int | None = None


def removal(
    segments: Iterable[SegmentFacts],
    rule: RetentionRule,
    *,
    size_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Removal:
    """Decide about a log of `size_bytes`. `segments` are all its segments, oldest first; they are read only
    up to the first one that stays.

    A segment is removed if all its records lie before the log start, if the log has at least
    `rule.bytes_max` bytes without it, or if its latest record is older than `rule.age_ms_max`. A record whose
    timestamp is in the future counts as old as its file.
    """
    removed: list[tuple[int, RemovalReason]] = []
    start = log_start_offset
    for segment in segments:
        is_empty = segment.is_active and not segment.size
        if is_empty or segment.next_offset > high_watermark:
            break
        if not segment.is_active and segment.next_offset <= log_start_offset:
            reason = RemovalReason.LOG_START
        elif 0 <= rule.bytes_max <= size_bytes - segment.size:
            reason = RemovalReason.SIZE
        elif rule.age_ms_max < 0:
            break
        elif segment.latest_ms is None:
            return Removal(start, tuple(removed), unread=segment.base_offset)
        elif now_ms - segment.latest_ms > rule.age_ms_max:
            reason = RemovalReason.AGE
        else:
            future = segment.base_offset if segment.latest_ms > now_ms else None
            return Removal(start, tuple(removed), kept_by_future=future)
        removed.append((segment.base_offset, reason))
        size_bytes -= segment.size
        start = max(start, segment.next_offset)
    return Removal(start, tuple(removed))
