"""Reads of the sound batches behind damage, in the same segment.

A bit that changes in one batch takes its records from this replica, not those behind them. They may be on no
other replica: a leader that is alone in sync and refused them would stay alone, because no follower could
catch up, and no follower could become the leader from which the damaged batch is copied.

An examination finds the end of the damage where the length of the damaged batch is right and every batch
behind it is sound (`broker.log.inspection`). The batches that are read here are always checked before they
are sent.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast_log.broker.log import scan
from holdfast_log.broker.log.damage import BatchPlace, SuspectSegment
from holdfast_log.broker.log.segment_view import SegmentView
from holdfast_log.protocol.batches import read_header
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import SliceSource

_HEADER_BYTES_MAX = 128
"""More bytes than the header of a batch has."""
_BYTES_MAX = 1 << 20
"""Maximum bytes of one read, unless the first batch is larger: each header is read on the reactor."""


class FoundBehind(NamedTuple):
    """Whole batches: their positions in the file, and the offset after them."""

    start: int
    end: int
    next_offset: int


def end_of_damaged_batch(file: SliceSource, position: int, size: int) -> int | None:
    """Where the batch at `position` ends, if its header says so and something follows. Raises OSError."""
    data = file.pread(min(_HEADER_BYTES_MAX, size - position), position)
    try:
        end = position + read_header(data, 0).size
    except BrokerError:
        return None
    return end if position < end < size else None


def find_behind(
    segment: SegmentView, offset: int, max_bytes: int, upper_offset: int, *, min_one_batch: bool
) -> FoundBehind | None:
    """The batches from the one with `offset` on in at most `max_bytes` and below `upper_offset`; None if
    there is none. With `min_one_batch` the first one may be larger. Call it where `is_behind`. Raises
    SuspectSegment and OSError."""
    behind = _behind(segment)
    assert behind is not None
    max_bytes = min(max_bytes, _BYTES_MAX)
    start = end = -1
    next_offset = offset
    position = max(behind.position, segment.indexes.offsets.position_below(offset))
    for header in scan.headers(segment.file(), position, segment.size):
        position = header.end
        if header.last_offset < offset:
            continue
        if start < 0:
            start = header.position
            if header.base_offset > offset:
                raise SuspectSegment(f"{segment.path} has no offset {offset} behind its damage")
        is_full = header.end - start > max_bytes and not (min_one_batch and header.position == start)
        if is_full or header.next_offset > upper_offset:
            break
        end, next_offset = header.end, header.next_offset
    else:
        if start < 0 or position != segment.size:
            raise SuspectSegment(f"{segment.path} has no batch at byte {position}, behind its damage")
    return FoundBehind(start, end, next_offset) if end >= 0 else None


def is_behind(segment: SegmentView, offset: int) -> bool:
    """Whether a segment has `offset` in sound batches behind its damage."""
    behind = _behind(segment)
    return behind is not None and behind.offset <= offset < segment.next_offset


def _behind(segment: SegmentView) -> BatchPlace | None:
    """Only in a segment without gaps, where each offset behind the damage is in a batch."""
    return segment.damage.behind if segment.damage is not None and segment.is_dense else None
