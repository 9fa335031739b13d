"""Finds the segments of a log that is being opened, checks them, and makes their indexes match.

Segments up to the recovery point are trusted if their indexes fit, and damage in them is marked. Of the
others every batch is checked, and the first damaged one ends the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast_log.broker.log import index_checks, names, scan
from holdfast_log.broker.log.damage import Damage, decode_damage, encode_damage
from holdfast_log.broker.log.index_entries import SEGMENT_OFFSETS_MAX
from holdfast_log.broker.log.interrupted_write import is_interrupted_write
from holdfast_log.broker.log.loading import Loading
from holdfast_log.broker.log.segment import Segment
from holdfast_log.protocol.batches import BatchHeader

logger = logging.getLogger(__name__)


def find_segments(loading: Loading) -> None:
    request, disk = loading.request, loading.disk
    present = disk.list(request.directory)
    found = [(name, names.parse_offset_file(name)) for name in present]
    logs = sorted(file.offset for _, file in found if file and file.kind == names.LOG and not file.marker)
    known = set(logs)
    for name, file in found:
        is_index = file is not None and file.kind in (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
        if is_index and file is not None and file.offset not in known:
            disk.remove(loading.path(name))
    for offset in logs:
        segment = Segment(loading.files, request.directory, offset, request.settings)
        segment.is_dense = segment.is_dense and offset >= request.cleaned_offset
        segment.size = disk.size(segment.path)
        segment.created_ms = disk.modified_ms(segment.path)
        if names.offset_file(offset, names.DAMAGED) in present:
            _read_damage(loading, segment)
        loading.segments.append(segment)
    for segment, following in zip(loading.segments, loading.segments[1:], strict=False):
        segment.next_offset = following.base_offset


def _read_damage(loading: Loading, segment: Segment) -> None:
    """Load the damage that an earlier process found in the segment: reads of that part are refused."""
    path = segment.path_of(names.DAMAGED)
    try:
        segment.damage = decode_damage(segment.base_offset, loading.disk.read(path))
    except ValueError as error:
        logger.warning("Ignoring %s: %s", path, error)


def check_segments(loading: Loading) -> None:
    """Set the size and end offset of every segment, and make its indexes match."""
    request = loading.request
    for number, segment in enumerate(list(loading.segments)):
        is_last = number == len(loading.segments) - 1
        is_suspect = not request.is_clean and (is_last or segment.next_offset > request.recovery_point)
        if is_suspect:
            if not _recover_segment(loading, segment, is_last=is_last):
                drop_after(loading, number)
                return
            continue
        if not request.is_clean and segment.next_offset == request.recovery_point:
            _cut_what_came_back(loading, segment)
        is_unwritten = not request.is_clean and not is_last and index_checks.are_unwritten(segment)
        is_new = segment.base_offset in loading.swapped
        if is_new or is_unwritten or not index_checks.are_sound(segment, is_last=is_last):
            logger.warning("Rebuilding the indexes of %s, which are missing or do not fit", segment.path)
            indexed_end = index_checks.end_offset(segment)
            segment.indexes.remove()
            end, next_offset = segment.rebuild_indexes()
            if not is_last and segment.damage is None:
                _note_damage(loading, segment, end, next_offset, indexed_end)
        elif not is_last and not segment.size and segment.damage is None:
            # An empty index fits an empty file, although the file has lost all its records.
            indexed_end = index_checks.end_offset(segment)
            _note_damage(loading, segment, 0, segment.base_offset, indexed_end)
        if is_last:
            _find_end(loading, segment)


def _note_damage(loading: Loading, segment: Segment, end: int, next_offset: int, indexed_end: int) -> None:
    """Mark a closed segment as damaged if its readable batches end too early, at byte `end` and
    `next_offset`. Its indexes named batches up to `indexed_end`: compaction writes new indexes."""
    if end == segment.size and next_offset >= (segment.next_offset if segment.is_dense else indexed_end):
        return
    reason = f"its batches end at byte {end} of {segment.size}, before offset {segment.next_offset}"
    segment.damage = damage = Damage(segment.base_offset, end, next_offset, reason)
    logger.error(
        "%s is damaged: offsets %d to %d cannot be read: %s; they are copied from the leader if it has them",
        segment.path, next_offset, segment.next_offset - 1, reason,
    )  # fmt: skip
    loading.disk.write_atomically(segment.path_of(names.DAMAGED), encode_damage(damage))


def _recover_segment(loading: Loading, segment: Segment, *, is_last: bool) -> bool:
    """Check every batch; truncate the file before the first that is damaged or out of place. Returns whether
    the segment has all records up to the next one."""
    size, upper_offset = segment.size, segment.next_offset
    # A replacement that recovery has completed still has the indexes of the old segment.
    is_indexed = not is_last and segment.base_offset not in loading.swapped
    indexed_end = index_checks.known_end_offset(segment) if is_indexed else segment.base_offset
    named_end = index_checks.last_named_offset(segment) if is_last else indexed_end
    segment.indexes.remove()
    segment.indexes.begin()
    end, next_offset = 0, segment.base_offset
    follows_gap = False
    for header in _in_order(segment, None if is_last else upper_offset):
        follows_gap = header.base_offset > next_offset
        loading.has_gaps |= follows_gap
        segment.indexes.add(header.last_offset, header.position, header.size, header.max_timestamp)
        end, next_offset = header.end, header.next_offset
    if follows_gap and is_last and next_offset > loading.request.log_start_offset and segment.is_dense:
        _doubt_last_batch(loading, segment, next_offset)
    # A power failure may take whole batches from the end of a file and leave the next file. Offsets show it
    # unless compaction leaves gaps; then the indexes may.
    is_short = not is_last and next_offset < upper_offset and _must_be_dense(loading, segment)
    is_short = is_short or next_offset < indexed_end
    is_whole = end == size and not is_short
    if end < size and not is_last and next_offset == upper_offset:
        is_whole = True
        _cut_off(segment, end)
    if not is_whole:
        may_be_written = is_last and _ends_with_last_write(loading, segment, next_offset, named_end)
        if not may_be_written or not is_interrupted_write(segment.file(), end, next_offset):
            loading.cut_short()
        why = (
            "no valid batch begins there" if end < size else f"the batches before {upper_offset} are missing"
        )
        logger.warning("%s truncated from %d to %d bytes: %s", segment.path, size, end, why)
        segment.cut(end)
    if segment.damage is not None and (is_last or not is_whole or next_offset > segment.damage.offset):
        _forget_damage(loading, segment)
    # A segment ends where the next one begins, even if compaction left a gap before it.
    segment.next_offset = upper_offset if is_whole and not is_last else next_offset
    if is_last or not is_whole:
        segment.finish()
        segment.indexes.resume(segment.size)
    else:
        segment.complete()
    return is_whole


def _in_order(segment: Segment, upper_offset: int | None) -> Iterator[BatchHeader]:
    """The headers of the sound batches from the first one on, as long as their offsets ascend and lie below
    `upper_offset`. No checksum covers the offset of a batch: one that follows a gap, and that the next batch
    does not follow, is damaged itself, and ends the others too."""
    next_offset = segment.base_offset
    doubtful: BatchHeader | None = None
    for header, _ in scan.valid_batches(segment.file(), 0, segment.size):
        if header.last_offset_delta < 0:
            break
        if header.last_offset - segment.base_offset >= SEGMENT_OFFSETS_MAX:
            break
        if upper_offset is not None and header.last_offset >= upper_offset:
            break
        if header.base_offset < next_offset:
            return
        if doubtful is not None:
            yield doubtful
        doubtful = header if header.base_offset > next_offset else None
        if doubtful is None:
            yield header
        next_offset = header.next_offset
    if doubtful is not None:
        yield doubtful


def _ends_with_last_write(loading: Loading, segment: Segment, next_offset: int, named_end: int) -> bool:
    """Whether the end of the file may be what the last process wrote last. It was not if an index names a
    batch behind it, or if another log was written later: one thread writes all logs, one after another."""
    return named_end <= next_offset and segment.created_ms >= loading.request.last_write_ms


def _doubt_last_batch(loading: Loading, segment: Segment, next_offset: int) -> None:
    """Note that the log may not have what it seems to have: its last batch follows a gap. That is how a
    replica copies a compacted log, and how a batch looks whose offset the disk has changed."""
    logger.warning(
        "The last batch of %s ends at offset %d, and offsets before it are missing: it may be damaged",
        segment.path, next_offset - 1,
    )  # fmt: skip
    loading.cut_short()


def _forget_damage(loading: Loading, segment: Segment) -> None:
    """Remove the mark of damage that is not in the segment, or no longer: the log was truncated while an
    earlier process wrote the mark, or ends before the damage now."""
    segment.damage = None
    loading.disk.remove(segment.path_of(names.DAMAGED))


def _must_be_dense(loading: Loading, segment: Segment) -> bool:
    """Whether a gap before the next segment means that records of this one are lost: neither compaction nor
    DeleteRecords has removed them."""
    is_in_use = segment.next_offset > loading.request.log_start_offset
    return segment.is_dense and is_in_use and not loading.has_gaps


def _cut_what_came_back(loading: Loading, segment: Segment) -> None:
    """Remove records from a segment that the next segment has. The log was truncated there, to the recovery
    point, and a power failure has undone that before the next flush."""
    if segment.damage is None:
        for header in segment.headers(0):
            if header.next_offset == segment.next_offset and header.end < segment.size:
                segment.indexes.remove()
                _cut_off(segment, header.end)
                return


def _cut_off(segment: Segment, end: int) -> None:
    """Remove the bytes after the last record of a segment."""
    logger.warning(
        "%s truncated from %d to %d bytes: the next segment has the offsets that follow",
        segment.path, segment.size, end,
    )  # fmt: skip
    segment.cut(end)


def drop_after(loading: Loading, number: int) -> None:
    """Remove the segments after a truncated one: their records would follow a gap."""
    for segment in reversed(loading.segments[number + 1 :]):
        logger.warning("Removing %s: the segment before it is damaged", segment.path)
        for path in segment.paths():
            loading.files.forget(path)
            loading.disk.remove(path)
    del loading.segments[number + 1 :]


def _find_end(loading: Loading, segment: Segment) -> None:
    """Read the end offset of a cleanly closed log from its last headers."""
    position, next_offset = segment.indexes.offsets.position_up_to(segment.size), segment.base_offset
    for header in segment.headers(position):
        position, next_offset = header.end, header.next_offset
    segment.next_offset = next_offset
    if position != segment.size:
        # The stop was not clean, although the marker file says so.
        logger.warning(
            "%s truncated from %d to %d bytes: no valid batch begins there",
            segment.path,
            segment.size,
            position,
        )
        loading.cut_short()
        segment.cut(position)
    segment.indexes.resume(segment.size)
