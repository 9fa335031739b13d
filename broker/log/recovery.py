"""Opens a log from its files and repairs them after an unclean stop.

After a clean stop the files are trusted. Otherwise every batch from the recovery point on is checked, the log
is truncated at the first incomplete or damaged batch, and the indexes of the checked segments are rebuilt. A
worker thread opens a log; no other thread uses the log before it is open.
"""

from __future__ import annotations

import logging
import os
import uuid

from holdfast_log.broker.log import checkpoints, names, scan
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.epoch_recovery import load_epochs
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.loading import Loading, LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.mapped_offset import read_mapped_offset
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segment_recovery import check_segments, drop_after, find_segments
from holdfast_log.broker.log.snapshots import (
    remove_snapshots,
    restore_producers,
    snapshot_offsets,
    snapshot_path,
)
from holdfast_log.broker.log.transaction_recovery import rebuild_aborted_indexes

logger = logging.getLogger(__name__)


def create_log(disk: Disk, request: LoadRequest) -> Log:
    """Create a log and its directory. Raises OSError."""
    disk.make_directory(request.directory)
    was_empty = not disk.list(request.directory)
    if request.topic_id is not None:
        write_partition_metadata(disk, request.directory, request.topic_id)
    log = _empty_log(disk, request) if was_empty else load_log(disk, request)
    log.is_new = True
    return log


def _empty_log(disk: Disk, request: LoadRequest) -> Log:
    """A log in an empty directory. Reads no files: the reactor's thread may create many logs at once."""
    files = OpenFiles(disk, capacity=16)
    offset = request.log_start_offset
    epochs = LeaderEpochs()
    epochs.is_dirty = True
    producers = _no_producers(request)
    producers.clear(offset)
    return Log(
        request.partition,
        request.directory,
        request.settings,
        files,
        [Segment.create(files, request.directory, offset, request.settings, request.now_ms)],
        log_start_offset=offset,
        recovery_point=offset,
        epochs=epochs,
        producers=producers,
        topic_id=request.topic_id,
    )


def _no_producers(request: LoadRequest) -> ProducerStates:
    return ProducerStates(request.producer_expiration_ms, append_id_limits=request.append_id_limits)


def write_partition_metadata(disk: Disk, directory: str, topic_id: uuid.UUID) -> None:
    """Write the topic's id into the log's directory. Raises OSError."""
    path = os.path.join(directory, names.PARTITION_METADATA)
    # The log's first flush syncs the file. After a crash before it, the controller's assignment has the id.
    disk.remove(path)
    file = disk.open(path, create=True)
    file.append([checkpoints.encode_partition_metadata(topic_id)])
    file.close()


def load_log(disk: Disk, request: LoadRequest) -> Log:
    """Open a log and repair damaged files. Raises OSError."""
    loading = Loading(request, OpenFiles(disk, capacity=16))
    topic_id = _settle_topic(loading)
    request = loading.request
    _finish_interrupted_work(loading)
    find_segments(loading)
    check_segments(loading)
    log_start_offset, end_offset = _settle_bounds(loading)
    _compare_with_checkpoints(loading, end_offset)
    load_epochs(loading, log_start_offset, end_offset)
    producers = _no_producers(request)
    _drop_stray_snapshots(loading, end_offset)
    _check_aborted_indexes(loading, log_start_offset)
    restore_producers(
        disk,
        request.directory,
        producers,
        loading.segments,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        now_ms=request.now_ms,
    )
    # The check has shown that the batches are valid, not that they are durable.
    recovery_point = end_offset if request.is_clean else min(max(request.recovery_point, 0), end_offset)
    log = Log(
        request.partition,
        request.directory,
        request.settings,
        loading.files,
        loading.segments,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        epochs=loading.epochs,
        producers=producers,
        cleaned_offset=max(0, min(request.cleaned_offset, recovery_point)),
        mapped_offset=max(request.cleaned_offset, read_mapped_offset(disk, request.directory)),
        topic_id=topic_id,
    )
    log.durable_start_offset = min(request.log_start_offset, log_start_offset)
    log.may_have_aborted = any(not segment.aborted.is_empty for segment in loading.segments)
    log.is_cut_short = loading.is_cut_short
    log.doubt = loading.doubt
    log.is_move_unfinished = disk.exists(loading.path(names.MOVE_UNFINISHED))
    return log


def _finish_interrupted_work(loading: Loading) -> None:
    """Finish deletions and segment replacements that a crash interrupted.

    Removes `.deleted` files and `.cleaned` files, which may be incomplete. A `.swap` file is complete and
    replaces the segments that it covers.
    """
    disk = loading.disk
    swaps = []
    for name in disk.list(loading.request.directory):
        if name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
            disk.remove(loading.path(name))
        elif name.endswith(names.SWAP):
            file = names.parse_offset_file(name)
            if file is not None and file.kind == names.LOG:
                swaps.append(file.offset)
            else:
                disk.remove(loading.path(name))  # An index, which is rebuilt.
    for base_offset in swaps:
        _complete_swap(loading, base_offset)


def _complete_swap(loading: Loading, base_offset: int) -> None:
    """Replace the segments whose offsets a `.swap` file covers: it ends with a batch, maybe without records,
    that has the last offset of the last of them (see `broker.log.replacement`)."""
    disk = loading.disk
    name = names.offset_file(base_offset, names.LOG)
    swap_path = loading.path(name + names.SWAP)
    swap = disk.open(swap_path)
    size, end, next_offset = swap.size(), 0, base_offset + 1
    for header, _ in scan.valid_batches(swap, 0, size):
        end, next_offset = header.end, header.next_offset
    swap.close()
    if end < size and disk.exists(loading.path(name)):
        # The first of the old segments is the first to be removed: all of them are there.
        logger.warning("Removing %s, which is damaged: the segments that it replaces are kept", swap_path)
        disk.remove(swap_path)
        return
    for other in disk.list(loading.request.directory):
        file = names.parse_offset_file(other)
        if file is not None and not file.marker and base_offset <= file.offset < next_offset:
            is_kept = file.kind == names.TRANSACTION_INDEX and file.offset == base_offset
            if file.kind != names.SNAPSHOT and not is_kept:
                disk.remove(loading.path(other))
    disk.rename(swap_path, loading.path(name))
    loading.swapped.add(base_offset)
    logger.info("%s: completed the interrupted replacement of %s", loading.request.directory, name)


def _settle_bounds(loading: Loading) -> tuple[int, int]:
    """Returns (log start offset, log end offset). Ensures that there is a segment to append to."""
    request = loading.request
    if loading.segments:
        log_start_offset = max(request.log_start_offset, loading.segments[0].base_offset)
        end_offset = loading.segments[-1].next_offset
        if end_offset >= log_start_offset:
            return log_start_offset, end_offset
        logger.warning(
            "%s ends at offset %d, before its checkpointed start %d: emptied, and starts there",
            request.directory, end_offset, log_start_offset,
        )  # fmt: skip
        drop_after(loading, -1)
        loading.begins_anew = True
    offset = request.log_start_offset
    segment = Segment.create(loading.files, request.directory, offset, request.settings, request.now_ms)
    loading.segments.append(segment)
    return offset, offset


def _compare_with_checkpoints(loading: Loading, end_offset: int) -> None:
    """Find out whether the log has lost whole batches from its end, which its files alone cannot show. It had
    every record below its recovery point and its high watermark. A truncation just before the end of the last
    process looks the same: the broker is then trusted less than it deserves."""
    request = loading.request
    known = max(request.recovery_point, request.high_watermark)
    if request.is_clean and 0 < request.recovery_point < end_offset and not loading.is_cut_short:
        logger.warning(
            "%s ends at offset %d, and its checkpoint says that it ended at %d when it was closed: the "
            "offset of its last batch may be damaged",
            request.directory, end_offset, request.recovery_point,
        )  # fmt: skip
        loading.cut_short()
    if end_offset < known and not loading.is_cut_short:
        logger.warning(
            "%s ends at offset %d, and its checkpoints say that it had all records before %d: this broker "
            "may lack records",
            request.directory, end_offset, known,
        )  # fmt: skip
        loading.cut_short()


def _check_aborted_indexes(loading: Loading, log_start_offset: int) -> None:
    """Make the indexes of aborted transactions match the segments that were checked. Raises OSError."""
    request = loading.request
    if request.is_clean:
        return
    try:
        rebuild_aborted_indexes(
            loading.disk, request.directory, loading.segments, request.recovery_point, log_start_offset
        )
    except SuspectSegment as error:
        logger.warning("%s: indexes of aborted transactions were not rebuilt: %s", request.directory, error)


def _drop_stray_snapshots(loading: Loading, end_offset: int) -> None:
    """Remove all snapshots except the last one and those at the first offset of a segment."""
    disk, directory = loading.disk, loading.request.directory
    remove_snapshots(disk, directory, beyond=end_offset)
    bases = {segment.base_offset for segment in loading.segments}
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in bases:
            disk.remove(snapshot_path(directory, offset))


def _settle_topic(loading: Loading) -> uuid.UUID | None:
    """The id of the log's topic, None if it is unknown. The offsets of an earlier topic of the same name no
    longer count then: it was deleted after the last checkpoint."""
    topic_id, path = loading.request.topic_id, loading.path(names.PARTITION_METADATA)
    try:
        topic_id = topic_id or checkpoints.decode_partition_metadata(loading.disk.read(path))
    except FileNotFoundError:
        pass  # A flushed log has this file, so the checkpoints have no entry of this log.
    except (ValueError, KeyError) as error:
        logger.warning("Ignoring %s: %s", path, error)
        return None
    loading.request = loading.request.of_topic(topic_id)
    return topic_id
