"""What a read of a segment finds that no broker writes: positions in its indexes, and headers of its batches.

A search checks the position that an index names and the header to which it leads; it does not check every
batch that it passes. `SuspectSegment` says what is wrong, and `broker.log.scrubber` examines the segment.
"""

from __future__ import annotations

from holdfast_log.broker.log import scan
from holdfast_log.broker.log.batch_order import BatchOrder
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.segment_view import SegmentView
from holdfast_log.protocol.batches import LOG_OVERHEAD, NO_LEADER_EPOCH, BatchHeader

# Checks: they return or raise `SuspectSegment`.


def checked(segment: SegmentView, position: int) -> int:
    """A position that the offset index names."""
    if not 0 <= position < max(segment.size, 1):
        raise SuspectSegment(
            f"{segment.indexes.offsets.path} names position {position}, the log has {segment.size} bytes"
        )
    return position


def check_expected(segment: SegmentView, header: BatchHeader, offset: int) -> None:
    """Check that a batch may be the first one that ends at or after `offset`."""
    if (header.base_offset > offset and segment.is_dense) or header.last_offset >= segment.next_offset:
        raise SuspectSegment(
            f"the batch at position {header.position} of {segment.path} has offsets {header.base_offset} to "
            f"{header.last_offset}, where offset {offset} was expected"
        )


def check_batches(segment: SegmentView, start: int, end: int, order: BatchOrder) -> None:
    """Check the headers of the batches from position `start` to `end`, which are about to be read for the
    offset that the order expects next, and of the one after them, which shows whether the last length is
    right. The first one may begin before that offset. Only headers are read: a broker that sends bytes from
    the page cache does not look at them."""
    file = segment.file()
    if end == segment.size and file.size() < end:
        raise SuspectSegment(f"{segment.path} is shorter than {end} bytes")
    position, expected, epoch = start, -1, NO_LEADER_EPOCH
    for header in scan.headers(file, start, segment.readable_size):
        # The usual case, in few steps: the next offset, and the leader epoch of the batch before.
        if header.base_offset != expected or header.leader_epoch != epoch:
            if position == start:
                _check_start(segment, header, order)
            else:
                order.next_offset = expected
            reason = order.implausible(header)
            if reason is not None:
                raise SuspectSegment(f"{segment.path} is wrong at byte {position}: {reason}")
            epoch = order.lasting_epoch(header)
        if position == end:
            return
        expected = header.base_offset + header.last_offset_delta + 1
        position += header.length + LOG_OVERHEAD
    if position != end or end != segment.readable_size:
        raise no_batch(segment, position)


def _check_start(segment: SegmentView, header: BatchHeader, order: BatchOrder) -> None:
    """Check the offsets of the first batch of a read, which the order then expects."""
    offset = order.next_offset
    if header.last_offset < offset:
        raise SuspectSegment(
            f"the batch at position {header.position} of {segment.path} ends before offset {offset}"
        )
    check_expected(segment, header, max(offset, segment.base_offset))
    order.next_offset = header.base_offset


def confirms(segment: SegmentView, timestamp: int, offset: int) -> bool:
    """Whether the batch with `offset` has this largest timestamp, as an entry of the time index says."""
    try:
        header = segment.header_at(offset)
    except SuspectSegment:
        return False
    return header is not None and header.max_timestamp == timestamp


# What a search found: the errors to raise.


def misled(segment: SegmentView, header: BatchHeader, offset: int) -> SuspectSegment:
    """The offset index leads a search for `offset` to the batch of `header`."""
    return SuspectSegment(
        f"{segment.indexes.offsets.path} leads to position {header.position} for offset {offset}, but the "
        f"batch there has offsets {header.base_offset} to {header.last_offset}"
    )


def no_batch(segment: SegmentView, position: int) -> SuspectSegment:
    """The file has bytes from `position` on, which are no batch."""
    return SuspectSegment(f"no batch begins at position {position} of {segment.path}")


def out_of_order(segment: SegmentView, header: BatchHeader, next_offset: int) -> SuspectSegment:
    """The batch of `header` stands where a batch with `next_offset` was expected, or a later one if the log
    may have gaps."""
    return SuspectSegment(
        f"offset {header.base_offset} follows {next_offset - 1} at byte {header.position} of {segment.path}"
    )


def wrong_timestamp(segment: SegmentView, timestamp: int, offset: int) -> SuspectSegment:
    """The time index has an entry that no batch confirms."""
    return SuspectSegment(
        f"{segment.indexes.times.path} has timestamp {timestamp} at offset {offset}, where it is not"
    )
