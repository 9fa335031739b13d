"""Has workers write the indexes of logs' keys, and bring them up to the logs' ends by reading records.

Reading is necessary when the setting key.versions is switched on, when the log is opened, after a truncation,
after damage to a file of the index, and when a table could not be written fast enough. The log may grow
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.python.failure import Failure

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.key_memory import KeyMemory
from holdfast_log.broker.log.key_runs import DamagedRun, KeyEntry, KeyRun, find_runs
from holdfast_log.broker.log.key_search import keys_damaged
from holdfast_log.broker.log.key_versions import KeyVersions, MergingJob, WritingJob, readable_keys
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.scan import valid_batches
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import FileSlice

logger = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
"""Bytes of log that a worker reads at a time."""


@dataclass(frozen=True, slots=True)
class KeyScan:
    """Reads the keys of the records from `first_offset` to before `next_offset`. `run` is for a worker."""

    batches: FileSlice
    first_offset: int
    next_offset: int
    truncations: int

    def run(self) -> list[KeyEntry]:
        """The digest and the offset of each record with a key, in order.

        Raises `SuspectSegment` if the file does not hold these records whole, and OSError.
        """
        entries: list[KeyEntry] = []
        end = position = self.batches.offset
        end += self.batches.length
        for header, batch in valid_batches(self.batches.file, position, end):
            position += header.size
            entries += [
                (digest, header.base_offset + delta)
                for digest, delta in readable_keys(batch, header._replace(position=0))
                if header.base_offset + delta >= self.first_offset
            ]
        if position != end:
            raise SuspectSegment(f"no valid batch begins at position {position}")
        return entries


def next_scan(log: Log, index: KeyVersions) -> KeyScan | None:
    """What the index lacks next; None if it is up to date. Raises BrokerError as `Log.read` does."""
    if index.end_offset < log.log_start_offset:
        index.reset(log.log_start_offset)
    if index.end_offset == log.log_end_offset:
        return None
    read = log.read(index.end_offset, SLICE_BYTES, upper_offset=log.log_end_offset)
    if read.slice is None:
        # Only compaction leaves no batch before the log's end.
        index.add((), log.log_end_offset)
        return None
    return KeyScan(read.slice, index.end_offset, read.next_offset, log.truncations)


def finish_scan(log: Log, index: KeyVersions, scan: KeyScan, entries: list[KeyEntry]) -> None:
    """Add what a scan has read, unless the log or the index has changed there since."""
    if scan.truncations == log.truncations and scan.first_offset == index.end_offset:
        index.add(entries, scan.next_offset)


def open_index(log: Log) -> None:
    """Give the log an index if its settings ask for one, or remove the one that it has. Raises OSError."""
    settings, index = log.settings, log.keys
    if not settings.key_versions:
        if index is not None:
            index.reset(log.log_start_offset)
            log.keys = None
        return
    memory_bytes = settings.key_versions_memory_bytes
    if index is None:
        log.keys = KeyVersions(log.directory, log.files, memory_bytes, log.epochs.epoch_at, log.discard_files)
    else:
        index.resize(memory_bytes)


class KeyIndexing:
    """Writes and updates the indexes of logs by worker threads."""

    def __init__(self, workers: Workers, memory: KeyMemory) -> None:
        self._workers = workers
        self._memory = memory
        self._behind: set[Log] = set()
        """The logs whose indexes are catching up."""

    def settings_changed(self, log: Log) -> None:
        """Begin or end to index the log's keys, as its settings say."""
        try:
            open_index(log)
        except OSError as error:
            log.refused(error)
            return
        if log.keys is None:
            return
        log.keys.share(self._memory)
        if log.keys.end_offset != log.log_end_offset:
            self.catch_up(log)

    # Writing and merging.

    def write(self, log: Log) -> None:
        """Begin to write the table of the log's index."""
        index = log.keys
        job = None if index is None else index.begin_writing()
        if index is not None and job is not None:
            self._workers.run(job.run).addCallbacks(
                partial(self._written, log, index, job), partial(self._not_written, log, index, job)
            ).addErrback(partial(_failed, log))

    def _written(self, log: Log, index: KeyVersions, job: WritingJob, run: KeyRun) -> None:
        if log.failure is not None:
            return
        index.finish_writing(job, run)
        if index is not log.keys:
            return
        self._merge(log, index)
        if index.is_full:
            self.write(log)
        if index.end_offset != log.log_end_offset:
            self.catch_up(log)

    def _not_written(self, log: Log, index: KeyVersions, job: WritingJob, failure: Failure) -> None:
        index.fail_writing(job)
        _failed(log, failure)

    def _merge(self, log: Log, index: KeyVersions) -> None:
        """Begin to merge files of the index, if there are many."""
        job = index.begin_merging(log.log_start_offset)
        if job is not None:
            self._workers.run(job.run).addCallbacks(
                partial(self._merged, log, index, job), partial(self._not_merged, log, index, job)
            ).addErrback(partial(_failed, log))

    def _merged(self, log: Log, index: KeyVersions, job: MergingJob, run: KeyRun) -> None:
        if log.failure is None:
            index.finish_merging(job, run)
            self._merge(log, index)

    def _not_merged(self, log: Log, index: KeyVersions, job: MergingJob, failure: Failure) -> None:
        is_current = job.truncations == index.truncations
        index.fail_merging(job)
        if not failure.check(DamagedRun):
            _failed(log, failure)
        elif is_current and log.failure is None:
            keys_damaged(log, str(failure.value))

    # Catching up.

    def catch_up(self, log: Log) -> None:
        """Begin to read what the log's index lacks."""
        if log not in self._behind:
            self._behind.add(log)
            self._continue(log)

    def _continue(self, log: Log) -> None:
        """Begin the next step, if there is one."""
        index = log.keys
        step: Callable[[], Any] | None = None
        if index is not None and log.failure is None:
            try:
                step = self._next_step(log, index)
            except (BrokerError, OSError) as error:
                # A later request that needs the index has it tried again.
                logger.warning("The index of keys of %s cannot read the log: %s", log.topic_partition, error)
        if step is None:
            self._behind.discard(log)
        else:
            step()

    def _next_step(self, log: Log, index: KeyVersions) -> Callable[[], Any] | None:
        if not index.is_loaded:
            return partial(self._load, log, index)
        if index.is_full:
            # The last attempt to write it has failed, or its limit was lowered.
            self.write(log)
        if not index.has_room:
            return None  # The end of the writing begins again.
        scan = next_scan(log, index)
        return None if scan is None else partial(self._scan, log, index, scan)

    def _load(self, log: Log, index: KeyVersions) -> None:
        self._workers.run(find_runs, log.disk, log.directory).addCallbacks(
            partial(self._found, log, index), partial(self._stopped, log)
        ).addErrback(partial(self._stopped, log))

    def _found(self, log: Log, index: KeyVersions, runs: list[KeyRun]) -> None:
        if log.failure is None and log.keys is index and not index.is_loaded:
            index.load(runs, log.log_start_offset, log.log_end_offset)
        self._continue(log)

    def _scan(self, log: Log, index: KeyVersions, scan: KeyScan) -> None:
        self._workers.run(scan.run).addCallbacks(
            partial(self._scanned, log, index, scan), partial(self._not_scanned, log, scan)
        ).addErrback(partial(self._stopped, log))

    def _scanned(self, log: Log, index: KeyVersions, scan: KeyScan, entries: list[KeyEntry]) -> None:
        if log.failure is None and log.keys is index:
            finish_scan(log, index, scan, entries)
            if index.is_full:
                self.write(log)
        self._continue(log)

    def _not_scanned(self, log: Log, scan: KeyScan, failure: Failure) -> None:
        if not failure.check(SuspectSegment):
            self._stopped(log, failure)
        elif log.truncations != scan.truncations:
            # The truncation has changed the file meanwhile.
            self._continue(log)
        else:
            self._behind.discard(log)
            log.suspect_at(scan.first_offset, str(failure.value))

    def _stopped(self, log: Log, failure: Failure) -> None:
        self._behind.discard(log)
        _failed(log, failure)


def _failed(log: Log, failure: Failure) -> None:
    """Errback: an OSError is the log's; any other error leaves the index as it is."""
    error = failure.value
    if log.failure is not None:
        return
    if isinstance(error, OSError):
        log.refused(error)
    else:
        logger.error("Indexing the keys of %s failed", log.topic_partition, exc_info=raised(failure))
