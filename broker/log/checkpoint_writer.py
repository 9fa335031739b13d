"""Writes the checkpoints of log directories: periodically in a worker, or immediately where needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from broker.log.directory import LogDirectory, write_files
from broker.log.disk import Disk
from broker.workers import Workers, all_back
from protocol.topic_partition import TopicPartition


class CheckpointWriter:
    """Writes the checkpoints of live directories; calls `failed` with a directory that cannot be written."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        disk: Disk,
        workers: Workers,
        failed: Callable[[LogDirectory, Failure], None],
    ) -> None:
        self._directories = directories
        self._disk = disk
        self._workers = workers
        self._failed = failed

    def write_offsets(self) -> Deferred[None]:
        """Write recovery points and log start offsets, in a worker."""
        return self._write_all(lambda directory: directory.offset_checkpoints())

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Write high watermarks, in a worker."""
        return self._write_all(lambda directory: directory.high_watermark_checkpoint(offsets))

    def write_last(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Write all checkpoints of a directory whose logs are closed, in a worker; `offsets` are high
        watermarks."""
        files = directory.offset_checkpoints() | directory.high_watermark_checkpoint(offsets)
        return self._workers.run(write_files, self._disk, files)

    def write_now(self, directory: LogDirectory) -> None:
        """Write recovery points and log start offsets before returning. Raises OSError."""
        directory.checkpoints_written_now += 1
        write_files(self._disk, directory.offset_checkpoints())

    def _write_all(self, content: Callable[[LogDirectory], dict[str, bytes]]) -> Deferred[None]:
        live = [directory for directory in self._directories if directory.failure is None]
        return all_back([self._write(directory, content(directory)) for directory in live])

    def _write(self, directory: LogDirectory, files: Mapping[str, bytes]) -> Deferred[None]:
        written_now = directory.checkpoints_written_now
        written = self._workers.run(write_files, self._disk, files)

        def check(_: None) -> None:
            # A checkpoint that was written meanwhile, because it could not wait, may have been replaced.
            if written_now != directory.checkpoints_written_now:
                self.write_now(directory)

        written.addCallback(check)
        return written.addErrback(lambda failure: self._failed(directory, failure))
