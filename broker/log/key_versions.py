"""Index of a log's keys: the offset of the last record with each key, which is the key's version.

The newest keys are in a table in memory, the others in sorted files (`broker.log.key_runs`). When the table
is full, a worker writes it into a file. Another job merges older files; the newest file is never merged,
because a truncation removes every file that covers a removed record. The index holds nothing that the log
does not hold: what is missing after a crash, a truncation or damage is read from the log again.

The index covers the log from its start to `end_offset`. Where the log has grown further, the index has to
catch up before it can be asked. It also falls behind, instead of using more memory, when a second table is
full before the first has been written.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.broker.log.key_memory import BYTES_PER_KEY as BYTES_PER_KEY
from holdfast_log.broker.log.key_memory import KeyMemory, KeyShare
from holdfast_log.broker.log.key_runs import (
    DIGEST_BYTES,
    NO_VERSION,
    ColdBlock,
    DamagedRun,
    KeyEntry,
    KeyRun,
    entries_of,
    find,
    merged,
    run_name,
    write_run,
)
from holdfast_log.broker.log.names import DELETED, TEMPORARY
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.records import decode_columns
from holdfast_log.protocol.wire import Buffer

logger = logging.getLogger(__name__)

RECORDS_MAX = 1_000_000
"""Maximum number of records that the table covers, and so that a restart reads from the log again."""
_GROWTH = 2
"""Files are merged while an older file has at most this many times the keys of the newer ones together."""
_NOWHERE = -1
"""End of an index whose files have not been looked for."""

_temporary_numbers = itertools.count(1)
"""Numbers of temporary files. No two jobs of this process share a file: a job may run late, when its index is
switched off or its topic deleted, and the directory has another index."""


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
    """Writes a table into a file. `run` is for a worker; it uses nothing that another thread changes."""

    disk: Disk
    table: dict[bytes, int]
    first_offset: int
    end_offset: int
    end_epoch: int
    path: str
    """Path of the new file until it is adopted."""
    truncations: int

    def run(self) -> KeyRun:
        """Returns the new file. Raises OSError."""
        entries = sorted(self.table.items())
        return write_run(self.disk, self.path, entries, self.first_offset, self.end_offset, self.end_epoch)


@dataclass(frozen=True, slots=True)
class MergingJob:
    """Writes one file with the entries of several. `run` is for a worker; it uses nothing that another thread
    changes."""

    disk: Disk
    runs: tuple[KeyRun, ...]
    log_start_offset: int
    path: str
    """Path of the new file until it is adopted."""
    truncations: int

    def run(self) -> KeyRun:
        """Returns the new file. Raises OSError and `DamagedRun`."""
        with ExitStack() as stack:
            entries = []
            for run in self.runs:
                file = _opened(run, self.disk.open)
                stack.callback(file.close)
                entries.append(entries_of(run, file))
            newest = self.runs[-1]
            # The file lacks the keys of records before the log's start. After a crash the log may begin
            # earlier again: a file that says so is not used then.
            first_offset = max(self.runs[0].first_offset, self.log_start_offset)
            return write_run(
                self.disk, self.path, merged(entries, self.log_start_offset),
                first_offset, newest.end_offset, newest.end_epoch,
            )  # fmt: skip


def _opened(run: KeyRun, open_file: Callable[[str], DiskFile]) -> DiskFile:
    """The open file of a run. Raises `DamagedRun` if it is missing: the log is no worse for that."""
    try:
        return open_file(run.path)
    except FileNotFoundError:
        raise DamagedRun(f"{run.path} is missing") from None


class KeyVersions:
    """The index of one log. Belongs to the reactor's thread; the `run` methods of jobs are for workers.

    At most `memory_bytes` are used by the table, and as much by one that is being written; the keys of one
    append may come on top. `epoch_at` returns the leader epoch of the record at an offset. `discard` removes
    files, which nobody uses any more, without waiting for the device. Methods raise OSError from the disk.
    """

    def __init__(
        self,
        directory: str,
        files: OpenFiles,
        memory_bytes: int,
        epoch_at: Callable[[int], int],
        discard: Callable[[list[str]], None],
    ) -> None:
        self.end_offset = _NOWHERE
        """All records below this offset are included."""
        self._share: KeyShare | None = None
        self.resize(memory_bytes)
        self.truncations = 0
        """Number of truncations; what a worker read or wrote before one is not used after it."""
        self._directory = directory
        self._files = files
        self._epoch_at = epoch_at
        self._discard = discard
        self._table: dict[bytes, int] = {}
        self._table_start = _NOWHERE
        self._writing: WritingJob | None = None
        self._is_written = False
        """Whether a worker is carrying out the job; if not, the job has failed and can be repeated."""
        self._merging: MergingJob | None = None
        self._runs: list[KeyRun] = []

    # Loading.

    @property
    def is_loaded(self) -> bool:
        """Whether `load` was called, or everything was forgotten: until then no records can be added."""
        return self.end_offset != _NOWHERE

    def load(self, found: Iterable[KeyRun], log_start_offset: int, log_end_offset: int) -> None:
        """Use the files of the directory that belong to this log, and remove the others."""
        present = list(found)
        usable: list[KeyRun] = []
        for run in self._largest(present, log_start_offset, log_end_offset):
            expected = usable[-1].end_offset if usable else None
            if (run.first_offset <= log_start_offset) if expected is None else (run.first_offset == expected):
                usable.append(run)
        if usable and usable[-1].end_offset < log_start_offset:
            usable = []
        self._remove(*(run for run in present if run not in usable))
        self._runs = usable
        self.end_offset = self._table_start = usable[-1].end_offset if usable else log_start_offset

    def _largest(self, runs: Iterable[KeyRun], log_start_offset: int, log_end_offset: int) -> list[KeyRun]:
        """The files that match the log, in order, without those that a merged one includes."""
        # A file with another epoch is of another history: the log was truncated, and has other records now.
        matching = [
            run
            for run in runs
            if run.end_offset <= log_end_offset and run.end_epoch == self._epoch_at(run.end_offset - 1)
        ]
        matching.sort(key=lambda run: (max(run.first_offset, log_start_offset), -run.end_offset))
        largest: list[KeyRun] = []
        for run in matching:
            if not largest or run.end_offset > largest[-1].end_offset:
                largest.append(run)
        return largest

    # Adding.

    def resize(self, memory_bytes: int) -> None:
        """Use at most this many bytes for the table from now on."""
        self._own_keys_max = max(1, memory_bytes // BYTES_PER_KEY)

    def share(self, memory: KeyMemory) -> None:
        """Use from now on no more than this index's share of a broker's memory."""
        if self._share is None or self._share.memory is not memory:
            self._share = memory.join(self)
            self._share.grew(self.keys_in_memory)

    @property
    def keys_max(self) -> int:
        """Number of keys with which the table is full."""
        if self._share is None:
            return self._own_keys_max
        return min(self._own_keys_max, self._share.keys_max)

    def add(self, entries: Iterable[KeyEntry], next_offset: int) -> None:
        """Include the records from `end_offset` to before `next_offset`."""
        table = self._table
        count = len(table)
        table.update(entries)
        self._grew(len(table) - count)
        self.end_offset = next_offset

    def _grew(self, count: int) -> None:
        if self._share is not None:
            self._share.grew(count)

    @property
    def is_full(self) -> bool:
        """Whether a table should be written now."""
        is_large = len(self._table) >= self.keys_max or self.end_offset - self._table_start >= RECORDS_MAX
        return is_large and not self._is_written

    @property
    def has_room(self) -> bool:
        """Whether records may be added: not while a full table waits for another one to be written."""
        return self._writing is None or len(self._table) < self.keys_max

    @property
    def has_files(self) -> bool:
        """Whether a search may read files."""
        return bool(self._runs)

    @property
    def keys_in_memory(self) -> int:
        return len(self._table) + (0 if self._writing is None else len(self._writing.table))

    # Writing.

    def begin_writing(self) -> WritingJob | None:
        """A job that writes the table; None if one is under way, or if there is nothing to write.

        The caller then calls `finish_writing`, or `fail_writing`.
        """
        if self._is_written:
            return None
        if self._writing is None:
            if self.end_offset == self._table_start:
                return None
            self._writing = WritingJob(
                self._files.disk,
                self._table,
                self._table_start,
                self.end_offset,
                self._epoch_at(self.end_offset - 1),
                self._temporary_path(),
                self.truncations,
            )
            self._table, self._table_start = {}, self.end_offset
        self._is_written = True
        return self._writing

    def _temporary_path(self) -> str:
        return os.path.join(self._directory, f"keys-{next(_temporary_numbers)}{TEMPORARY}")

    def finish_writing(self, job: WritingJob, run: KeyRun) -> None:
        """Use the file that a job has written, unless the log was truncated since."""
        if job.truncations != self.truncations:
            self._discard([run.path])
            return
        self._runs.append(self._adopted(run))
        self._grew(-len(job.table))
        self._writing, self._is_written = None, False

    def _adopted(self, run: KeyRun) -> KeyRun:
        path = os.path.join(self._directory, run_name(run.first_offset, run.end_offset))
        self._files.disk.rename(run.path, path)
        return replace(run, path=path)

    def fail_writing(self, job: WritingJob) -> None:
        """Note that a job has failed. Its table stays in memory, and `begin_writing` returns it again."""
        if job.truncations == self.truncations:
            self._is_written = False

    # Merging.

    def begin_merging(self, log_start_offset: int) -> MergingJob | None:
        """A job that merges files; None if one is under way, or if there are few files.

        The caller then calls `finish_merging`, or `fail_merging`.
        """
        if self._merging is not None:
            return None
        while self._runs and self._runs[0].end_offset <= log_start_offset:
            self._remove(self._runs.pop(0))
        runs = self._to_merge()
        if runs:
            self._merging = MergingJob(
                self._files.disk, runs, log_start_offset, self._temporary_path(), self.truncations
            )
        return self._merging

    def _to_merge(self) -> tuple[KeyRun, ...]:
        """The files that are to become one: they grow by a factor, so that there are few of them and each key
        is rewritten seldom."""
        older = self._runs[:-1]
        first, count = len(older), 0
        while first > 0 and (count == 0 or older[first - 1].count <= _GROWTH * count):
            first -= 1
            count += older[first].count
        return tuple(older[first:]) if len(older) - first > 1 else ()

    def finish_merging(self, job: MergingJob, run: KeyRun) -> None:
        """Use the file that a job has written, unless the log was truncated since."""
        if job.truncations != self.truncations:
            self._discard([run.path])
            return
        first = self._runs.index(job.runs[0])
        self._runs[first : first + len(job.runs)] = [self._adopted(run)]
        self._remove(*job.runs)
        self._merging = None

    def fail_merging(self, job: MergingJob) -> None:
        """Note that a job has failed. Its files stay in use."""
        if job.truncations == self.truncations:
            self._merging = None

    # Asking.

    def last_offset(self, digest: bytes) -> int:
        """The offset of the last record with a key, below `end_offset`; `NO_VERSION` if it has none. Raises
        OSError and `DamagedRun`."""
        return self._search(digest, may_wait=True)

    def cold_search(self, digests: Iterable[bytes]) -> Callable[[], None] | None:
        """Reads for a worker, after which `last_offset` of these digests does not wait for the device; None
        if it does not wait now. Raises OSError and `DamagedRun`."""
        cold = [digest for digest in digests if self._is_cold(digest)]
        if not cold:
            return None
        newest_first = [(run, _opened(run, self._files.get)) for run in reversed(self._runs)]

        def search() -> None:
            for digest in cold:
                for run, file in newest_first:
                    if find(run, file, digest) != NO_VERSION:
                        break

        return search

    def _is_cold(self, digest: bytes) -> bool:
        try:
            self._search(digest, may_wait=False)
        except ColdBlock:
            return True
        return False

    def _search(self, digest: bytes, *, may_wait: bool) -> int:
        offset = self._table.get(digest)
        if offset is None and self._writing is not None:
            offset = self._writing.table.get(digest)
        if offset is not None:
            return offset
        for run in reversed(self._runs):
            offset = find(run, _opened(run, self._files.get), digest, may_wait=may_wait)
            if offset != NO_VERSION:
                return offset
        return NO_VERSION

    # Forgetting.

    def truncate_to(self, offset: int, log_start_offset: int) -> None:
        """Forget the records from `offset` on, where the log now ends. Earlier ones that were forgotten as
        well are to be added again, from `end_offset` on."""
        if not self.is_loaded or (offset >= self.end_offset and offset > log_start_offset):
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
        self._grew(-self.keys_in_memory)
        self._writing, self._is_written, self._merging = None, False, None
        self._table = {}
        self._table_start = self.end_offset = kept[-1].end_offset if kept else log_start_offset

    def _remove(self, *runs: KeyRun) -> None:
        """Remove files at once; their content later, which may take long."""
        disk, renamed = self._files.disk, []
        for run in runs:
            self._files.forget(run.path)
            if disk.exists(run.path):
                disk.rename(run.path, run.path + DELETED)
                renamed.append(run.path + DELETED)
        if renamed:
            self._discard(renamed)

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
            replace(run, path=os.path.join(directory, os.path.basename(run.path))) for run in self._runs
        ]
