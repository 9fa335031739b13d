"""Snapshots of producer state beside a log, and the restoring of the state at the log's end."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from holdfast_log.broker.log import names
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.segment import Segment

logger = logging.getLogger(__name__)

SMALL_STATE = 1000
"""Producers and append ids up to which a snapshot costs so little that the end of every segment has one."""
SNAPSHOT_INTERVAL_MS = 10_000
"""Minimum time in ms between the snapshots of a larger state, each of which may have tens of MB."""


class SnapshotPace:
    """Whether the end of a segment gets a snapshot. Where it gets none, a start reads the headers of the
    batches since the last snapshot."""

    __slots__ = ("_last_ms",)

    def __init__(self) -> None:
        self._last_ms = -SNAPSHOT_INTERVAL_MS

    def is_due(self, producers: ProducerStates, now_ms: int) -> bool:
        """Whether to write one now, which counts as written."""
        is_large = len(producers) + len(producers.append_ids) > SMALL_STATE
        if is_large and 0 <= now_ms - self._last_ms < SNAPSHOT_INTERVAL_MS:
            return False
        self._last_ms = now_ms
        return True


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the snapshots, in ascending order."""
    files = (names.parse_offset_file(name) for name in disk.list(directory))
    return [file.offset for file in files if file and file.kind == names.SNAPSHOT and not file.marker]


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, names.offset_file(offset, names.SNAPSHOT))


def write_snapshot(disk: Disk, directory: str, producers: ProducerStates) -> None:
    """Write a snapshot, named after the end offset of the state. An incomplete state is not written: it could
    not be told from a complete one."""
    if not producers.is_complete:
        return
    path = snapshot_path(directory, producers.map_end_offset)
    # No fsync: the checksum reveals a snapshot damaged in a crash, and an older one is used instead.
    disk.remove(path)
    file = disk.open(path, create=True)
    file.append([producers.encode()])
    file.close()


def remove_snapshots(disk: Disk, directory: str, *, beyond: int) -> None:
    """Remove the snapshots above the offset `beyond`, whose batches are no longer in the log."""
    for offset in snapshot_offsets(disk, directory):
        if offset > beyond:
            disk.remove(snapshot_path(directory, offset))


def restore_producers(
    disk: Disk,
    directory: str,
    producers: ProducerStates,
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> list[Segment]:
    """Restore the state of `producers` at `end_offset`, from the newest undamaged snapshot and the batches
    since: their headers, and the records of those with an append id.

    Returns the segments that could not be read to their ends. If there are any, the state is incomplete: it
    must be restored again once they have been repaired."""
    remove_snapshots(disk, directory, beyond=end_offset)
    producers.clear(log_start_offset)
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = snapshot_path(directory, offset)
        if offset >= log_start_offset:
            try:
                producers.restore(disk.read(path), offset)
                break
            except ValueError as error:
                logger.warning("Ignoring %s: %s", path, error)
        disk.remove(path)
    unread = []
    ids, read_to = producers.append_ids, producers.map_end_offset
    for segment in segments:
        if segment.next_offset <= producers.map_end_offset:
            continue
        try:
            start = segment.position_of(producers.map_end_offset)
        except SuspectSegment as error:
            logger.warning("Reading %s from its beginning: %s", segment.path, error)
            start = 0
        end = segment.size if start is None else start
        for header in segment.headers(end):
            end = header.end
            # A batch that the log start lies in counts: its last records are in the log.
            if header.last_offset >= producers.map_end_offset:
                if header.base_offset > read_to:
                    ids.skip_to(header.base_offset)  # Compaction has removed what was between.
                read_to = header.next_offset
                if header.has_append_id or header.is_control:
                    batch = memoryview(segment.file().pread(header.size, header.position))
                    in_batch = header._replace(position=0)
                    producers.update(in_batch, header.base_offset, now_ms, batch)
                else:
                    producers.update(header, header.base_offset, now_ms)
                if header.has_append_id:
                    producers.remember_id(batch, in_batch, header.base_offset, now_ms)
                elif header.record_count <= header.last_offset_delta:
                    ids.skip_to(header.base_offset + 1)
        if end < segment.size or segment.damage is not None:
            unread.append(segment)
    if unread or read_to < end_offset:
        ids.skip_to(end_offset)
    producers.map_end_offset = end_offset
    producers.is_complete = not unread
    return unread
