"""Brings the index of a log's keys up to the log's end, by reading records from the log.

That is necessary when the setting key.versions is switched on, when the log is opened, after a truncation,
and after damage to a file of the index. The log may grow meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.python.failure import Failure

from broker.log.key_runs import KeyEntry
from broker.log.key_versions import KeyVersions, WritingJob, readable_keys
from broker.log.log import Log
from broker.workers import Workers
from protocol.batches import whole_batches
from protocol.errors import BrokerError
from protocol.frames import FileSlice

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
        """The digest and the offset of each record with a key, in order. Raises EOFError if the file has
        become shorter, and OSError."""
        data = self.batches.read()
        return [
            (digest, header.base_offset + delta)
            for header in whole_batches(data)
            for digest, delta in readable_keys(data, header)
            if header.base_offset + delta >= self.first_offset
        ]


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
    if index is None:
        index = KeyVersions(
            log.directory,
            log.files,
            log.log_start_offset,
            settings.key_versions_memory_bytes,
            log.epochs.epoch_at,
        )
        index.load(log.log_start_offset, log.log_end_offset)
        log.keys = index
    index.resize(settings.key_versions_memory_bytes)


def catch_up_at_once(log: Log) -> None:
    """Bring the index up to date, and write its files, on this thread. Raises OSError and BrokerError."""
    index = log.keys
    while index is not None:
        scan = next_scan(log, index)
        if scan is None:
            return
        finish_scan(log, index, scan, scan.run())
        if index.is_full:
            write_at_once(log)


def write_at_once(log: Log) -> None:
    """Write the table of the index into a file, on this thread. Raises OSError."""
    index = log.keys
    job = None if index is None else index.begin_writing(log.log_start_offset)
    if index is not None and job is not None:
        index.finish_writing(job, job.run())


class KeyIndexing:
    """Writes and updates the indexes of logs by worker threads."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._behind: set[Log] = set()

    def settings_changed(self, log: Log) -> None:
        """Begin or end to index the log's keys, as its settings say."""
        try:
            open_index(log)
        except OSError as error:
            log.refused(error)
            return
        if log.keys is not None and log.keys.end_offset != log.log_end_offset:
            self.catch_up(log)

    def write(self, log: Log) -> None:
        """Begin to write the table of the log's index."""
        index = log.keys
        job = None if index is None else index.begin_writing(log.log_start_offset)
        if index is None or job is None:
            return
        self._workers.run(job.run).addCallbacks(
            partial(self._written, log, index, job), partial(self._not_written, log, index, job)
        ).addErrback(partial(_failed, log))

    def _written(self, log: Log, index: KeyVersions, job: WritingJob, result: Any) -> None:
        if log.failure is not None:
            return
        index.finish_writing(job, result)
        if index.is_full:
            self.write(log)

    def _not_written(self, log: Log, index: KeyVersions, job: WritingJob, failure: Failure) -> None:
        index.fail_writing(job)
        _failed(log, failure)

    def catch_up(self, log: Log) -> None:
        """Begin to read what the log's index lacks."""
        if log not in self._behind:
            self._behind.add(log)
            self._scan(log)

    def _scan(self, log: Log) -> None:
        index = log.keys
        scan = None
        if index is not None and log.failure is None:
            try:
                scan = next_scan(log, index)
            except (BrokerError, OSError) as error:
                # A later request that needs the index has it tried again.
                logger.warning("The index of keys of %s cannot read the log: %s", log.topic_partition, error)
        if index is None or scan is None:
            self._behind.discard(log)
            return
        self._workers.run(scan.run).addCallbacks(
            partial(self._scanned, log, index, scan), partial(self._not_scanned, log)
        ).addErrback(partial(_failed, log))

    def _scanned(self, log: Log, index: KeyVersions, scan: KeyScan, entries: list[KeyEntry]) -> None:
        if log.failure is None and log.keys is index:
            finish_scan(log, index, scan, entries)
            if index.is_full:
                self.write(log)
        self._scan(log)

    def _not_scanned(self, log: Log, failure: Failure) -> None:
        self._behind.discard(log)
        # A truncation may have shortened the file in the meantime.
        if not failure.check(EOFError):
            _failed(log, failure)


def _failed(log: Log, failure: Failure) -> None:
    """Errback: an OSError is the log's; any other error leaves the index as it is."""
    error = failure.value
    if log.failure is not None:
        return
    if isinstance(error, OSError):
        log.refused(error)
    else:
        logger.error("Indexing the keys of %s failed\n%s", log.topic_partition, failure.getTraceback())
