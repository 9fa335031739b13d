"""Rebuilds the indexes of aborted transactions from the batches of a log.

After an unclean stop nobody knows which entries of the segments beyond the recovery point were written. A
transaction may have begun in an earlier segment: the state of the producers there comes from a snapshot, or
from the batches.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.snapshots import snapshot_offsets, snapshot_path
from holdfast_log.broker.log.transactions import AbortedEntry

logger = logging.getLogger(__name__)

_NO_LIMIT = 2**62


def rebuild_aborted_indexes(
    disk: Disk, directory: str, segments: Sequence[Segment], from_offset: int, log_start_offset: int
) -> None:
    """Make the indexes of the segments that end after `from_offset` match their batches. Raises OSError, and
    `SuspectSegment` where a segment before them cannot be searched."""
    wanted = [segment for segment in segments if segment.next_offset > from_offset]
    if not wanted or not any(_has_marks(segment) for segment in wanted):
        return
    producers = _state_before(disk, directory, wanted[0].base_offset, log_start_offset)
    for segment in segments:
        if segment.next_offset <= producers.map_end_offset:
            continue
        found: list[AbortedEntry] = []
        for header in segment.headers(0):
            if header.last_offset < producers.map_end_offset or not header.is_transactional:
                continue
            batch = None
            if header.is_control:
                batch = segment.file().pread(header.size, header.position)
            aborted = producers.update(header._replace(position=0), header.base_offset, 0, batch)
            if aborted is not None:
                found.append(aborted)
        if segment.base_offset >= wanted[0].base_offset and segment.aborted.entries() != found:
            logger.warning("Rebuilding the index of aborted transactions of %s", segment.path)
            segment.aborted.replace(found)


def _has_marks(segment: Segment) -> bool:
    """Whether a segment has batches of transactions, or an index that says so."""
    return not segment.aborted.is_empty or any(header.is_transactional for header in segment.headers(0))


def _state_before(disk: Disk, directory: str, offset: int, log_start_offset: int) -> ProducerStates:
    """The producers at the newest snapshot up to an offset; of none, if there is no sound one."""
    producers = ProducerStates(max_producers=_NO_LIMIT, max_per_source=_NO_LIMIT)
    for at in reversed(snapshot_offsets(disk, directory)):
        if log_start_offset <= at <= offset:
            try:
                producers.restore(disk.read(snapshot_path(directory, at)), at)
            except ValueError as error:
                logger.warning("Not using a snapshot at offset %d of %s: %s", at, directory, error)
            else:
                return producers
    producers.clear(0)
    return producers
