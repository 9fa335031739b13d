"""What a log's loading checks of the indexes of a segment before anything believes them.

Reads later compare each entry that they use with its batch. No check here reads more of the log file than the
batches after the last entry of an index.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.segment import Segment

_ANY_SIZE = 2**31
"""More bytes than a log file can have."""


def are_sound(segment: Segment, *, is_last: bool) -> bool:
    """Whether both indexes exist, ascend, and fit the size and the offsets of the segment."""
    next_offset = segment.base_offset + 2**31 if is_last else segment.next_offset
    try:
        return _ascend(segment, segment.size, next_offset) and (not is_last or _leads_to_its_batch(segment))
    except SuspectSegment:
        return False


def _ascend(segment: Segment, size: int, next_offset: int) -> bool:
    """Whether both indexes exist, and fit a log of `size` bytes up to `next_offset`. Raises
    `SuspectSegment`."""
    return (
        segment.indexes.exist()
        and segment.indexes.offsets.is_sound(size, next_offset)
        and segment.indexes.times.is_sound(next_offset)
    )


def are_unwritten(segment: Segment) -> bool:
    """Whether a power failure may have left the indexes of a closed segment as they were created, empty: the
    last entry of a complete time index has the largest timestamp."""
    return segment.size > 0 and not len(segment.indexes.times)


def end_offset(segment: Segment) -> int:
    """The offset after the last batch that an index of a closed segment names."""
    offsets, times = segment.indexes.offsets, segment.indexes.times
    try:
        named = [offsets.last(), times.last()]
    except SuspectSegment:
        return segment.base_offset
    last_offsets = [pair[column] for column, pair in enumerate(named) if pair is not None]
    return end_of_entries(last_offsets, segment.base_offset, segment.next_offset)


def last_named_offset(segment: Segment) -> int:
    """The offset after the last batch that an index of the active segment names; where the segment begins if
    an index is missing or does not ascend. A batch is named only once it has been written."""
    next_offset = segment.base_offset + 2**31
    try:
        if not _ascend(segment, _ANY_SIZE, next_offset):
            return segment.base_offset
        named = [segment.indexes.offsets.last(), segment.indexes.times.last()]
    except SuspectSegment:
        return segment.base_offset
    last_offsets = [pair[column] for column, pair in enumerate(named) if pair is not None]
    return end_of_entries(last_offsets, segment.base_offset, next_offset)


def known_end_offset(segment: Segment) -> int:
    """As `end_offset`, for a closed segment that may never have been synced; where it begins if an index does
    not ascend or is missing, as after a power failure. The log file may end earlier than the indexes say."""
    try:
        is_ascending = _ascend(segment, _ANY_SIZE, segment.next_offset)
    except SuspectSegment:
        is_ascending = False
    return end_offset(segment) if is_ascending else segment.base_offset


def end_of_entries(relative_offsets: Iterable[int], base_offset: int, next_offset: int) -> int:
    """The offset after the highest of these offsets, which entries of indexes name relative to `base_offset`;
    an entry that does not lie before `next_offset`, where the next segment begins, is wrong and ignored."""
    named = [base_offset + offset for offset in relative_offsets]
    return max((offset + 1 for offset in named if offset < next_offset), default=base_offset)


def _leads_to_its_batch(segment: Segment) -> bool:
    """Whether the last entry of the offset index leads to its batch: recovery searches the log's end from
    there."""
    last = segment.indexes.offsets.last()
    if last is None:
        return True
    offset = segment.base_offset + last[0]
    for header in segment.headers(last[1]):
        if header.last_offset >= offset:
            return header.last_offset == offset
    return False
