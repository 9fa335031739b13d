"""One log directory: the logs in it, and the checkpoints that cover all of them."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeAlias, TypeVar, cast

from holdfast_log.broker.log import checkpoints, names, run_marks
from holdfast_log.broker.log.checkpoints import (
    LaterVersion,
    MetaProperties,
    OffsetEntry,
    OffsetsEncoder,
    topic_tag,
)
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STEP_ROWS = 300
"""So many rows of a checkpoint are collected in one step: in a quarter of a millisecond."""

MadeLater: TypeAlias = "Callable[[], bytes]"
"""Makes the content of a file, in a worker."""


class IdentityError(Exception):
    """A log directory belongs to another broker or cluster, or its owner cannot be determined."""


def _of_later_version(path: str, error: LaterVersion) -> IdentityError:
    return IdentityError(
        f"{path} {error}: a later version has used this directory. Start that one, or name another directory "
        "in log.dirs"
    )


class LogDirectory:
    """A directory of `log.dirs`. `failure` is the error that took it offline. `boot` identifies this boot of
    the machine, None where the system has no such id."""

    def __init__(self, disk: Disk, path: str, boot: str | None = None) -> None:
        self.disk = disk
        self.path = path
        self._boot = boot
        self.failure: OSError | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.spares: dict[TopicPartition, Log] = {}
        """Logs of partitions for which another directory's log is used."""
        self.interrupted_moves: list[TopicPartition] = []
        """Partitions whose logs the last process was moving here."""
        self.high_watermarks: dict[TopicPartition, OffsetEntry] = {}
        """The last known high watermarks: of the last run, until a later one is known."""
        self.recovery_points: dict[TopicPartition, OffsetEntry] = {}
        """Checkpointed offsets of the last run, like the following ones."""
        self.log_start_offsets: dict[TopicPartition, OffsetEntry] = {}
        self.cleaned_offsets: dict[TopicPartition, OffsetEntry] = {}
        self.departed: dict[TopicPartition, OffsetEntry] = {}
        """The recovery points of logs that have gone, though the checkpoint on the disk may still have
        them."""
        self._recovery_point_lines = OffsetsEncoder()
        self._start_offset_lines = OffsetsEncoder()
        self._high_watermark_lines = OffsetsEncoder()
        self._cleaned_offset_lines = OffsetsEncoder()
        self._has_cleaned_offsets = False
        """Whether the checkpoint of compacted offsets may have entries."""
        self.is_clean = False
        """Whether the last stop was clean: all logs closed and all checkpoints written."""
        self.has_all_writes = False
        """Whether the marks say that the directory has all that the last process wrote."""
        self.last_write_ms = -1
        """When the last process wrote to a log here for the last time, in ms since the epoch; -1 if it was
        not killed, or no log has a file."""
        self.lineage: tuple[int, ...] = ()
        """The start epochs of the last processes, latest first, whose writes are all in this directory; empty
        if records may be lost (see `broker.log.run_marks`)."""

    def open(self) -> list[TopicPartition]:
        """Read the files of the directory. Returns the partitions that it holds. Raises OSError."""
        disk = self.disk
        self._make()
        self.is_clean = disk.exists(self.path_of(names.CLEAN_SHUTDOWN))
        self.lineage = self._last_lineage()
        self.has_all_writes = bool(self.lineage)
        self.recovery_points = self._read(names.RECOVERY_POINTS, checkpoints.decode_offsets) or {}
        self.log_start_offsets = self._read(names.LOG_START_OFFSETS, checkpoints.decode_offsets) or {}
        self.high_watermarks = self._read(names.HIGH_WATERMARKS, checkpoints.decode_offsets) or {}
        self.cleaned_offsets = self._read(names.CLEANED_OFFSETS, checkpoints.decode_offsets) or {}
        self._has_cleaned_offsets = bool(self.cleaned_offsets)
        found = []
        for name in disk.list(self.path):
            path = self.path_of(name)
            if names.is_deleted_directory(name):
                disk.remove_directory(path)
            elif (moving := names.parse_future_directory(name)) is not None:
                disk.remove_directory(path)
                self.interrupted_moves.append(moving)
            elif names.parse_process_directory(name) is None and disk.is_directory(path):
                partition = names.parse_directory(name)
                if partition is None:
                    logger.warning("Ignoring %s: its name is not that of a partition directory", path)
                else:
                    found.append(partition)
        if self.has_all_writes and not self.is_clean:
            self.last_write_ms = max(map(self._last_write_ms, found), default=-1)
        return found

    def _last_write_ms(self, partition: TopicPartition) -> int:
        path = self.path_of(str(partition))
        files = [name for name in self.disk.list(path) if name.endswith(names.LOG)]
        return self.disk.modified_ms(os.path.join(path, files[-1])) if files else -1

    def _make(self) -> None:
        """Create the directory if it is missing, and make its name durable: otherwise a power failure could
        remove it with all its logs."""
        missing, path = [], self.path
        while not self.disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path) or "."
        self.disk.make_directory(self.path)
        for path in reversed(missing):
            self.disk.fsync_directory(os.path.dirname(path) or ".")

    def _last_lineage(self) -> tuple[int, ...]:
        """The start epochs of the last process, if this directory holds all its writes, and of those before
        it."""
        try:
            run = self.disk.read(self.path_of(names.RUN))
        except FileNotFoundError:
            run = b""
        if self.is_clean:
            last = run_marks.decode_clean_mark(self.disk.read(self.path_of(names.CLEAN_SHUTDOWN)))
        else:
            last = run_marks.decode_run_mark(run, self._boot)
        if last == run_marks.NO_EPOCH:
            return ()
        lineage = run_marks.decode_lineage(run)
        return lineage if last in lineage[:1] else (last,)

    def identity(self) -> MetaProperties | None:
        """The owner in meta.properties; None in a new directory. Raises `IdentityError` if unreadable."""
        path = self.path_of(names.META_PROPERTIES)
        try:
            return checkpoints.decode_meta_properties(self.disk.read(path))
        except FileNotFoundError:
            return None
        except LaterVersion as error:
            raise _of_later_version(path, error) from None
        except (ValueError, KeyError) as error:
            # Never overwrite the file: the directory may belong to another cluster, or to other software.
            raise IdentityError(
                f"{path} cannot be read ({error}): repair it, or remove it if the directory is this broker's"
            ) from None

    def write_identity(self, meta: MetaProperties) -> None:
        self.disk.write_atomically(
            self.path_of(names.META_PROPERTIES), checkpoints.encode_meta_properties(meta)
        )

    def directory_id(self) -> str | None:
        """The directory's own id; None where it has none yet. Raises `IdentityError` if it is unreadable."""
        path = self.path_of(names.DIRECTORY_ID)
        try:
            return checkpoints.decode_directory_id(self.disk.read(path))
        except FileNotFoundError:
            return None
        except LaterVersion as error:
            raise _of_later_version(path, error) from None
        except ValueError as error:
            raise IdentityError(f"{path} cannot be read ({error}): remove it") from None

    def write_directory_id(self, directory_id: str) -> None:
        """Give the directory an id. Raises OSError."""
        data = checkpoints.encode_directory_id(directory_id)
        self.disk.write_atomically(self.path_of(names.DIRECTORY_ID), data)

    def is_unused(self) -> bool:
        """Whether no broker has used the directory: it names no owner, and holds no log."""
        return not self.logs and not self.spares and not self.disk.exists(self.path_of(names.META_PROPERTIES))

    def _read(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(self.disk.read(self.path_of(name)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            logger.warning("Ignoring %s: %s", self.path_of(name), error)
            return None

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def begin_running(self) -> None:
        """Mark the directory as in use: a stop before `mark_clean` is unclean. Raises OSError."""
        self.disk.remove(self.path_of(names.CLEAN_SHUTDOWN))
        self.disk.fsync_directory(self.path)

    def mark_run(self, start_epoch: int, earlier: Sequence[int] = ()) -> None:
        """Mark the directory as written by the process with this start epoch, before it writes to any log.
        `earlier` are the start epochs of processes whose writes are all there. Raises OSError."""
        self.lineage = start_epoch, *earlier[: run_marks.LINEAGE_MAX - 1]
        if self._boot is not None:
            self.disk.write_atomically(
                self.path_of(names.RUN), run_marks.encode_run_mark(start_epoch, self._boot, self.lineage[1:])
            )

    def unmark_run(self) -> None:
        """Remove the run mark because this directory has failed: the next start then assumes that records may
        be lost. Raises OSError."""
        self.disk.remove(self.path_of(names.RUN))

    def unmark(self) -> None:
        """Remove both marks, durably, because a log lacks records: until `mark_run`, each start assumes that
        records may be lost. Raises OSError."""
        for name in (names.RUN, names.CLEAN_SHUTDOWN):
            self.disk.remove(self.path_of(name))
        self.disk.fsync_directory(self.path)

    def mark_clean(self) -> None:
        """Mark the stop as clean, once all logs are closed and checkpoints written. Raises OSError."""
        self.disk.write_atomically(
            self.path_of(names.CLEAN_SHUTDOWN),
            run_marks.encode_clean_mark(next(iter(self.lineage), run_marks.NO_EPOCH)),
        )

    def entries(self, partition: TopicPartition) -> dict[str, OffsetEntry]:
        """The partition's entries in the checkpoints of the last run, by the names of the offsets."""
        found = {
            "recovery_point": self.recovery_points.get(partition),
            "high_watermark": self.high_watermarks.get(partition),
            "log_start_offset": self.log_start_offsets.get(partition),
            "cleaned_offset": self.cleaned_offsets.get(partition),
        }
        return {name: entry for name, entry in found.items() if entry is not None}

    def forget_entries(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        """Forget the partition's entries in the checkpoints of the last run. Returns whether the checkpoint
        on the disk may have a recovery point of this topic, of that run or of a log that has gone since."""
        known = (self.recovery_points.get(partition), self.departed.get(partition))
        has_any = any(entry is not None and entry.may_be_of(topic_id) for entry in known)
        for entries in (
            self.recovery_points, self.high_watermarks, self.log_start_offsets, self.cleaned_offsets,
        ):  # fmt: skip
            entries.pop(partition, None)
        return has_any

    def note_departure(self, log: Log) -> None:
        """Remember that a log has gone, until a checkpoint without it has been written."""
        if not log.is_new:
            self.departed[log.topic_partition] = _entry(log, log.recovery_point)

    def forget_departures(self, departed: Mapping[TopicPartition, OffsetEntry]) -> None:
        """Forget logs that had gone before the checkpoint was encoded that is on the disk now."""
        for partition in departed:
            self.departed.pop(partition, None)

    def lowered_checkpoints(self) -> dict[str, bytes]:
        """Path → content of the checkpoints of the last run that have a later recovery point than a log as it
        was loaded, or a later offset up to which it is compacted: recovery has cut the log before them. They
        must be written before any log grows. The next recovery would not check what lies before the old ones.

        The other entries stay, also those of missing logs: they say that this broker had such a log."""
        logs = {**self.logs, **self.spares}
        files = {}
        for name, entries, offsets in (
            (names.RECOVERY_POINTS, self.recovery_points, {key: logs[key].recovery_point for key in logs}),
            (names.CLEANED_OFFSETS, self.cleaned_offsets, {key: logs[key].cleaned_offset for key in logs}),
        ):
            lowered = {
                partition: _entry(logs[partition], offset)
                for partition, offset in offsets.items()
                if partition in entries
                and entries[partition].offset > offset
                and entries[partition].may_be_of(logs[partition].topic_id)
            }
            if lowered:
                entries.update(lowered)
                files[self.path_of(name)] = checkpoints.encode_offsets(entries)
        return files

    def moved_starts(self) -> dict[Log, int]:
        """The log starts that `offset_checkpoints` has now and that are not known to be durable."""
        return {
            log: log.log_start_offset
            for logs in (self.logs, self.spares)
            for log in logs.values()
            if log.durable_start_offset < log.log_start_offset
        }

    def offset_checkpoints(self) -> dict[str, MadeLater]:
        """Path → content of the checkpoints of the present recovery points, log start offsets, and offsets up
        to which logs are compacted. A worker makes the contents, since there may be thousands of logs."""
        logs = list({**self.logs, **self.spares}.items())
        # A power failure may remove a new log with its directory. Without an entry here, the next start does
        # not report such a log as lost.
        recovery_points = [
            (partition, log.recovery_point, log.topic_id) for partition, log in logs if not log.is_new
        ]
        # Also where the log begins with its first segment, which is named after that offset: a power failure
        # may undo the removal of earlier segments.
        start_offsets = [
            (partition, log.log_start_offset, log.topic_id)
            for partition, log in logs
            if log.log_start_offset > 0
        ]
        cleaned_offsets = [
            (partition, log.cleaned_offset, log.topic_id) for partition, log in logs if log.cleaned_offset > 0
        ]
        files: dict[str, MadeLater] = {
            self.path_of(names.RECOVERY_POINTS): partial(
                _encode, self._recovery_point_lines, recovery_points
            ),
            self.path_of(names.LOG_START_OFFSETS): partial(_encode, self._start_offset_lines, start_offsets),
        }
        if cleaned_offsets or self._has_cleaned_offsets:
            self._has_cleaned_offsets = True
            files[self.path_of(names.CLEANED_OFFSETS)] = partial(
                _encode, self._cleaned_offset_lines, cleaned_offsets
            )
        return files

    def know_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        """Remember the high watermark of a log here: from now on each checkpoint has it, or a later one."""
        self.high_watermarks[partition] = _entry(self.logs[partition], offset)

    def high_watermark_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> dict[str, MadeLater]:
        """What `high_watermark_steps` returns, of these offsets in one step."""
        return finished_steps(self.high_watermark_steps([offsets]))

    def high_watermark_steps(
        self, parts: Iterable[Mapping[TopicPartition, int]]
    ) -> Generator[None, None, dict[str, MadeLater]]:
        """Path → content of the high watermark checkpoint of the logs here, with a pause after each of
        `parts`, and after a few hundred rows. The parts have the present offsets, each at the time at which
        it is taken. A worker makes the content, as those of `offset_checkpoints`.

        A log without a present one keeps its last: this broker may have no role for it yet, or none any more,
        because it is about to stop. Without the entry, the next process would not know what is committed, and
        as a leader without followers it would serve nothing."""
        for offsets in parts:
            self._know_high_watermarks(offsets)
            yield
        here = {**self.spares, **self.logs}
        known = list(self.high_watermarks.items())
        rows: list[tuple[TopicPartition, OffsetEntry, uuid.UUID | None]] = []
        for start in range(0, len(known), _STEP_ROWS):
            rows += [
                (partition, entry, here[partition].topic_id)
                for partition, entry in known[start : start + _STEP_ROWS]
                if partition in here
            ]
            yield
        return {self.path_of(names.HIGH_WATERMARKS): partial(_encode_known, self._high_watermark_lines, rows)}

    def _know_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        logs, known = self.logs, self.high_watermarks
        for partition, offset in offsets.items():
            log = logs.get(partition)
            # Most have not changed: to compare takes less than to make an entry.
            if log is not None and (
                (entry := known.get(partition)) is None
                or entry.offset != offset
                or entry.tag != topic_tag(log.topic_id)
            ):
                self.know_high_watermark(partition, offset)


def finished_steps(steps: Generator[None, None, T]) -> T:
    """What the steps return, all of which are done now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


def _encode(encoder: OffsetsEncoder, rows: list[tuple[TopicPartition, int, uuid.UUID | None]]) -> bytes:
    """The content of a checkpoint with these offsets of logs, whose topics have these ids."""
    rows.sort(key=itemgetter(0))
    return encoder.encode(
        {partition: OffsetEntry(offset, topic_tag(topic_id)) for partition, offset, topic_id in rows}
    )


def _encode_known(
    encoder: OffsetsEncoder, rows: list[tuple[TopicPartition, OffsetEntry, uuid.UUID | None]]
) -> bytes:
    """The content of a checkpoint with the entries that are about the topics with these ids."""
    rows.sort(key=itemgetter(0))
    return encoder.encode(
        {partition: entry for partition, entry, topic_id in rows if entry.may_be_of(topic_id)}
    )


def _entry(log: Log, offset: int) -> OffsetEntry:
    return OffsetEntry(offset, topic_tag(log.topic_id))


def write_files(disk: Disk, files: Mapping[str, bytes | MadeLater]) -> None:
    """Make contents and replace files, each atomically. Raises OSError."""
    for path, content in files.items():
        disk.write_atomically(path, content() if callable(content) else content)
