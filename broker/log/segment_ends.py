"""Where a segment ends after a truncation: at a batch's end, and never after damage."""

from __future__ import annotations

from typing import NamedTuple

from holdfast_log.broker.log import suspicion
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.segment_view import SegmentView


class SegmentEnd(NamedTuple):
    """The position after the last batch of a segment, and the offset after its last record."""

    position: int
    next_offset: int


def end_before(segment: SegmentView, offset: int) -> SegmentEnd | None:
    """The end of a segment without the batch with `offset` and all later ones; None if damage lies before
    that end, or an index leads to a wrong batch. Raises OSError."""
    if segment.damage is not None and segment.damage.offset < offset:
        return None
    try:
        position = segment.position_of(offset)
        if position is None:
            if segment.is_dense and offset < segment.next_offset:
                return None
            position, offset = segment.size, segment.next_offset
        end, next_offset = 0, segment.base_offset
        start = 0
        if position:
            start = suspicion.checked(segment, segment.indexes.offsets.position_below(offset - 1))
        for header in segment.headers(start, position):
            end, next_offset = header.end, header.next_offset
    except SuspectSegment:
        return None
    if end != position or (end == segment.size and segment.is_dense and next_offset != segment.next_offset):
        return None
    return SegmentEnd(end, next_offset if end < segment.size else segment.next_offset)


def readable_end_before(segment: SegmentView, offset: int) -> SegmentEnd:
    """The end of a segment that is damaged before `offset`: after the last batch that can be read, from the
    first one on. Raises OSError."""
    end = SegmentEnd(0, segment.base_offset)
    for header in segment.headers(0):
        if header.last_offset >= offset or header.last_offset_delta < 0:
            break
        if segment.is_dense and header.base_offset != end.next_offset:
            break
        end = SegmentEnd(header.end, header.next_offset)
    return end
