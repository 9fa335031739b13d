"""Makes a log durable: the reactor's thread prepares the work, a worker thread does it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import is_pressure


@dataclass(frozen=True, slots=True)
class FlushJob:
    """The work that makes a log durable up to `offset`. Any thread may run it: it does not use the log."""

    disk: Disk
    offset: int
    files: tuple[DiskFile, ...]
    directories: tuple[str, ...]
    metadata_path: str | None
    epochs_path: str
    epochs: bytes | None
    truncations: int

    def run(self) -> None:
        """Do the work. Raises OSError. Try again only if `is_pressure(error)`: after any other error nobody
        knows which writes are durable, and a second fsync may succeed although writes are lost."""
        for file in self.files:
            _fsync(file)
        if self.metadata_path is not None and self.disk.exists(self.metadata_path):
            metadata = self.disk.open(self.metadata_path)
            _fsync(metadata)
            metadata.close()
        for directory in self.directories:
            self.disk.fsync_directory(directory)
        # Before the recovery point advances: recovery reads epochs only from the batches after it.
        if self.epochs is not None:
            self.disk.write_atomically(self.epochs_path, self.epochs)


def _fsync(file: DiskFile) -> None:
    try:
        file.fsync()
    except OSError as error:
        if is_pressure(error):
            # EIO, so that nobody tries again: unlike a failed open, a failed fsync may have lost writes.
            raise OSError(errno.EIO, f"fsync failed: {error}", file.path) from error
        raise


def begin_flush(log: Log, now_ms: int) -> FlushJob:
    """The work that makes all records now in the log durable. The caller must run it, or the log has failed.

    Raises BrokerError with KAFKA_STORAGE_ERROR if the file system fails, or if file descriptors or memory are
    lacking. A lack of descriptors or memory leaves the log unchanged and in use.
    """
    log.check_usable()
    unflushed = [
        segment
        for segment in log.segments
        if segment.next_offset > log.recovery_point or segment.needs_directory_sync or segment.needs_sync
    ]
    try:
        files = tuple(segment.file() for segment in unflushed)
        indexes = [segment.aborted.file_to_sync() for segment in unflushed]
    except OSError as error:
        raise log.refused(error) from error
    log.last_flush_ms = now_ms
    epochs = None
    if log.epochs.is_dirty:
        epochs = checkpoints.encode_epochs(log.epochs.entries)
        log.epochs.is_dirty = False
    directories: tuple[str, ...] = ()
    synced = tuple(file for file in indexes if file is not None)
    files += synced
    if synced or log.has_new_metadata or any(segment.needs_directory_sync for segment in unflushed):
        directories = (log.directory,)
    if log.is_new:
        directories += (os.path.dirname(log.directory),)
        log.is_new = False
    metadata_path = None
    if log.has_new_metadata:
        metadata_path = os.path.join(log.directory, names.PARTITION_METADATA)
        log.has_new_metadata = False
    for segment in unflushed:
        segment.needs_directory_sync = segment.needs_sync = False
        segment.aborted.synced()
    return FlushJob(
        log.disk,
        log.log_end_offset,
        files,
        directories,
        metadata_path,
        os.path.join(log.directory, names.LEADER_EPOCHS),
        epochs,
        log.truncations,
    )


def finish_flush(log: Log, job: FlushJob) -> None:
    """Record that a job has run: the records that it covered are durable.

    Raises OSError if a segment's file was released during the job and its fsync failed.
    """
    for segment in log.segments:
        segment.check_synced()
    if job.truncations != log.truncations:
        # Offsets below the job's may have been rewritten since. If the job wrote the epochs, it may have
        # written some that a truncation had removed: the next flush writes the file again before the recovery
        # point advances.
        if job.epochs is not None:
            log.epochs.is_dirty = True
        log.segments.active.settle(log.recovery_point)
        return
    log.recovery_point = max(log.recovery_point, job.offset)
    for segment in log.segments[:-1]:
        if segment.next_offset <= log.recovery_point:
            segment.release()
    log.segments.active.settle(log.recovery_point)


def flush_at_once(log: Log) -> None:
    """Make all records in the log durable, and wait for the device.

    Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
    """
    job = begin_flush(log, log.last_flush_ms)
    try:
        job.run()
        finish_flush(log, job)
    except OSError as error:
        raise log.failed(error) from error


def close_log(log: Log) -> None:
    """Leave a log ready for a clean start: durable, with complete indexes and a snapshot of its producers.

    Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
    """
    flush_at_once(log)
    log.finish()
    log.release()
