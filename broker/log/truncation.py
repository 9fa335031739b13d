"""Removes records from a log: its last ones, all of them, or the segments before its start.

A log is truncated where it differs from its leader's, and emptied where its leader's begins later than it
ends. Functions that remove records raise BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
"""

from __future__ import annotations

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment_ends import end_before
from holdfast_log.broker.log.snapshots import remove_snapshots, restore_producers

SEGMENTS_AT_ONCE = 16
"""Maximum number of segments whose files are renamed in one turn of the reactor when a log start moves."""


def truncate_to(log: Log, offset: int, *, now_ms: int = 0) -> bool:
    """Remove the records from `offset` on. Returns whether there were any.

    A batch that contains `offset` is removed entirely. Leader epochs that begin at `offset` or later are
    removed too, even without records.
    """
    log.check_usable()
    if offset >= log.log_end_offset:
        _truncate_epochs(log, offset)
        return False
    if offset <= log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset, now_ms=now_ms)
        return True
    try:
        log.segments.cancel_replacement()
        remove_snapshots(log.disk, log.directory, beyond=offset)
        # Last segment first: after a crash at any point, the remaining segments are the log's beginning.
        log.discard(log.segments.beginning_at(offset)[::-1])
        log.segments.reopen()
        log.segments.active.truncate_to(offset)
        _after_truncation(log, log.segments.active.next_offset, now_ms)
    except OSError as error:
        raise log.failed(error) from error
    return True


def keeps_all_before(log: Log, offset: int) -> bool:
    """Whether `truncate_to` keeps every record before `offset`. If not, damage lies before it, where the log
    would end."""
    log.check_usable()
    if offset >= log.log_end_offset or offset <= log.segments[0].base_offset:
        return True
    try:
        return end_before(next(log.segments.from_offset(offset - 1)), offset) is not None
    except OSError as error:
        raise log.refused(error) from error


def truncate_fully_and_start_at(log: Log, offset: int, *, now_ms: int = 0) -> None:
    """Remove all records; the log then starts and ends at `offset`."""
    log.check_usable()
    try:
        remove_snapshots(log.disk, log.directory, beyond=-1)
        log.discard(log.segments[::-1])
        log.segments.add(offset, log.settings, now_ms)
        log.log_start_offset = offset
        log.epochs.clear()
        _after_truncation(log, offset, now_ms)
        if log.mapped_offset > 0:
            log.mapped_offset = 0
            log.events.recovery_point_lowered(log)
        make_start_durable(log)
    except OSError as error:
        raise log.failed(error) from error


def _after_truncation(log: Log, end_offset: int, now_ms: int) -> None:
    log.truncations += 1
    log.log_end_offset = end_offset
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.durable_start_offset = min(log.durable_start_offset, log.log_start_offset)
    _truncate_epochs(log, end_offset)
    restore_log_producers(log, now_ms)
    if log.keys is not None:
        log.keys.truncate_to(end_offset, log.log_start_offset)
        if log.keys.end_offset != end_offset:
            log.events.keys_behind(log)
    if log.recovery_point > end_offset:
        log.recovery_point = end_offset
        log.events.recovery_point_lowered(log)
    elif log.recovery_point < end_offset:
        log.events.unflushed(log)


def restore_log_producers(log: Log, now_ms: int) -> None:
    """Restore the state of the log's producers from its files: after a truncation, and after the repair of a
    segment that could not be read then. Raises OSError."""
    unread = restore_producers(
        log.disk,
        log.directory,
        log.producers,
        log.segments,
        log_start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        now_ms=now_ms,
    )
    for segment in unread:
        if segment.damage is None:
            log.suspect(segment, SuspectSegment("its batches end before its file does"))


def _truncate_epochs(log: Log, end_offset: int) -> None:
    before = log.epochs.latest
    log.epochs.truncate_to(end_offset)
    if log.epochs.latest != before:
        # A flush in progress may still write the removed epochs: see `finish_flush`.
        log.truncations += 1


def begin_settling(log: Log) -> None:
    """Refuse appends until `settled` is called: a truncation lowered the recovery point. While the checkpoint
    still holds the old point, a recovery would not check records written below that point."""
    log.settling += 1


def settled(log: Log) -> None:
    """Allow appends again: the checkpoint is durable (see `begin_settling`)."""
    log.settling -= 1


def advance_log_start(log: Log, offset: int, *, now_ms: int = 0) -> None:
    """Advance the log start to `offset`, have a checkpoint written that has it, and then have the first
    segments removed that lie entirely before it (see `LogEvents.start_moved`). If there are many, the next
    check of retention removes the others.

    No effect for an offset before the present start. Raises BrokerError with OFFSET_OUT_OF_RANGE for an
    offset after the log end.
    """
    move_log_start(log, offset, now_ms=now_ms)
    make_start_durable(log)


def make_start_durable(log: Log) -> None:
    """Have a checkpoint written that has the log's present start, unless one has it; then the segments before
    it are removed."""
    if log.durable_start_offset >= log.log_start_offset and not log.segments.before(log.log_start_offset):
        return
    if log.events.start_moved is not None:
        log.events.start_moved(log)
    else:
        log.durable_start_offset = log.log_start_offset
        discard_before_start(log, log.log_start_offset, SEGMENTS_AT_ONCE)


def move_log_start(log: Log, offset: int, *, now_ms: int = 0) -> None:
    """Advance the log start to `offset` without making it durable and without removing segments, see
    `advance_log_start`."""
    log.check_usable()
    if offset < log.log_start_offset:
        return
    log.check_offset(offset)
    if offset == log.log_end_offset:
        # The active segment can be removed only once there is another, also after a truncation to the start.
        log.roll(now_ms)
    log.log_start_offset = offset
    log.epochs.advance_start(offset)


def discard_before_start(log: Log, durable_start: int, segments_max: int) -> int:
    """Remove the segments that lie entirely before the log start, oldest first, at most `segments_max`.
    Returns how many.

    `durable_start` is the log start that a checkpoint has. Segments after it stay, although the log start may
    have moved past them: a crash between two renames would leave the log with a start that nobody has asked
    for, and a power failure could bring back an older segment without the one after it.
    """
    log.check_usable()
    before = log.segments.before(min(durable_start, log.log_start_offset))[:segments_max]
    try:
        log.discard(before)
    except OSError as error:
        raise log.failed(error) from error
    return len(before)
