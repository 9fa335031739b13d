"""Opens a log from its files and repairs them after an unclean stop.

After a clean stop the files are trusted. Otherwise every batch from the recovery point on is checked, the log
is truncated at the first incomplete or damaged batch, and the indexes of the checked segments are rebuilt. A
worker thread opens a log; no other thread uses the log before it is open.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.log import checkpoints, index_checks, names, scan
from broker.log.append_ids import APPEND_IDS_MAX
from broker.log.checkpoints import topic_tag
from broker.log.damage import Damage, decode_damage, encode_damage
from broker.log.disk import Disk, DiskFile
from broker.log.epochs import LeaderEpochs
from broker.log.log import Log
from broker.log.open_files import OpenFiles
from broker.log.producer_state import ProducerStates
from broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from broker.log.settings import LogSettings
from broker.log.snapshots import remove_snapshots, restore_producers, snapshot_offsets, snapshot_path
from protocol.batches import HEADER_SIZE, batch_size_at
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One log to open, with its offsets from the checkpoints of its directory. `tags` has the tag of each
    offset's entry, by the name of the field: if it is that of another topic, the offset does not count.

    `cut_short` is called, perhaps more than once, before more is removed from the log than a write that the
    end of a process interrupted, and when the log turns out to have lost its end. It may raise OSError."""

    partition: TopicPartition
    directory: str
    settings: LogSettings
    now_ms: int
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    is_clean: bool = False
    cut_short: Callable[[], None] = _nothing
    topic_id: uuid.UUID | None = None
    producer_expiration_ms: int = 86_400_000
    append_ids_max: int = APPEND_IDS_MAX
    tags: Mapping[str, str] = field(default_factory=dict)

    def of_topic(self, topic_id: uuid.UUID | None) -> LoadRequest:
        """The request without the offsets of an earlier topic of the same name."""
        foreign: Any = {name: 0 for name, tag in self.tags.items() if tag and tag != topic_tag(topic_id)}
        return replace(self, **foreign)


@dataclass(slots=True)
class _Loading:
    """State of a log while it is being opened."""

    request: LoadRequest
    files: OpenFiles
    segments: list[Segment] = field(default_factory=list)
    swapped: set[int] = field(default_factory=set)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    begins_anew: bool = False
    is_cut_short: bool = False
    """Whether more was removed from the log's end than a write that the end of the process interrupted."""
    has_gaps: bool = False
    """Whether offsets are missing between two batches of one file: compaction has removed them, whatever the
    topic's settings say now."""

    @property
    def disk(self) -> Disk:
        return self.files.disk

    def path(self, name: str) -> str:
        return os.path.join(self.request.directory, name)

    def cut_short(self) -> None:
        """Note that the log lacks records that an earlier process had. Call this before anything is removed:
        the next process would find a sound log that ends earlier, and not know what is missing."""
        self.is_cut_short = True
        self.request.cut_short()


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
    return Log(
        request.partition,
        request.directory,
        request.settings,
        files,
        [Segment.create(files, request.directory, offset, request.settings, request.now_ms)],
        log_start_offset=offset,
        recovery_point=offset,
        epochs=epochs,
        producers=ProducerStates(request.producer_expiration_ms, append_ids_max=request.append_ids_max),
        topic_id=request.topic_id,
    )


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
    loading = _Loading(request, OpenFiles(disk, capacity=16))
    topic_id = _settle_topic(loading)
    request = loading.request
    _finish_interrupted_work(loading)
    _find_segments(loading)
    _check_segments(loading)
    log_start_offset, end_offset = _settle_bounds(loading)
    _compare_with_checkpoints(loading, end_offset)
    _load_epochs(loading, log_start_offset, end_offset)
    producers = ProducerStates(request.producer_expiration_ms, append_ids_max=request.append_ids_max)
    _drop_stray_snapshots(loading, end_offset)
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
        topic_id=topic_id,
    )
    log.is_cut_short = loading.is_cut_short
    return log


def _finish_interrupted_work(loading: _Loading) -> None:
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


def _complete_swap(loading: _Loading, base_offset: int) -> None:
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


def _find_segments(loading: _Loading) -> None:
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


def _note_damage(loading: _Loading, segment: Segment, end: int, next_offset: int, indexed_end: int) -> None:
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


def _read_damage(loading: _Loading, segment: Segment) -> None:
    """Load the damage that an earlier process found in the segment: reads of that part are refused."""
    path = segment.path_of(names.DAMAGED)
    try:
        segment.damage = decode_damage(segment.base_offset, loading.disk.read(path))
    except ValueError as error:
        logger.warning("Ignoring %s: %s", path, error)


def _forget_damage(loading: _Loading, segment: Segment) -> None:
    """Remove the mark of damage that is not in the segment, or no longer: the log was truncated while an
    earlier process wrote the mark, or ends before the damage now."""
    segment.damage = None
    loading.disk.remove(segment.path_of(names.DAMAGED))


def _check_segments(loading: _Loading) -> None:
    """Set the size and end offset of every segment, and make its indexes match."""
    request = loading.request
    for number, segment in enumerate(list(loading.segments)):
        is_last = number == len(loading.segments) - 1
        is_suspect = not request.is_clean and (is_last or segment.next_offset > request.recovery_point)
        if is_suspect:
            if not _recover_segment(loading, segment, is_last=is_last):
                _drop_after(loading, number)
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


def _recover_segment(loading: _Loading, segment: Segment, *, is_last: bool) -> bool:
    """Check every batch; truncate the file before the first that is damaged or out of place. Returns whether
    the segment has all records up to the next one."""
    size, upper_offset = segment.size, segment.next_offset
    # A replacement that recovery has completed still has the indexes of the old segment.
    is_indexed = not is_last and segment.base_offset not in loading.swapped
    indexed_end = index_checks.known_end_offset(segment) if is_indexed else segment.base_offset
    segment.indexes.remove()
    segment.indexes.begin()
    end, next_offset = 0, segment.base_offset
    for header, _ in scan.valid_batches(segment.file(), 0, size):
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            break
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            break
        if not is_last and header.last_offset >= upper_offset:
            break
        loading.has_gaps |= header.base_offset > next_offset
        segment.indexes.add(header.last_offset, header.position, header.size, header.max_timestamp)
        end, next_offset = header.end, header.next_offset
    # A power failure may take whole batches from the end of a file and leave the next file. Offsets show it
    # unless compaction leaves gaps; then the indexes may.
    is_short = not is_last and next_offset < upper_offset and _must_be_dense(loading, segment)
    is_short = is_short or next_offset < indexed_end
    is_whole = end == size and not is_short
    if end < size and not is_last and next_offset == upper_offset:
        is_whole = True
        _cut_off(segment, end)
    if not is_whole:
        if not is_last or not _is_unfinished(segment.file(), end, size):
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


def _cut_what_came_back(loading: _Loading, segment: Segment) -> None:
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


def _must_be_dense(loading: _Loading, segment: Segment) -> bool:
    """Whether a gap before the next segment means that records of this one are lost: neither compaction nor
    DeleteRecords has removed them."""
    is_in_use = segment.next_offset > loading.request.log_start_offset
    return segment.is_dense and is_in_use and not loading.has_gaps


def _is_unfinished(file: DiskFile, position: int, size: int) -> bool:
    """Whether the file ends before the batch at `position` does, as after a write that was interrupted."""
    rest = file.pread(min(size - position, HEADER_SIZE), position)
    batch_size = batch_size_at(rest, 0)
    return len(rest) < HEADER_SIZE or (batch_size is not None and position + batch_size > size)


def _drop_after(loading: _Loading, number: int) -> None:
    """Remove the segments after a truncated one: their records would follow a gap."""
    for segment in reversed(loading.segments[number + 1 :]):
        logger.warning("Removing %s: the segment before it is damaged", segment.path)
        for path in segment.paths():
            loading.files.forget(path)
            loading.disk.remove(path)
    del loading.segments[number + 1 :]


def _find_end(loading: _Loading, segment: Segment) -> None:
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


def _settle_bounds(loading: _Loading) -> tuple[int, int]:
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
        _drop_after(loading, -1)
        loading.begins_anew = True
    offset = request.log_start_offset
    segment = Segment.create(loading.files, request.directory, offset, request.settings, request.now_ms)
    loading.segments.append(segment)
    return offset, offset


def _compare_with_checkpoints(loading: _Loading, end_offset: int) -> None:
    """Find out whether the log has lost whole batches from its end, which its files alone cannot show. It had
    every record below its recovery point and its high watermark. A truncation just before the end of the last
    process looks the same: the broker is then trusted less than it deserves."""
    request = loading.request
    known = max(request.recovery_point, request.high_watermark)
    if end_offset < known and not loading.is_cut_short:
        logger.warning(
            "%s ends at offset %d, and its checkpoints say that it had all records before %d: this broker "
            "may lack records",
            request.directory, end_offset, known,
        )  # fmt: skip
        loading.cut_short()


def _load_epochs(loading: _Loading, log_start_offset: int, end_offset: int) -> None:
    request = loading.request
    path = loading.path(names.LEADER_EPOCHS)
    scan_from = end_offset if request.is_clean else request.recovery_point
    try:
        loading.epochs = LeaderEpochs(checkpoints.decode_epochs(loading.disk.read(path)))
    except FileNotFoundError:
        scan_from = log_start_offset
    except ValueError as error:
        logger.warning("Ignoring %s: %s", path, error)
        scan_from = log_start_offset
    epochs = loading.epochs
    # Of a log whose records have all been removed, no batch says in which epoch they were written. The epochs
    # in the file do, and an election that compares logs needs the latest one.
    was_emptied = 0 < log_start_offset == end_offset and not loading.begins_anew
    epochs.truncate_to(0 if loading.begins_anew else end_offset + was_emptied)
    if not was_emptied:
        # The file may hold epochs that a truncation removed, while others began at those offsets since.
        epochs.truncate_to(scan_from)
    _read_epochs(loading, scan_from)
    epochs.advance_start(log_start_offset)
    epochs.is_dirty = True


def _read_epochs(loading: _Loading, scan_from: int) -> None:
    """Assign the epochs of the batches from `scan_from` on. No checksum covers a batch's epoch: one that only
    a single batch has, before batches of an earlier epoch, is damage. As the log's latest epoch it would make
    other replicas truncate their logs to that batch."""
    epochs, single = loading.epochs, None
    for segment in loading.segments:
        if segment.next_offset <= scan_from:
            continue
        for header in segment.headers(0):
            if header.last_offset < scan_from:
                continue
            if single is not None and header.leader_epoch < epochs.latest:
                epochs.truncate_to(single)
            before = epochs.latest
            epochs.assign(header.leader_epoch, header.base_offset)
            single = header.base_offset if epochs.latest != before else None


def _drop_stray_snapshots(loading: _Loading, end_offset: int) -> None:
    """Remove all snapshots except the last one and those at the first offset of a segment."""
    disk, directory = loading.disk, loading.request.directory
    remove_snapshots(disk, directory, beyond=end_offset)
    bases = {segment.base_offset for segment in loading.segments}
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in bases:
            disk.remove(snapshot_path(directory, offset))


def _settle_topic(loading: _Loading) -> uuid.UUID | None:
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
