"""What has to be done for a log to be durable: worked out on the reactor's thread, run by a worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.log import checkpoints, names
from broker.log.disk import Disk, DiskFile

if TYPE_CHECKING:
    from broker.log.log import Log


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Everything that makes a log durable up to `offset`: work for a thread, which touches no log."""

    disk: Disk
    offset: int
    files: tuple[DiskFile, ...]
    directories: tuple[str, ...]
    epochs_path: str
    epochs: bytes | None
    truncations: int

    def run(self) -> None:
        """Raises OSError; then nobody knows what is durable, and running it again would not tell."""
        for file in self.files:
            file.fsync()
        for directory in self.directories:
            self.disk.fsync_directory(directory)
        # Before the recovery point moves on: recovery reads epochs again only from batches beyond it.
        if self.epochs is not None:
            self.disk.write_atomically(self.epochs_path, self.epochs)


def begin_flush(log: Log, now_ms: int = 0) -> FlushJob:
    """What has to be done for all that is in the log now to be durable. To be run, or the log has failed.

    Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
    """
    log.check_usable()
    log.last_flush_ms = now_ms
    unflushed = [
        segment
        for segment in log.segments
        if segment.next_offset > log.recovery_point or segment.needs_directory_sync
    ]
    epochs = None
    if log.epochs.is_dirty:
        epochs = checkpoints.encode_epochs(log.epochs.entries)
        log.epochs.is_dirty = False
    directories: tuple[str, ...] = ()
    if any(segment.needs_directory_sync for segment in unflushed):
        directories = (log.directory,)
    if log.is_new:
        directories += (os.path.dirname(log.directory),)
        log.is_new = False
    for segment in unflushed:
        segment.needs_directory_sync = False
    try:
        files = tuple(segment.file() for segment in unflushed)
    except OSError as error:
        raise log.failed(error) from error
    return FlushJob(
        log.disk,
        log.log_end_offset,
        files,
        directories,
        os.path.join(log.directory, names.LEADER_EPOCHS),
        epochs,
        log.truncations,
    )


def finish_flush(log: Log, job: FlushJob) -> None:
    """The job has run: what it covered is durable."""
    if job.truncations != log.truncations:
        # Offsets below the job's may have been written anew since. And if it wrote the epochs, it may have
        # put back some that truncation had removed.
        if job.epochs is not None:
            log.write_epochs()
        return
    log.recovery_point = max(log.recovery_point, job.offset)
    for segment in log.segments[:-1]:
        if segment.next_offset <= log.recovery_point:
            segment.release()
