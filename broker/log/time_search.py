"""Finds records of a log by timestamp; `broker.log.timestamps` explains how to run a look-up.

The log may change between the steps of a look-up. Records that were appended since it began do not count. A
segment that was removed or compacted is searched to its end: its file stays as it was. After a truncation,
and where the record that was found has been deleted meanwhile, the look-up begins again.

All functions raise BrokerError: KAFKA_STORAGE_ERROR if the file system fails or a file is damaged,
NOT_LEADER_OR_FOLLOWER for a log that changes all the time, CORRUPT_MESSAGE for a batch that no reader can
unpack.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.timestamps import LookUp, SegmentSearch
from holdfast_log.protocol.errors import ErrorCode, error_for

_ATTEMPTS_MAX = 5


class _LogChanged(Exception):
    """What was read may be gone: the look-up has to begin again."""


def offset_for_timestamp(log: Log, timestamp: int) -> LookUp:
    """Look up the first record with `timestamp` or a later one; None if there is none."""
    return (yield from _look_up(log, lambda: timestamp))


def offset_of_max_timestamp(log: Log) -> LookUp:
    """Look up the first record with the largest timestamp; None if no record has a timestamp."""
    return (yield from _look_up(log, lambda: _max_timestamp(log)))


def _max_timestamp(log: Log) -> int | None:
    latest = max(segment.max_timestamp for segment in log.segments)
    return latest if latest >= 0 else None


def _look_up(log: Log, timestamp: Callable[[], int | None]) -> LookUp:
    for _ in range(_ATTEMPTS_MAX):
        log.check_usable()
        try:
            wanted = timestamp()
            found = None if wanted is None else (yield from _search(log, wanted))
        except _LogChanged:
            continue
        except OSError as error:
            raise log.refused(error) from error
        if found is None or found.offset >= log.log_start_offset:
            return found
    raise error_for(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{log.topic_partition} was changed each time that it was searched: try again",
    )


def _search(log: Log, timestamp: int) -> LookUp:
    next_offset, end_offset = log.log_start_offset, log.log_end_offset
    truncations = log.truncations
    while next_offset < end_offset:
        segment = next(
            (each for each in log.segments.from_offset(next_offset) if each.next_offset > next_offset), None
        )
        if segment is None:
            break
        # The active segment may grow meanwhile.
        next_offset = segment.next_offset
        try:
            if segment.max_timestamp >= timestamp:
                found = yield from _search_segment(log, segment, timestamp, truncations)
                if found is not None:
                    return found
        except SuspectSegment as error:
            raise log.suspect(segment, error) from error
    return None


def _search_segment(log: Log, segment: Segment, timestamp: int, truncations: int) -> LookUp:
    start_offset = log.log_start_offset
    first = segment.header_at(max(segment.offset_before(timestamp), start_offset))
    if first is None:
        return None
    file, content, position, end = segment.file(), segment.content, first.position, segment.readable_size
    while position < end:
        step = yield SegmentSearch(file, position, end, timestamp, start_offset)
        if _has_been_cut(log, truncations):
            raise _LogChanged
        if step.found is not None:
            return step.found
        if step.doubt is not None:
            if segment.content is not content or segment not in log.segments:
                raise _LogChanged
            raise SuspectSegment(f"{step.doubt} of {segment.path}")
        position = step.position
    return None


def _has_been_cut(log: Log, truncations: int) -> bool:
    """Whether other records may be, by now, where records were when the log had been cut `truncations`
    times."""
    return log.truncations != truncations
