"""Index of a log's keys: the offset of the last record with each key, which is the key's version.

The newest keys are in a table in memory, the others in sorted files (`broker.log.key_runs`). When the table
is full, a worker writes it into a file and merges older files; the newest file is never merged, because a
truncation removes every file that covers a removed record. The index holds nothing that the log does not
hold: what is missing after a crash, a truncation or damage is read from the log again.

The index covers the log from its start to `end_offset`. Where the log has grown further, the index has to
catch up before it can be asked.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.log.disk import Disk
from broker.log.key_runs import (
    DIGEST_BYTES,
    NO_VERSION,
    DamagedRun,
    KeyEntry,
    KeyRun,
    entries_of,
    find,
    first_guess,
    is_run_name,
    merged,
    read_run,
    run_name,
    write_run,
)
from broker.log.names import TEMPORARY
from broker.log.open_files import OpenFiles
from protocol.batches import BatchHeader
from protocol.errors import BrokerError
from protocol.records import decode_columns
from protocol.wire import Buffer

logger = logging.getLogger(__name__)

BYTES_PER_KEY = 200
"""Memory of one entry of the table: the digest, the offset, and their place in the dict."""
RECORDS_MAX = 1_000_000
"""Maximum number of records that the table covers, and so that a restart reads from the log again."""
_GROWTH = 2
"""Files are merged while an older file has at most this many times the keys of the newer ones together."""


def digest_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


def keys_of(records: Buffer, header: BatchHeader) -> list[KeyEntry]:
    """The digest of each record's key, and the record's offset relative to its batch, of the records with
    keys.

    Raises BrokerError with CORRUPT_MESSAGE for records that cannot be decoded. Markers of transactions have
    no keys.
    """
    if header.is_control:
        return []
    columns = decode_columns(records, header)
    pairs = zip(columns.keys, columns.offsets, strict=True)
    return [(digest_of(key), offset - header.base_offset) for key, offset in pairs if key is not None]


def readable_keys(records: Buffer, header: BatchHeader) -> list[KeyEntry]:
    """Like `keys_of`, for a batch that is in the log; records that cannot be decoded count as without
    keys."""
    try:
        return keys_of(records, header)
    except BrokerError as error:
        logger.warning(
            "The records at offsets %d to %d get no key versions: %s",
            header.base_offset, header.last_offset, error,
        )  # fmt: skip
        return []


@dataclass(frozen=True, slots=True)
class WritingJob:
    """Writes a table into a file, and merges older files. `run` is for a worker; it uses nothing that another
    thread changes."""

    disk: Disk
    table: dict[bytes, int]
    first_offset: int
    end_offset: int
    end_epoch: int
    to_merge: tuple[KeyRun, ...]
    log_start_offset: int
    path: str
    """Path of the new file until it is adopted; the merged file's has one more letter."""
    truncations: int

    def run(self) -> tuple[KeyRun, KeyRun | None]:
        """Returns the new file and the merged one. Raises OSError and `DamagedRun`."""
        new = write_run(
            self.disk,
            self.path,
            sorted(self.table.items()),
            self.first_offset,
            self.end_offset,
            self.end_epoch,
        )
        if not self.to_merge:
            return new, None
        files = [self.disk.open(run.path) for run in self.to_merge]
        try:
            entries = [entries_of(run, file) for run, file in zip(self.to_merge, files, strict=True)]
            oldest, newest = self.to_merge[0], self.to_merge[-1]
            return new, write_run(
                self.disk, _merged_path(self.path), merged(entries, self.log_start_offset),
                oldest.first_offset, newest.end_offset, newest.end_epoch,
            )  # fmt: skip
        finally:
            for file in files:
                file.close()


def _merged_path(path: str) -> str:
    return path.removesuffix(TEMPORARY) + "m" + TEMPORARY


class KeyVersions:
    """The index of one log. Belongs to the reactor's thread; `WritingJob.run` is for workers.

    At most `memory_bytes` are used by the table, and as much by one that is being written. `epoch_at` returns
    the leader epoch of the record at an offset. Methods raise OSError from the disk.
    """

    def __init__(
        self,
        directory: str,
        files: OpenFiles,
        start_offset: int,
        memory_bytes: int,
        epoch_at: Callable[[int], int],
    ) -> None:
        self.end_offset = start_offset
        """All records below this offset are included."""
        self.resize(memory_bytes)
        self.truncations = 0
        """Number of truncations; what a worker read or wrote before one is not used after it."""
        self._directory = directory
        self._files = files
        self._epoch_at = epoch_at
        self._table: dict[bytes, int] = {}
        self._table_start = start_offset
        self._writing: WritingJob | None = None
        self._is_written = False
        """Whether a worker is carrying out the job; if not, the job has failed and can be repeated."""
        self._jobs = 0
        self._runs: list[KeyRun] = []

    def load(self, log_start_offset: int, log_end_offset: int) -> None:
        """Use the files in the directory that belong to this log, and remove the others."""
        usable: list[KeyRun] = []
        for run in self._found(log_end_offset):
            expected = usable[-1].end_offset if usable else None
            if (run.first_offset > log_start_offset) if expected is None else (run.first_offset != expected):
                self._remove(run)
            else:
                usable.append(run)
        if usable and usable[-1].end_offset < log_start_offset:
            self._remove(*usable)
            usable = []
        self._runs = usable
        self.end_offset = self._table_start = usable[-1].end_offset if usable else log_start_offset

    def _found(self, log_end_offset: int) -> list[KeyRun]:
        """The files that match the log, in order, without those that a merged one includes."""
        disk, found = self._files.disk, []
        for name in filter(is_run_name, disk.list(self._directory)):
            path = os.path.join(self._directory, name)
            try:
                run = read_run(disk, path)
            except DamagedRun as error:
                logger.warning("Removing %s, whose keys are read from the log again: %s", path, error)
                disk.remove(path)
                continue
            is_of_log = run.end_offset <= log_end_offset
            # Otherwise the log was truncated there, and has other records now.
            if is_of_log and run.end_epoch == self._epoch_at(run.end_offset - 1):
                found.append(run)
            else:
                self._remove(run)
        found.sort(key=lambda run: (run.first_offset, -run.end_offset))
        largest: list[KeyRun] = []
        for run in found:
            if largest and run.end_offset <= largest[-1].end_offset:
                self._remove(run)
            else:
                largest.append(run)
        return largest

    # Adding.

    def resize(self, memory_bytes: int) -> None:
        """Use at most this many bytes for the table from now on."""
        self.keys_max = max(1, memory_bytes // BYTES_PER_KEY)

    def add(self, entries: Iterable[KeyEntry], next_offset: int) -> None:
        """Include the records from `end_offset` to before `next_offset`."""
        self._table.update(entries)
        self.end_offset = next_offset

    @property
    def is_full(self) -> bool:
        """Whether the table should be written now."""
        is_large = len(self._table) >= self.keys_max or self.end_offset - self._table_start >= RECORDS_MAX
        return is_large and not self._is_written

    @property
    def keys_in_memory(self) -> int:
        return len(self._table) + (0 if self._writing is None else len(self._writing.table))

    def begin_writing(self, log_start_offset: int) -> WritingJob | None:
        """A job that writes the table; None if one is under way, or if there is nothing to write.

        The caller then calls `finish_writing`, or `fail_writing`.
        """
        if self._is_written:
            return None
        if self._writing is None:
            if self.end_offset == self._table_start:
                return None
            self._writing = self._new_job(log_start_offset)
            self._table, self._table_start = {}, self.end_offset
        self._is_written = True
        return self._writing

    def _new_job(self, log_start_offset: int) -> WritingJob:
        self._jobs += 1
        while self._runs and self._runs[0].end_offset <= log_start_offset:
            self._remove(self._runs.pop(0))
        return WritingJob(
            self._files.disk,
            self._table,
            self._table_start,
            self.end_offset,
            self._epoch_at(self.end_offset - 1),
            self._to_merge(),
            log_start_offset,
            os.path.join(self._directory, f"keys-{self._jobs}{TEMPORARY}"),
            self.truncations,
        )

    def _to_merge(self) -> tuple[KeyRun, ...]:
        """The files that are to become one: they grow by a factor, so that there are few of them and each key
        is rewritten seldom."""
        first, count = len(self._runs), 0
        while first > 0 and (count == 0 or self._runs[first - 1].count <= _GROWTH * count):
            first -= 1
            count += self._runs[first].count
        return tuple(self._runs[first:]) if len(self._runs) - first > 1 else ()

    def finish_writing(self, job: WritingJob, result: tuple[KeyRun, KeyRun | None]) -> None:
        """Use the files that a job has written, unless the log was truncated since."""
        if job.truncations != self.truncations:
            self._remove(*(run for run in result if run is not None))
            return
        new, merged_run = result
        if merged_run is not None:
            self._runs[-len(job.to_merge) :] = [self._adopted(merged_run)]
            self._remove(*job.to_merge)
        self._runs.append(self._adopted(new))
        self._writing, self._is_written = None, False

    def _adopted(self, run: KeyRun) -> KeyRun:
        path = os.path.join(self._directory, run_name(run.first_offset, run.end_offset))
        self._files.disk.rename(run.path, path)
        return KeyRun(path, run.first_offset, run.end_offset, run.end_epoch, run.count)

    def fail_writing(self, job: WritingJob) -> None:
        """Note that a job has failed. Its table stays in memory, and `begin_writing` returns it again."""
        if job.truncations == self.truncations:
            self._is_written = False

    # Asking.

    def last_offset(self, digest: bytes) -> int:
        """The offset of the last record with a key, below `end_offset`; `NO_VERSION` if it has none. Raises
        OSError and `DamagedRun`."""
        offset = self._in_memory(digest)
        if offset is not None:
            return offset
        for run in reversed(self._runs):
            offset = find(run, self._files.get(run.path), digest)
            if offset != NO_VERSION:
                return offset
        return NO_VERSION

    def _in_memory(self, digest: bytes) -> int | None:
        offset = self._table.get(digest)
        if offset is None and self._writing is not None:
            offset = self._writing.table.get(digest)
        return offset

    def cold_search(self, digests: Iterable[bytes]) -> Callable[[], None] | None:
        """Reads for a worker, after which `last_offset` of these digests probably does not wait for the
        device; None if it does not wait now."""
        waiting = [digest for digest in digests if self._in_memory(digest) is None]
        searches = []
        for run in self._runs if waiting else ():
            file = self._files.get(run.path)
            for digest in waiting:
                position, length = first_guess(run, digest)
                if run.count and not file.is_cached(length, position):
                    searches.append((run, file, digest))
        if not searches:
            return None

        def search() -> None:
            for run, file, digest in searches:
                find(run, file, digest)

        return search

    # Forgetting.

    def truncate_to(self, offset: int, log_start_offset: int) -> None:
        """Forget the records from `offset` on, where the log now ends. Earlier ones that were forgotten as
        well are to be added again, from `end_offset` on."""
        if offset >= self.end_offset and offset > log_start_offset:
            return
        kept = [run for run in self._runs if run.end_offset <= offset]
        if kept and (kept[-1].end_offset < log_start_offset or offset == log_start_offset):
            kept = []
        self._forget_after(kept, log_start_offset)

    def reset(self, log_start_offset: int) -> None:
        """Forget everything: all records are to be added again."""
        self._forget_after([], log_start_offset)

    def _forget_after(self, kept: Sequence[KeyRun], log_start_offset: int) -> None:
        self.truncations += 1
        self._remove(*self._runs[len(kept) :])
        self._runs = list(kept)
        self._writing, self._is_written = None, False
        self._table = {}
        self._table_start = self.end_offset = kept[-1].end_offset if kept else log_start_offset

    def _remove(self, *runs: KeyRun) -> None:
        for run in runs:
            self._files.forget(run.path)
            self._files.disk.remove(run.path)

    # Files.

    def use_files(self, files: OpenFiles) -> None:
        """Open files through `files` from now on."""
        self.release()
        self._files = files

    def release(self) -> None:
        """Close the files. Searches that are in progress continue."""
        for run in self._runs:
            self._files.forget(run.path)

    def move(self, directory: str) -> None:
        """Use the new name of the directory, after it was renamed."""
        self.release()
        self._directory = directory
        self._runs = [
            KeyRun(
                os.path.join(directory, os.path.basename(run.path)),
                run.first_offset,
                run.end_offset,
                run.end_epoch,
                run.count,
            )
            for run in self._runs
        ]
