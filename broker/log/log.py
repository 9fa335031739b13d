"""One partition's log: its segments in order, and the state of its producers and leader epochs.

A log appends and reads; `reading` looks for the batches of a read. `preparation` checks a leader's appends,
`copying` appends a follower's copies, `truncation` removes records, `key_search` and `time_search` find them,
`flush_job` makes them durable.

Only the reactor thread uses a log: it needs no locks. Appends and truncations are synchronous; a worker
thread runs a `FlushJob`, which waits for the device.

A file system error makes the log unusable, because the effect of a failed write or fsync is unknown. The log
passes the error once to `LogEvents.failed`, and every later call raises KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

from holdfast_log.broker.log.append import AppendResult, PreparedAppend
from holdfast_log.broker.log.begun_epochs import write_begun_epochs
from holdfast_log.broker.log.damage import Damage, SuspectSegment
from holdfast_log.broker.log.epochs import UNDEFINED_EPOCH, LeaderEpochs
from holdfast_log.broker.log.key_runs import KeyEntry
from holdfast_log.broker.log.key_versions import KeyVersions, readable_keys
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.pressure import REMEDY, is_pressure
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.reading import LogRead, Reading
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segments import Segments
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.snapshots import SnapshotPace, write_snapshot
from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.protocol import batches
from holdfast_log.protocol.batches import HAS_APPEND_ID, NO_TIMESTAMP, BatchHeader
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.plain_produce import assign
from holdfast_log.protocol.topic_partition import TopicPartition

_compiled = extension("_segment_append", "broker.log")
"""The append of one batch, compiled; None where it is to be done in Python."""
_again = extension("_known_reads", "broker.log")
"""Reads that find again what a read has found, compiled; None where that is to be done in Python."""

# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__


if _again is not None:
    _again.bind(LogRead)

_UNHEARD: LogEvents[Log] = LogEvents()
"""The events of a log that has no manager."""


class Log:
    """The log of one partition. All offsets are of records; all times are in ms.

    Every method but those that say otherwise raises BrokerError with KAFKA_STORAGE_ERROR where the file
    system fails.
    """

    # CPython shares no names between the dictionaries of instances with more than 30 attributes: 1 KB each.
    __slots__ = (
        "__weakref__",
        "_snapshot_pace",
        "_waits_for_indexes",
        "cleaned_offset",
        "directory",
        "disk",
        "doubt",
        "durable_start_offset",
        "epochs",
        "events",
        "failure",
        "files",
        "has_new_metadata",
        "is_cut_short",
        "is_move_unfinished",
        "is_new",
        "keys",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "mapped_offset",
        "may_have_aborted",
        "producers",
        "recovery_point",
        "roll_jitter",
        "segments",
        "settings",
        "settling",
        "topic_id",
        "topic_partition",
        "truncations",
        "unstable",
        "written_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        settings: LogSettings,
        files: OpenFiles,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        cleaned_offset: int = 0,
        mapped_offset: int = 0,
        topic_id: uuid.UUID | None = None,
        events: LogEvents[Log] | None = None,
        roll_jitter: float = 0.0,
    ) -> None:
        self.topic_partition = partition
        self.directory = directory
        self.settings = settings
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.durable_start_offset = 0
        """The log start that a checkpoint is known to have, or a lower one: no crash brings records before it
        back."""
        self.log_end_offset = segments[-1].next_offset
        self.recovery_point = recovery_point
        """Offset up to which all records are durable."""
        self.cleaned_offset = cleaned_offset
        """Offset up to which the log has been compacted: no key has two records before it. Never beyond the
        recovery point."""
        self.mapped_offset = max(mapped_offset, cleaned_offset)
        """Offset up to which compaction has looked at keys. If the log ends before it, records may be missing
        that were removed because of later ones. See `broker.log.mapped_offset`."""
        self.epochs = epochs
        self.epochs.record = partial(write_begun_epochs, files.disk, directory)
        self.producers = producers
        self.unstable = producers.transactions.unstable
        """The transactions that readers of committed records may not pass; empty, where there are none."""
        self.may_have_aborted = False
        """Whether there may be aborted transactions among the records."""
        self.events: LogEvents[Log] = events or _UNHEARD
        self.last_flush_ms = 0
        self.is_new = False
        """Whether the directory entry of the log may be lost in a power failure."""
        self.is_cut_short = False
        """Whether recovery removed records that an earlier process had written completely."""
        self.doubt: tuple[int, str] | None = None
        """The offset of a batch that recovery has kept although it is damaged, and why; it must be examined
        once the broker runs."""
        self.has_new_metadata = topic_id is not None
        """Whether `partition.metadata` may have been written without an fsync."""
        self.failure: OSError | None = None
        self.segments = Segments(segments, directory, files)
        self.disk = files.disk
        self._waits_for_indexes = False
        """Whether `events.indexed` was called, and `write_indexes` has not been called since."""
        self.roll_jitter = roll_jitter
        """This log's share of segment.jitter.ms, from 0 to 1."""
        self.written_bytes = 0
        """Bytes that this process has appended; never reduced."""
        self.truncations = 0
        """Number of truncations, after which offsets or leader epochs may be assigned again."""
        self.keys: KeyVersions | None = None
        """The index of the last record of each key; None without key.versions."""
        self.files = files
        self._snapshot_pace = SnapshotPace()
        self.is_move_unfinished = False
        """Whether this is the copy of a log that may still be in another directory: see
        `broker.log.log_copy`."""
        self.settling = 0
        """Moves, and truncations for which the checkpoint of recovery points is not durable: appends are
        refused."""

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition} {self.log_start_offset}..{self.log_end_offset}>"

    @property
    def damages(self) -> list[Damage]:
        """Where segments are known to be unreadable, in order of offsets."""
        return [segment.damage for segment in self.segments if segment.damage is not None]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def is_dense(self, segment: Segment) -> bool:
        """Whether a gap between the offsets of a segment's batches means that records are lost."""
        return self.settings.is_dense and segment.base_offset >= self.cleaned_offset

    def lower_cleaned_offset(self, offset: int) -> None:
        """Have the records from `offset` on compacted again. Appends are refused until the checkpoint says
        so: after a crash, a record that comes back there must not count as compacted."""
        if offset < self.cleaned_offset:
            self.cleaned_offset = offset
            self.events.recovery_point_lowered(self)

    def use_files(self, files: OpenFiles) -> None:
        """Open files through `files` from now on; those opened before close."""
        self.disk = files.disk
        self.files = files
        self.segments.use_files(files)
        if self.keys is not None:
            self.keys.use_files(files)

    # Appending.

    def append_prepared(self, prepared: PreparedAppend, leader_epoch: int, now_ms: int) -> AppendResult:
        """Assign offsets to the batches, in place, and write them. Returns a duplicate's existing offsets."""
        # Read together, here and below, because each read of a named tuple's field is a call.
        records, headers, log_end_offset, batch, keys, _ = prepared
        if batch is not None:
            append_time = batch.timestamp if self.settings.uses_log_append_time else NO_TIMESTAMP
            return AppendResult(
                batch.first_offset, batch.last_offset, append_time, self.log_start_offset, is_duplicate=True
            )
        assert log_end_offset == self.log_end_offset, "the log grew since the append was prepared"
        append_time = NO_TIMESTAMP
        if self.settings.uses_log_append_time:
            append_time = now_ms
            headers = [batches.set_log_append_time(records, header, now_ms) for header in headers]
        offset = log_end_offset
        base_offsets = []
        for header in headers:
            position, _, _, _, _, _, _, last_offset_delta, _, _, _, _, _, _ = header
            assign(records, position, offset, leader_epoch)
            base_offsets.append(offset)
            offset += last_offset_delta + 1
        self.epochs.assign(leader_epoch, log_end_offset)
        self.write(records, headers, base_offsets, now_ms, keys)
        return _new_tuple(
            AppendResult, (log_end_offset, offset - 1, append_time, self.log_start_offset, False)
        )

    def write(
        self,
        records: memoryview,
        headers: Sequence[BatchHeader],
        base_offsets: Sequence[int],
        now_ms: int,
        keys: Sequence[Sequence[KeyEntry]] | None = None,
    ) -> None:
        """Write batches at `base_offsets`. `keys` are as in `PreparedAppend`; None if they are not known."""
        last_offset = base_offsets[-1] + headers[-1].last_offset_delta
        try:
            is_one = len(headers) == 1
            if _compiled is None or not (
                is_one and self._append_one(records, headers[0], base_offsets[0], now_ms)
            ):
                max_timestamp = (
                    headers[0].max_timestamp if is_one else max(header.max_timestamp for header in headers)
                )
                if self._must_roll(len(records), last_offset, max_timestamp, now_ms):
                    self._roll(base_offsets[0], now_ms)
                self.segments.active.append(records, headers, base_offsets)
        except OSError as error:
            raise self.refused(error) from error
        was_durable = self.recovery_point >= self.log_end_offset
        index = self.keys
        if index is not None and (index.end_offset != self.log_end_offset or not index.has_room):
            index = None
        self.log_end_offset = last_offset + 1
        self.written_bytes += len(records)
        producers = self.producers
        for number, header in enumerate(headers):
            base_offset = base_offsets[number]
            _, _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, _, _, record_count = header
            if base_offset > producers.map_end_offset:
                producers.append_ids.skip_to(base_offset)  # The leader has compacted what was between.
            producers.map_end_offset = base_offset + last_offset_delta + 1
            if producer_id >= 0:
                aborted = producers.update(header, base_offset, now_ms, records)
                if aborted is not None:
                    self._note_aborted(aborted)
            if attributes & HAS_APPEND_ID:
                producers.remember_id(records, header, base_offset, now_ms)
            elif record_count <= last_offset_delta:
                # Compaction has removed records, and with the first of them an id.
                producers.append_ids.skip_to(base_offset + 1)
        self.report_append(was_durable)
        if index is not None:
            self._index_keys(index, records, headers, base_offsets, keys)

    def _note_aborted(self, aborted: AbortedEntry) -> None:
        self.may_have_aborted = True
        try:
            self.segments.active.aborted.append(aborted)
        except OSError as error:
            raise self.failed(error) from error

    def report_append(self, was_durable: bool) -> None:
        """Report what an append has made due. `was_durable` is whether the log was durable before it."""
        if self.log_end_offset - self.recovery_point >= self.settings.flush_messages:
            self.events.flush_due(self)
        if was_durable:
            self.events.unflushed(self)
        if not self._waits_for_indexes and self.segments.active.indexes.are_ahead:
            self._waits_for_indexes = True
            self.events.indexed(self)

    def _index_keys(
        self,
        index: KeyVersions,
        records: memoryview,
        headers: Sequence[BatchHeader],
        base_offsets: Sequence[int],
        keys: Sequence[Sequence[KeyEntry]] | None,
    ) -> None:
        for number, (header, base_offset) in enumerate(zip(headers, base_offsets, strict=True)):
            entries = readable_keys(records, header) if keys is None else keys[number]
            last_offset = base_offset + header.last_offset_delta
            index.add([(digest, base_offset + delta) for digest, delta in entries], last_offset + 1)
        if index.is_full:
            self.events.keys_full(self)

    def write_indexes(self) -> None:
        """Write the entries of the active segment's indexes that are only in memory. An error counts as that
        of an append, and is not raised."""
        self._waits_for_indexes = False
        if self.failure is not None:
            return
        try:
            self.segments.active.indexes.write()
        except OSError as error:
            self.refused(error)

    def _append_one(self, records: memoryview, header: BatchHeader, base_offset: int, now_ms: int) -> bool:
        """Append a batch in one compiled call, if the active segment has room for it. Returns whether that
        was done."""
        assert _compiled is not None
        settings = self.settings
        age_ms_max = self._age_ms_max(settings) if settings.segment_jitter_ms else settings.segment_age_ms_max
        is_appended: bool = _compiled.append_batch(
            self.segments.active, records, header, base_offset, settings.segment_bytes, age_ms_max, now_ms
        )
        return is_appended

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        active, settings = self.segments.active, self.settings
        if not active.has_room(size, last_offset, settings.segment_bytes):
            return True
        age_ms_max = self._age_ms_max(settings) if settings.segment_jitter_ms else settings.segment_age_ms_max
        return active.size > 0 and active.age_ms(max_timestamp, now_ms) > age_ms_max

    def _age_ms_max(self, settings: LogSettings) -> int:
        """Maximum time span of this log's segments in ms."""
        age_ms_max = settings.segment_age_ms_max
        # As in Kafka, the span is never reduced to nothing: every append would start a segment.
        return age_ms_max - int(self.roll_jitter * min(settings.segment_jitter_ms, age_ms_max))

    def roll(self, now_ms: int) -> None:
        """Start a new segment, unless the last one is empty."""
        self.check_usable()
        if not self.segments.active.size:
            return
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.refused(error) from error

    def _roll(self, base_offset: int, now_ms: int) -> None:
        # If a step fails for lack of descriptors, the log stays usable and its next append rolls again.
        last = self.segments.active
        if last.size:
            last.complete()
            if self._snapshot_pace.is_due(self.producers, now_ms):
                write_snapshot(self.disk, self.directory, self.producers)
        self.segments.add(base_offset, self.settings, now_ms)
        if not last.size:
            # An empty segment in which the offsets do not fit: compaction left a gap before them.
            self.discard([last])
        self.events.flush_due(self)

    # Reading.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        min_one_batch: bool = True,
        skips_empty: bool = False,
    ) -> LogRead:
        """Whole batches from the one with `offset` on, below `upper_offset` and in one file.

        At most `max_bytes`; with `min_one_batch` the first batch may be larger. With `skips_empty` the first
        batch has records, if any from there on does: librdkafka takes a response without records for one
        whose batch was cut off.
        Raises BrokerError with OFFSET_OUT_OF_RANGE for an offset before the log's start or after its end.
        """
        if self.failure is not None or not self.log_start_offset <= offset <= self.log_end_offset:
            self.check_offset(offset)
        if offset >= upper_offset:
            return LogRead(None, offset, offset)
        segment = self.segments.active
        if offset < segment.base_offset:
            segment = next(self.segments.from_offset(offset))
        if _again is not None and segment.damage is None and (segment.is_dense or not skips_empty):
            try:
                again: LogRead | None = _again.find(
                    segment, self.files.known_reads.reads, offset, max_bytes, upper_offset, min_one_batch
                )
            except OSError as error:
                raise self.refused(error) from error
            if again is not None:
                return again
        return Reading(
            self, segment, offset, max_bytes, upper_offset,
            min_one_batch=min_one_batch, skips_empty=skips_empty,
        ).run()  # fmt: skip

    def suspect_at(self, offset: int, why: str) -> BrokerError:
        """Call `suspect` for the segment with `offset`."""
        return self.suspect(next(self.segments.from_offset(offset)), SuspectSegment(why))

    def suspect(self, segment: Segment, error: SuspectSegment) -> BrokerError:
        """Have a segment examined in which a read found content that no broker writes. Returns the error for
        the caller."""
        # The traceback refers to the caller, which may keep the error: that would be a reference cycle.
        error.__traceback__ = None
        self.events.suspected(self, segment.base_offset, str(error))
        return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"{error}; the segment is being examined")

    def check_offset(self, offset: int) -> None:
        """Raises BrokerError with OFFSET_OUT_OF_RANGE for an offset before the log start or after the end."""
        self.check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {offset} is outside "
                f"{self.log_start_offset} to {self.log_end_offset}",
            )

    @property
    def last_written_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there is none or it is unknown.

        The latest epoch may have no batches. If all batches were deleted, this is the latest epoch.
        """
        end_offset = self.log_end_offset
        if 0 < end_offset == self.log_start_offset:
            return self.epochs.latest
        return self.epochs.epoch_at(end_offset - 1)

    def may_have_epoch(self, offset: int, epoch: int) -> bool:
        """Whether the record at `offset` may have been written in `epoch`. Of a record that
        retention or DeleteRecords has removed the epoch may be unknown; it was committed, so no leader has
        replaced it."""
        known = self.epochs.epoch_at(offset)
        is_forgotten = known == UNDEFINED_EPOCH and 0 <= offset < self.log_start_offset
        return known == epoch or is_forgotten

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest known leader epoch not above `epoch`, the offset after its last record)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # Files.

    def discard(self, segments: Sequence[Segment]) -> None:
        """Remove segments from the log, and discard their files. Raises OSError."""
        discarded = self.segments.remove(segments)
        if discarded:
            self.discard_files(discarded)

    def discard_files(self, paths: list[str]) -> None:
        """Remove files that were renamed to `.deleted`, or temporary ones, after a delay (see `LogEvents`).
        Raises OSError."""
        if self.events.discard is not None:
            self.events.discard(self, paths)
        else:
            for path in paths:
                self.disk.remove(path)

    def finish(self) -> None:
        """Write the indexes of the last segment and a snapshot of the producers. No append may follow."""
        try:
            self.segments.active.finish()
            write_snapshot(self.disk, self.directory, self.producers)
        except OSError as error:
            raise self.refused(error) from error

    def release(self) -> None:
        """Close all files without writing."""
        self.segments.release()
        if self.keys is not None:
            self.keys.release()

    def move(self, directory: str) -> None:
        """Use the new name of the log's directory, after it was renamed."""
        self.directory = directory
        self.epochs.record = partial(write_begun_epochs, self.disk, directory)
        self.segments.move(directory)
        if self.keys is not None:
            self.keys.move(directory)

    # Failures.

    def check_may_grow(self) -> None:
        """Raises BrokerError: KAFKA_STORAGE_ERROR once the log has failed, NOT_LEADER_OR_FOLLOWER while a
        truncation is being settled, or the log moves to another directory."""
        self.check_usable()
        if self.settling:
            raise error_for(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} was truncated, or moves to another directory: try again",
            )

    def check_usable(self) -> None:
        """Raises BrokerError with KAFKA_STORAGE_ERROR once the log has failed."""
        if self.failure is not None:
            raise self._storage_error()

    def fail(self, error: OSError) -> None:
        """Refuse every later call: the log's directory failed, or the log was deleted."""
        if self.failure is None:
            self.failure = error

    def failed(self, error: OSError) -> BrokerError:
        """Record a file system failure and call `LogEvents.failed`. Returns the error for the caller."""
        if self.failure is None:
            self.failure = error
            self.events.failed(self, error)
        return self._storage_error()

    def refused(self, error: OSError) -> BrokerError:
        """Handle the failure of an operation. If descriptors or memory were lacking, the log stays in use and
        the operation may be tried again; any other error ends the log, as in `failed`. Returns the error for
        the caller."""
        if self.failure is not None or not is_pressure(error):
            return self.failed(error)
        self.events.pressed(self, error)
        # The traceback refers to the caller, which may keep the error. That reference cycle would keep files
        # open until the next garbage collection, when descriptors are scarce already.
        error.__traceback__ = None
        return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}; {REMEDY}")

    def _storage_error(self) -> BrokerError:
        return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"log {self.directory} failed: {self.failure}")
