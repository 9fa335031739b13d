"""All logs of a broker, in one or several directories.

A directory whose file system fails goes offline with its logs; the broker keeps using the others.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from holdfast_log.broker.log import names
from holdfast_log.broker.log.after_checkpoint import remove_before_start, settle
from holdfast_log.broker.log.arrivals import Arrivals
from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.closing import close_directory
from holdfast_log.broker.log.delayed_removals import DelayedRemovals
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.directory_choices import DirectoryChoices
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.flush_schedule import FlushSchedule
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.log.key_memory import KeyMemory
from holdfast_log.broker.log.key_reading import KeyIndexing
from holdfast_log.broker.log.loader import Loader
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.manager_limits import ManagerLimits
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.pressure import REMEDY, is_pressure
from holdfast_log.broker.log.producer_totals import ProducerTotals
from holdfast_log.broker.log.recovery import create_log, write_partition_metadata
from holdfast_log.broker.log.runs import Runs
from holdfast_log.broker.log.scrubber import Scrubber, ScrubSettings
from holdfast_log.broker.log.settings_in_force import LogSettingsInForce
from holdfast_log.broker.log.truncation import restore_log_producers
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, TimeOfDay, now_ms
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

ZERO_ID = uuid.UUID(int=0)

_PRESSURE_LOG_MS = 10_000
"""Minimum time between two log lines about refused operations."""


class LogManager:
    """The map of partitions to logs.

    `defaults` are the broker's values of topic settings (see `topic_defaults`). `open_files_max` bounds the
    files that are open, those of responses that are being sent included. `boot` identifies this boot of the
    machine, None where the system has no such id.
    """

    def __init__(
        self,
        paths: Sequence[str],
        disk: Disk,
        workers: Workers,
        clock: Clock,
        date_ms: TimeOfDay,
        chance: random.Random,
        flusher: Flusher,
        defaults: Mapping[str, Any],
        limits: ManagerLimits | None = None,
        open_files_max: int = 1024,
        scrub: ScrubSettings | None = None,
        boot: str | None = None,
    ) -> None:
        self.disk = disk
        self.flusher = flusher
        self._failure_listeners: list[Callable[[str], None]] = []
        self._damage_listeners: list[Callable[[Log], None]] = []
        self.missing: tuple[str, ...] = ()
        """Ids of directories that this broker has used and that are missing: their replicas are offline."""
        self.lost: tuple[str, ...] = ()
        """Ids of directories that this broker has used and that the operator has given up (log.dirs.lost)."""
        self.damaged: dict[Log, None] = {}
        """Logs with segments that cannot be read."""
        self.choices = DirectoryChoices()
        self.directories = [LogDirectory(disk, os.path.abspath(path), boot) for path in paths]
        self.settings = LogSettingsInForce(defaults, self, self._settings_changed)
        self.checkpoints = CheckpointWriter(self.directories, disk, workers, clock, self._writing_failed)
        self.runs = Runs(self.directories, workers, clock, self._directory_failed)
        self.arrivals = Arrivals(self, disk, workers)
        self._workers = workers
        self._clock = clock
        self._date_ms = date_ms
        self._random = chance
        self._limits = limits or ManagerLimits()
        self._producer_totals = ProducerTotals(self._limits.totals, UNKNOWN_SOURCE)
        self._files = OpenFiles(disk, open_files_max * 2 // 3, open_files_max, self._flush_soon)
        self._removals = DelayedRemovals(disk, workers, clock)
        self._pressure_logged_ms: int | None = None
        self._flush_schedule = FlushSchedule(flusher.flush)
        self._key_indexing = KeyIndexing(workers, KeyMemory(self._limits.key_memory_bytes))
        self.scrubber = Scrubber(
            self, disk, workers, clock, date_ms, scrub or ScrubSettings(), self._log_damaged
        )
        self._events: dict[LogDirectory, LogEvents[Log]] = {}

    def add_failure_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the path of each directory that goes offline from now on."""
        self._failure_listeners.append(listener)

    def add_damage_listener(self, listener: Callable[[Log], None]) -> None:
        """Call `listener` with each log in which damage is found from now on."""
        self._damage_listeners.append(listener)

    def segment_repaired(self, log: Log) -> None:
        """Restore what damage has hidden, now that a sound copy has replaced a segment of the log."""
        if log.producers.is_complete:
            return
        try:
            restore_log_producers(log, self._date_ms())
        except OSError as error:
            log.failed(error)

    def _log_damaged(self, log: Log) -> None:
        self.damaged[log] = None
        for listener in self._damage_listeners:
            listener(log)

    def __iter__(self) -> Iterator[Log]:
        for directory in self.live_directories:
            yield from directory.logs.values()

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    # Starting.

    def start(self) -> Deferred[None]:
        """Load the logs on disk, several of a directory at a time. An unreadable directory is taken
        offline."""
        loader = Loader(
            self._workers,
            self._clock,
            self._limits.num_recovery_threads_per_data_dir,
            self._request,
            self.arrivals.loaded,
        )
        return loader.load(self.directories, self._directory_failed).addCallback(
            lambda _: self.arrivals.finish_moves()
        )

    def begin_run(self, start_epoch: int) -> Deferred[None]:
        """Mark the directories as written by this process, which is registered under `start_epoch`. Call it
        before anything is appended. A directory that cannot be marked goes offline."""
        return self.runs.begin(start_epoch).addCallback(lambda _: self._examine_doubtful())

    def _examine_doubtful(self) -> None:
        for log in self:
            if log.doubt is not None:
                log.suspect_at(*log.doubt)
                log.doubt = None

    def _directory_failed(self, directory: LogDirectory, failure: Failure) -> None:
        """Errback: an OSError takes the directory offline; any other failure is a bug and is raised."""
        failure.trap(OSError)
        assert isinstance(failure.value, OSError)
        self.fail_directory(directory, failure.value)

    def _writing_failed(self, directory: LogDirectory, failure: Failure) -> None:
        """Errback of a checkpoint write: any error takes the directory offline."""
        error = failure.value
        if not isinstance(error, OSError):
            logger.error("A checkpoint could not be written", exc_info=raised(failure))
            error = OSError(f"a checkpoint could not be written: {error!r}")
        self.fail_directory(directory, error)

    def _request(
        self, directory: LogDirectory, partition: TopicPartition, topic_id: uuid.UUID | None = None
    ) -> LoadRequest:
        offsets = directory.entries(partition)
        return LoadRequest(
            partition,
            directory.path_of(str(partition)),
            self.settings.of(partition.topic),
            self._date_ms(),
            **{name: entry.offset for name, entry in offsets.items()},
            tags={name: entry.tag for name, entry in offsets.items()},
            is_clean=directory.is_clean,
            has_all_writes=directory.has_all_writes,
            last_write_ms=directory.last_write_ms,
            cut_short=directory.unmark,
            topic_id=topic_id,
            producer_expiration_ms=self._limits.producer_id_expiration_ms,
            append_id_limits=self._limits.append_ids,
        )

    def adopt(self, directory: LogDirectory, log: Log) -> Log:
        """Add a log that a worker opened or that was created."""
        log.use_files(self._files)
        log.settings = self.settings.of(log.topic_partition.topic)
        log.producers.use_totals(self._producer_totals)
        log.events = self._events_in(directory)
        log.last_flush_ms = now_ms(self._clock)
        log.roll_jitter = self._random.random()
        directory.logs[log.topic_partition] = log
        self._flush_schedule.note(log)
        if log.damages:
            self.damaged[log] = None
        self._key_indexing.settings_changed(log)
        return log

    def _events_in(self, directory: LogDirectory) -> LogEvents[Log]:
        """What the logs of a directory report, and to whom."""
        events = self._events.get(directory)
        if events is None:
            events = self._events[directory] = self._new_events(directory)
        return events

    def _new_events(self, directory: LogDirectory) -> LogEvents[Log]:
        return LogEvents(
            discard=self._removals.discard,
            start_moved=partial(remove_before_start, self.checkpoints, directory),
            flush_due=self.flusher.flush,
            unflushed=self._flush_schedule.note,
            indexed=self._flush_schedule.note_indexed,
            recovery_point_lowered=partial(settle, self.checkpoints, directory, self._workers),
            pressed=self._pressed,
            suspected=self.scrubber.examine,
            keys_full=self._key_indexing.write,
            keys_behind=self._key_indexing.catch_up,
            failed=lambda _, error: self.fail_directory(directory, error),
        )

    # Finding, creating and deleting logs.

    def find(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, if a live directory has it."""
        for directory in self.live_directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def get_or_create(
        self, partition: TopicPartition, topic_id: uuid.UUID | None = None, *, is_new: bool = True
    ) -> Log:
        """The log of a partition; a new one is created in the directory of `choices`.

        Raises BrokerError: INCONSISTENT_TOPIC_ID if the log belongs to an older topic of the same name,
        KAFKA_STORAGE_ERROR if the log cannot be created, or if the partition is not `is_new` and its log may
        be in an offline directory.
        """
        topic_id = None if topic_id == ZERO_ID else topic_id
        if (log := self.find(partition)) is not None:
            self._check_topic_id(log, topic_id)
            return log
        live = self.live_directories
        if not live or (not is_new and (self.missing or len(live) < len(self.directories))):
            raise error_for(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition}: a log directory is offline or missing"
            )
        directory = self.choices.take(partition, live)
        # Checkpoint entries under this name belong to an earlier log, which no longer exists.
        has_old_point = directory.forget_entries(partition, topic_id)
        try:
            if not self.disk.is_directory(directory.path):
                # Its disk is missing. Creating the directory would put it on the disk below the mount point.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory.path)
            log = create_log(self.disk, self._request(directory, partition, topic_id))
        except OSError as error:
            if not is_pressure(error):
                self.fail_directory(directory, error)
            raise error_for(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be created: {error}"
            ) from error
        self.adopt(directory, log)
        if has_old_point:
            # Recovery would not check what is written before the old recovery point.
            settle(self.checkpoints, directory, self._workers, log)
        return log

    def may_have_lost(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        """Whether this broker has no log of the partition now, but had one before or may have had one. A log
        of an earlier topic of the same name does not count."""
        topic_id = None if topic_id == ZERO_ID else topic_id
        entries = [directory.recovery_points.get(partition) for directory in self.live_directories]
        known = any(entry is not None and entry.may_be_of(topic_id) for entry in entries)
        return self.find(partition) is None and (bool(self.lost) or known)

    def _check_topic_id(self, log: Log, topic_id: uuid.UUID | None) -> None:
        if topic_id is None or log.topic_id == topic_id:
            return
        if log.topic_id is not None:
            raise error_for(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} holds data of topic id {log.topic_id}, not of {topic_id}",
            )
        try:
            write_partition_metadata(self.disk, log.directory, topic_id)
        except OSError as error:
            if not is_pressure(error):
                self.fail_directory(self.directory_of(log), error)
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.topic_id = topic_id
        log.has_new_metadata = True

    def high_watermark(self, partition: TopicPartition) -> int:
        """The last known high watermark of the partition's log; 0 where there is none."""
        for directory in self.live_directories:
            log = directory.logs.get(partition)
            if log is not None:
                entry = directory.high_watermarks.get(partition)
                return entry.offset if entry is not None and entry.may_be_of(log.topic_id) else 0
        return 0

    def know_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        """Remember the high watermark of a log whose replica has ended, for the checkpoints and for the next
        replica. No effect without such a log."""
        log = self.find(partition)
        if log is not None:
            self.directory_of(log).know_high_watermark(partition, offset)

    def set_aside(self, log: Log) -> None:
        """Keep a log of a partition for which another directory's log is used."""
        directory, partition = self.directory_of(log), log.topic_partition
        directory.spares[partition] = directory.logs.pop(partition)
        self._flush_schedule.forget(log)

    def drop(self, log: Log, directory: LogDirectory) -> None:
        """Remove a log of this directory at once, with its files. An error takes the directory offline."""
        with contextlib.suppress(BrokerError):  # Which has been logged.
            path = self._take_out(log, names.deleted_directory, directory)
            self._removals.remove_later(path, 0, self.disk.remove_directory)

    def delete(self, partition: TopicPartition) -> None:
        """Remove the partition's log at once, and its files after `file.delete.delay.ms`.

        Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
        """
        log = self.find(partition)
        if log is not None:
            self.directory_of(log).recovery_points.pop(partition, None)
            self.arrivals.interrupted_moves.pop(partition, None)
            path = self._take_out(log, names.deleted_directory)
            self._removals.remove_later(path, log.settings.file_delete_delay_ms, self.disk.remove_directory)

    def move_aside(self, partition: TopicPartition) -> str:
        """Remove the partition's log, which must exist, and keep its files; returns their directory.

        Where another directory has a log of that name, that is the partition's now. Raises as `delete` does.
        """
        log = self.find(partition)
        assert log is not None
        path = self._take_out(log, names.stray_directory)
        for directory in self.live_directories:
            if partition in directory.spares:
                self.adopt(directory, directory.spares.pop(partition))
                break
        return path

    def replace(self, log: Log, copy: Log, directory: LogDirectory) -> None:
        """Use a spare of another directory, `copy`, in place of a log, whose files are removed after
        `file.delete.delay.ms`. Raises as `delete` does."""
        partition, delay_ms = log.topic_partition, log.settings.file_delete_delay_ms
        self.directory_of(log).recovery_points.pop(partition, None)
        path = self._take_out(log, names.deleted_directory)
        self._removals.remove_later(path, delay_ms, self.disk.remove_directory)
        self.adopt(directory, directory.spares.pop(partition))

    def request_of_copy(self, log: Log, directory: LogDirectory) -> LoadRequest:
        """How to open the complete and durable copy of a log in another directory."""
        return replace(
            self._request(directory, log.topic_partition, log.topic_id),
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            cleaned_offset=log.cleaned_offset,
            tags={},
            is_clean=True,
            has_all_writes=True,
            cut_short=lambda: None,
        )

    def _take_out(
        self,
        log: Log,
        name: Callable[[TopicPartition, uuid.UUID], str],
        directory: LogDirectory | None = None,
    ) -> str:
        """Remove a log and rename its directory; returns the new path."""
        partition, directory = log.topic_partition, directory or self.directory_of(log)
        del directory.logs[partition]
        directory.high_watermarks.pop(partition, None)
        self._flush_schedule.forget(log)
        self.damaged.pop(log, None)
        # The log has left the directory: errors with its files must not take the directory offline.
        log.events = LogEvents()
        log.release()
        path = directory.path_of(name(partition, uuid.UUID(int=self._random.getrandbits(128), version=4)))
        try:
            self.disk.rename(log.directory, path)
        except OSError as error:
            log.fail(error)
            self.fail_directory(directory, error)
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.move(path)
        log.fail(OSError(f"{partition} was deleted"))
        directory.note_departure(log)
        return path

    def directory_of(self, log: Log) -> LogDirectory:
        """The directory that has a log."""
        return next(
            directory for directory in self.directories if directory.logs.get(log.topic_partition) is log
        )

    # Durability.

    def _flush_soon(self, path: str) -> None:
        """Begin to flush the log of which `path` is a segment."""
        name = os.path.basename(os.path.dirname(path))
        partition = names.parse_directory(name)
        log = None if partition is None else self.find(partition)
        if log is not None:
            self.flusher.flush(log)

    def _pressed(self, log: Log, error: OSError) -> None:
        at_ms, logged_ms = now_ms(self._clock), self._pressure_logged_ms
        if logged_ms is None or at_ms - logged_ms >= _PRESSURE_LOG_MS:
            self._pressure_logged_ms = at_ms
            logger.warning("An operation on %s is refused: %s; %s", log.topic_partition, error, REMEDY)

    def _settings_changed(self, log: Log) -> None:
        for segment in log.segments:
            segment.is_dense = log.is_dense(segment)
        self._flush_schedule.note(log)
        self._key_indexing.settings_changed(log)

    def flush_due(self) -> None:
        """Start to flush the logs whose `flush.ms` has passed, and write new entries of indexes."""
        self._flush_schedule.run(now_ms(self._clock))

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        date_ms = self._date_ms()
        for log in self:
            log.producers.expire(date_ms)

    def close(self, high_watermarks: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Close all logs, write the checkpoints, and mark the stop as clean.

        The manager and its logs must not be used afterwards.
        """
        self.scrubber.stop()
        # First all fsyncs in parallel. Then the closing, in which only one worker may use a log.
        flushes = [self.flusher.durable(log, log.log_end_offset) for log in self]
        closed: Deferred[Any] = DeferredList(flushes, consumeErrors=True)
        for directory in self.live_directories:
            closed.addCallback(
                partial(close_directory, directory, self.checkpoints, self._workers, high_watermarks)
            )
        return closed

    # Directories that fail.

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline, with all its logs."""
        if directory.failure is not None:
            return
        directory.failure = error
        # One line, however many logs: log-dirs.sh lists them.
        logger.error(
            "Log directory %s is offline, with the logs of %s: %s",
            directory.path,
            names.shortened(sorted(directory.logs)) or "no partition",
            error,
        )
        # The system may have dropped writes that failed, so the run mark must go. If its removal fails as
        # well, nothing more can be done on this disk.
        self._workers.run(directory.unmark_run).addErrback(_expect_os_error)
        for log in directory.logs.values():
            log.fail(error)
            self._flush_schedule.forget(log)
        for listener in self._failure_listeners:
            listener(directory.path)


def _expect_os_error(failure: Failure) -> None:
    failure.trap(OSError)
