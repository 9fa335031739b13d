"""Bugs of logs on disks whose content changes or vanishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import succeed

from holdfast_log.broker.log import (
    append,
    copying,
    epoch_recovery,
    index_checks,
    inspection,
    log,
    names,
    reading,
    recovery,
    scan,
    scrubber,
    segment_recovery,
    snapshots,
    truncation,
)
from holdfast_log.broker.log.append import sound_batches
from holdfast_log.broker.log.checkpoints import OffsetEntry
from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.flush_job import FlushJob
from holdfast_log.broker.log.index import OffsetIndex, TimeIndex
from holdfast_log.broker.log.inspection import Inspection
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.scrubber import Scrubber
from holdfast_log.broker.log.segment import Extent, Segment
from holdfast_log.broker.log.segment_copy import SegmentCopy
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.orders.strays import Strays
from holdfast_log.broker.process import log_directories
from holdfast_log.broker.replication import following
from holdfast_log.broker.replication.fetcher import _Copy
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.refused_batches import RefusedBatches
from holdfast_log.coordinator.controller.requests import FULL
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, batch_size_at
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import SINGLE


def _believe_indexes() -> Sequence[Patch]:
    def header_at(self: Segment, offset: int) -> BatchHeader | None:
        for header in self.headers(max(0, self.indexes.offsets.position_below(offset))):
            if header.last_offset >= offset:
                return header
        return None

    def extent(
        self: Segment, start: int, max_bytes: int, upper_offset: int, *, min_one_batch: bool
    ) -> Extent | None:
        end, next_offset = start, -1
        for header in self.headers(start):
            if header.next_offset > upper_offset or (header.end > start + max_bytes and end > start):
                break
            end, next_offset = header.end, header.next_offset
        return None if end == start else Extent(end, next_offset)

    begin = Inspection._begin

    def begin_without_indexes(self: Inspection) -> None:
        self.offset_index = self.time_index = None
        begin(self)

    return [
        (OffsetIndex, "is_sound", lambda self, log_size, next_offset: True),
        (TimeIndex, "is_sound", lambda self, next_offset: True),
        (Segment, "header_at", header_at),
        (Segment, "extent", extent),
        (reading, "check_batches", lambda segment, start, end, order: None),
        (Inspection, "_begin", begin_without_indexes),
    ]


def _accept_gaps() -> Sequence[Patch]:
    return [(LogSettings, "is_dense", property(lambda self: False))]


def _truncate_at_damage_in_sync() -> Sequence[Patch]:
    return [(following, "_check_damage", lambda partition, offset: None)]


def _compare_no_checksums() -> Sequence[Patch]:
    def batches(file: DiskFile, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for header in scan.headers(file, position, end):
            yield header, memoryview(b"")

    class Headers:
        valid_batches = staticmethod(batches)

    return [(inspection, "scan", Headers)]


def _sync_no_directory() -> Sequence[Patch]:
    run = FlushJob.run
    return [(FlushJob, "run", lambda self: run(replace(self, directories=())))]


def _sync_no_log_directory() -> Sequence[Patch]:
    return [(LogDirectory, "_make", lambda self: self.disk.make_directory(self.path))]


def _trust_empty_disks() -> Sequence[Patch]:
    return [
        (log_directories, "missing_directories", lambda known, present, given_up: {}),
        (LogManager, "may_have_lost", lambda self, partition, topic_id: False),
    ]


def _forget_to_sync_truncations() -> Sequence[Patch]:
    def cut(self: Segment, position: int) -> None:
        self.file().truncate(position)
        self.size = position

    return [
        (Segment, "cut", cut),
        (segment_recovery, "_cut_what_came_back", lambda loading, segment: None),
    ]


def _end_reads_behind_damage() -> Sequence[Patch]:
    extent = Segment.extent

    def extent_over_damage(
        self: Segment, start: int, max_bytes: int, upper_offset: int, *, min_one_batch: bool
    ) -> Extent | None:
        found = extent(self, start, max_bytes, upper_offset, min_one_batch=min_one_batch)
        if found is None or self.damage is None or found.next_offset != self.damage.offset:
            return found
        return Extent(found.end_position, self.next_offset)

    return [(Segment, "extent", extent_over_damage)]


def _believe_every_checkpoint() -> Sequence[Patch]:
    return [
        (OffsetEntry, "may_be_of", lambda self, topic_id: True),
        (LoadRequest, "of_topic", lambda self, topic_id: self),
    ]


def _overlook_producers_behind_damage() -> Sequence[Patch]:
    def mutant(
        disk: Any, directory: str, producers: ProducerStates, segments: Sequence[Segment], **bounds: int
    ) -> list[Segment]:
        snapshots.restore_producers(disk, directory, producers, segments, **bounds)
        producers.is_complete = True
        return []

    return [(truncation, "restore_producers", mutant)]


def _believe_every_epoch() -> Sequence[Patch]:
    def mutant(loading: Any, scan_from: int) -> None:
        for segment in loading.segments:
            for header in segment.headers(0):
                if header.last_offset >= scan_from:
                    loading.epochs.assign(header.leader_epoch, header.base_offset)

    return [(epoch_recovery, "_read_epochs", mutant)]


def _keep_indexes_of_replaced_segments() -> Sequence[Patch]:
    def mutant(self: SegmentCopy) -> None:
        path = self._segment.path
        self._log.disk.rename(path + names.TEMPORARY, path)
        self._segment.replaced(self.size)
        self._log.suspect(self._segment, SuspectSegment("it has been copied"))

    return [(SegmentCopy, "replace_segment", mutant)]


def _hand_over_to_members_only() -> Sequence[Patch]:
    def mutant(self: Partition, isr: Iterable[int], eligible: Iterable[int]) -> bool:
        return any(member != self.local_id for member in isr)

    return [(Partition, "has_successor", mutant)]


def _remember_gaps() -> Sequence[Patch]:
    def mutant(self: Segment, extent: Extent) -> Extent:
        self._positions[extent.next_offset] = extent.end_position
        return extent

    return [(Segment, "_remember", mutant)]


def _believe_copies() -> Sequence[Patch]:
    write_indexes = SegmentCopy.write_indexes

    def mutant(self: SegmentCopy, inspection: Inspection) -> None:
        inspection.damage = None
        write_indexes(self, inspection)

    return [(SegmentCopy, "write_indexes", mutant)]


def _expect_deleted_records() -> Sequence[Patch]:
    begin = Inspection._begin

    def mutant(self: Inspection) -> None:
        self.log_start_offset = 0
        begin(self)

    return [(Inspection, "_begin", mutant)]


def _keep_deleted_logs() -> Sequence[Patch]:
    before_roles = Strays.before_roles

    def only_full(self: Strays, request: LeaderAndIsrRequest) -> None:
        if request.type == FULL:
            before_roles(self, request)

    return [(Strays, "before_roles", only_full)]


def _keep_files_of_emptied_logs() -> Sequence[Patch]:
    drop_after = segment_recovery.drop_after

    def drop(loading: Any, number: int) -> None:
        if number < 0:
            del loading.segments[:]
        else:
            drop_after(loading, number)

    return [(recovery, "drop_after", drop)]


def _believe_shortened_segments() -> Sequence[Patch]:
    return [(index_checks, "end_of_entries", lambda offsets, base_offset, next_offset: base_offset)]


def _keep_later_epochs() -> Sequence[Patch]:
    begin = LeaderEpochs.begin

    def begin_later(self: LeaderEpochs, epoch: int, start_offset: int) -> None:
        if epoch > self.latest:
            begin(self, epoch, start_offset)

    return [(LeaderEpochs, "begin", begin_later)]


def _take_changed_lengths_for_interrupted_writes() -> Sequence[Patch]:
    def mutant(file: DiskFile, position: int, next_offset: int) -> bool:
        rest = file.pread(HEADER_SIZE, position)
        batch_size = batch_size_at(rest, 0)
        return len(rest) < HEADER_SIZE or (batch_size is not None and position + batch_size > file.size())

    return [(segment_recovery, "is_interrupted_write", mutant)]


MUTATIONS = (
    Mutation(
        "deleted-log-kept",
        "a deleted log that a power failure has brought back keeps a new topic of the same name away",
        _keep_deleted_logs,
    ),
    Mutation("index-believed", "positions in an index are believed unseen", _believe_indexes),
    Mutation(
        "gap-accepted",
        "leaders read and followers append across a hole, as if compaction had left it",
        _accept_gaps,
    ),
    Mutation(
        "truncated-at-damage-in-sync",
        "a replica ends its log at damage, before records that it has reported, while it may be elected",
        _truncate_at_damage_in_sync,
    ),
    Mutation(
        "empty-disk-trusted",
        "a broker whose disks are empty makes its replicas anew and counts as in sync",
        _trust_empty_disks,
    ),
    Mutation("crc-not-scrubbed", "old segments are read without comparing checksums", _compare_no_checksums),
    Mutation(
        "directory-not-synced",
        "a flush makes the content of files durable, but not their names",
        _sync_no_directory,
        SINGLE,
    ),
    Mutation(
        "log-directory-not-synced",
        "a power failure may take a log directory that the broker has made",
        _sync_no_log_directory,
        SINGLE,
    ),
)


def _append_nothing_of_a_response_with_a_damaged_batch() -> Sequence[Patch]:
    def mutant(
        records: memoryview, log_end_offset: int, **options: Any
    ) -> tuple[list[BatchHeader], BrokerError | None]:
        headers, error = sound_batches(records, log_end_offset, **options)
        return ([] if error is not None else headers), error

    return [(copying, "sound_batches", mutant)]


RARE = (
    Mutation(
        "warm-headers-believed",
        "a broker sends what the page cache has, and does not look at what no checksum covers",
        lambda: [(reading, "check_batches", lambda segment, start, end, order: None)],
    ),
    Mutation(
        "fetched-epoch-believed",
        "a follower believes the leader epoch of a damaged batch, and differs from its leader from then on",
        lambda: [(append, "_check_fetched_epoch", lambda header, latest_epoch, leader_epoch: None)],
    ),
    Mutation(
        "sound-batches-refused",
        "a follower that has fetched a damaged batch does not append the sound ones before it",
        _append_nothing_of_a_response_with_a_damaged_batch,
    ),
    Mutation(
        "refusal-untold",
        "a leader does not examine a batch that a follower has refused",
        lambda: [(RefusedBatches, "examine", lambda self, replica_id, offset, now_ms: None)],
    ),
    Mutation(
        "restarts-without-pause",
        "a replica deletes its log again and again, as fast as it can",
        lambda: [(_Copy, "start_over", lambda self: False)],
    ),
    Mutation(
        "changed-length-believed",
        "recovery takes a batch whose length has changed for an interrupted write, and counts as complete",
        _take_changed_lengths_for_interrupted_writes,
    ),
    Mutation(
        "lost-page-believed",
        "recovery takes the end that a disk has lost for an interrupted write, although the process went on",
        lambda: [(segment_recovery, "_ends_with_last_write", lambda *given: True)],
    ),
    Mutation(
        "last-offset-believed",
        "recovery believes the offset of a last batch that follows a gap, and counts as complete",
        lambda: [(segment_recovery, "_doubt_last_batch", lambda loading, segment, next_offset: None)],
    ),
    Mutation(
        "begun-epochs-ignored",
        "recovery believes the leader epoch of the last batch, although it had not begun at that offset",
        lambda: [(epoch_recovery, "_take_begun", lambda loading, stored, scan_from, end_offset: False)],
    ),
    Mutation(
        "begun-epochs-unrecorded",
        "a leader writes batches of an epoch whose beginning nothing records",
        lambda: [(log, "write_begun_epochs", lambda disk, directory, entries: None)],
    ),
    Mutation(
        "impossible-epoch-believed",
        "a leader believes a leader epoch in its log that has not begun, and others truncate sound records",
        lambda: [(Partition, "_drop_impossible_epochs", lambda self: None)],
    ),
    Mutation(
        "checkpoint-of-deleted-topic",
        "a topic that was deleted and created again takes over the checkpointed offsets of the first one",
        _believe_every_checkpoint,
    ),
    Mutation(
        "damage-forgotten",
        "a compacted segment that has lost its end counts as sound once its indexes were rebuilt",
        lambda: [(scrubber, "_reads_past", lambda damage, inspection: True)],
    ),
    Mutation(
        "shortened-segment-recovered",
        "recovery believes a compacted segment that ends before its indexes",
        lambda: [(index_checks, "known_end_offset", lambda segment: segment.base_offset)],
    ),
    Mutation(
        "producers-behind-damage",
        "the producers of a log that was truncated over damage stay as they could be read",
        _overlook_producers_behind_damage,
    ),
    Mutation(
        "single-epoch-believed",
        "recovery believes a damaged leader epoch that is later than those of the batches behind it",
        _believe_every_epoch,
    ),
    Mutation(
        "copy-before-start-refused",
        "a segment counts as damaged if it lacks records before the log start",
        _expect_deleted_records,
    ),
    Mutation(
        "old-indexes-kept",
        "the copy of a damaged segment is examined with the indexes of the segment that it has replaced",
        _keep_indexes_of_replaced_segments,
    ),
    Mutation(
        "damaged-leader-stays",
        "a damaged leader that is alone in sync leads on, though an eligible replica could lead",
        _hand_over_to_members_only,
    ),
    Mutation(
        "refused-behind-damage",
        "a leader refuses the sound records behind damage, and stays alone, since no follower can copy them",
        lambda: [(inspection, "end_of_damaged_batch", lambda file, position, size: None)],
    ),
    Mutation(
        "copy-believed",
        "a copy that is damaged too replaces a damaged segment, and counts as sound",
        _believe_copies,
    ),
    Mutation(
        "gap-remembered",
        "a reader looks for the next records at the end of a file, although compaction has removed them",
        _remember_gaps,
    ),
    Mutation(
        "mark-outlives-damage",
        "a segment that is truncated while its damage is being marked keeps the mark",
        lambda: [(Scrubber, "_marked", lambda self, log, segment, damage: succeed(None))],
    ),
    Mutation(
        "mark-believed",
        "recovery believes a mark of damage in a segment that it could read",
        lambda: [(segment_recovery, "_forget_damage", lambda loading, segment: None)],
    ),
    Mutation(
        "truncation-not-durable",
        "a power failure brings truncated records back before newer ones in the next segment",
        _forget_to_sync_truncations,
    ),
    Mutation(
        "damage-passed-over",
        "a read that ends at damage names the end of the segment as the next offset",
        _end_reads_behind_damage,
    ),
    Mutation(
        "emptied-files-kept",
        "recovery empties a log that ends before its start, and leaves the old segments on the disk",
        _keep_files_of_emptied_logs,
    ),
    Mutation(
        "shortened-segment-believed",
        "readers pass over the records that a segment of a compacted log has lost from its end",
        _believe_shortened_segments,
    ),
    Mutation(
        "truncated-epoch-kept",
        "the leader epoch of a truncated record, left in the file by a crash, takes the next record",
        _keep_later_epochs,
    ),
)
"""Bugs that a campaign rarely catches: several rare things have to meet, such as a topic that is deleted and
created again just before a crash, a damaged segment and a truncation, or a power failure and a log that rolls
at its recovery point. `tests/sim/test_rare_bugs.py` catches them by fixed scenarios."""
