"""Decides which part of a log can be compacted, whether enough of it, and which of its segments become one.

A log consists of a part that has been compacted (*clean*), a part that can be (*dirty*), and a rest that
cannot yet: the active segment, records that are not committed or not durable, open transactions, damage, and
records younger than `min.compaction.lag.ms`. Only whole segments are compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from holdfast_log.broker.cleaning.sources import UncleanableSegment
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.index_entries import SEGMENT_OFFSETS_MAX
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segment_times import believed_ms
from holdfast_log.broker.log.settings import LogSettings

_GROUP_MAX = 32
"""Maximum number of segments that become one: all their files are renamed in one turn of the reactor."""
_TIME_ENTRY_BYTES = 12
NO_LIMIT_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What a pass over a log does: `segments` are all clean and dirty ones, oldest first, `first_dirty` is
    the offset from which on records are dirty. `is_due`: a record has waited longer than
    `max.compaction.lag.ms`. Without dirty segments the pass only removes tombstones."""

    log: Log
    segments: tuple[Segment, ...]
    first_dirty: int
    clean_bytes: int
    dirty_bytes: int
    is_due: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def dirty_segments(self) -> tuple[Segment, ...]:
        return tuple(each for each in self.segments if each.next_offset > self.first_dirty)


def plan_of(
    log: Log, committed_offset: int, now_ms: int, horizon_ms: int = NO_LIMIT_MS
) -> CleaningPlan | None:
    """The next pass over a log whose records below `committed_offset` are committed, and whose transactions
    have ended there; None if it has nothing
    dirty, or not enough, and no tombstone may go before `horizon_ms`. `now_ms` is the time of day. Raises
    OSError, and `UncleanableSegment` for a damaged index."""
    end = min(committed_offset, log.recovery_point)
    unstable = log.producers.first_open_transaction
    if unstable is not None:
        end = min(end, unstable)
    settled = list(takewhile(partial(_is_settled, end), log.segments[:-1]))
    plan = _dirty_plan(log, settled, now_ms)
    if plan is None and horizon_ms <= now_ms:
        clean = clean_segments(log, settled)
        if clean:
            size = sum(segment.size for segment in clean)
            plan = CleaningPlan(log, clean, clean[-1].next_offset, size, 0, is_due=False)
    return plan


def clean_segments(log: Log, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Those of a log's first segments that have been compacted."""
    return tuple(takewhile(lambda segment: segment.next_offset <= log.cleaned_offset, segments))


def _dirty_plan(log: Log, segments: Sequence[Segment], now_ms: int) -> CleaningPlan | None:
    """The pass over the dirty part of a log and all before it; None if it has nothing dirty, or not
    enough."""
    settings = log.settings
    first_dirty = max(log.cleaned_offset, log.segments[0].base_offset)
    segments = _old_enough(log, segments, first_dirty, now_ms)
    dirty = [segment for segment in segments if segment.next_offset > first_dirty]
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    plan = CleaningPlan(
        log, tuple(segments), first_dirty, sum(segment.size for segment in segments) - dirty_bytes,
        dirty_bytes, _is_due(dirty[0], settings.max_compaction_lag_ms, now_ms),
    )  # fmt: skip
    if not plan.is_due and plan.dirty_ratio <= settings.min_cleanable_dirty_ratio:
        return None
    return plan


def _is_settled(end: int, segment: Segment) -> bool:
    return segment.next_offset <= end and segment.damage is None and segment.size > 0


def _old_enough(log: Log, segments: Sequence[Segment], first_dirty: int, now_ms: int) -> Sequence[Segment]:
    """The segments before the first dirty one with a record younger than `min.compaction.lag.ms`."""
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms <= 0:
        return segments
    for number, segment in enumerate(segments):
        if segment.next_offset > first_dirty and _latest_ms(log, segment, now_ms) > now_ms - lag_ms:
            return segments[:number]
    return segments


def _latest_ms(log: Log, segment: Segment, now_ms: int) -> int:
    """When the latest record of a segment was written."""
    try:
        return believed_ms(log, segment, segment.max_timestamp, now_ms)
    except SuspectSegment as error:
        raise UncleanableSegment(segment.base_offset, str(error)) from None


def _is_due(segment: Segment, lag_ms_max: int, now_ms: int) -> bool:
    if lag_ms_max == NO_LIMIT_MS:
        return False
    return now_ms - _first_ms(segment, now_ms) > lag_ms_max


def _first_ms(segment: Segment, now_ms: int) -> int:
    """When the first batch of a segment was written, by its timestamp in ms; if it has none, or that time has
    not come, the time at which the segment began."""
    first = next(segment.headers(0), None)
    if first is None or not 0 <= first.max_timestamp <= now_ms:
        return segment.created_ms
    return first.max_timestamp


def must_roll(log: Log, now_ms: int) -> bool:
    """Whether the active segment holds a record that has waited longer than `max.compaction.lag.ms`: it can
    be compacted only once the log has another one. Raises OSError."""
    active, lag_ms_max = log.segments.active, log.settings.max_compaction_lag_ms
    return bool(active.size) and _is_due(active, lag_ms_max, now_ms)


def groups_of(segments: Sequence[Segment], settings: LogSettings) -> list[list[Segment]]:
    """The segments in groups of adjacent ones, each of which becomes one segment. Together they have at most
    `segment.bytes`, and their offsets and index entries fit one segment."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        size += segment.size
        if groups and _fits(groups[-1], segment, size, settings):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
    return groups


def _fits(group: Sequence[Segment], segment: Segment, size: int, settings: LogSettings) -> bool:
    entries_max = size // (settings.index_interval_bytes + 1) + 1
    return (
        len(group) < _GROUP_MAX
        and size <= settings.segment_bytes
        and segment.next_offset - group[0].base_offset <= SEGMENT_OFFSETS_MAX
        and entries_max * _TIME_ENTRY_BYTES <= settings.segment_index_bytes
        and group[0].aborted.is_empty
        and segment.aborted.is_empty
    )
