"""Moves replicas between the log directories of this broker while they are in use (KIP-113).

One log moves at a time. Workers copy its closed segments into a directory `<topic>-<partition>.<id>-future`
of the target, no faster than `copy_pace` allows; the log is rolled for that, so that what has been appended
is in closed segments too. When little is left, the log refuses appends for a moment (producers and followers
try again): the rest is copied, the copy is opened as a log, and takes the place of the old one, whose files
are removed.

After a crash the replica is whole, in one directory or in the other: `broker.log.log_copy` says how a start
tells. If it is still in the old one, the move begins again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.log import names
from holdfast_log.broker.log.checkpoints import OffsetEntry, topic_tag
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.flush_job import begin_flush, finish_flush
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_copy import FileCopy, SourceUnreadable, begin_copy, finish_copy
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.pressure import is_pressure
from holdfast_log.broker.log.recovery import load_log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.truncation import begin_settling, settled
from holdfast_log.broker.replication.copy_pace import CopyPace
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_LAST_BYTES = 4 << 20
"""How much may be left to copy when the log begins to refuse appends."""
_ROUNDS_MAX = 20
"""After so many rounds without a pause the log refuses appends, however much is left: its producers outrun
the copy. While the pace holds the copy back there is no end: what is left could take minutes."""
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_RETRY_S = 5.0
"""Time in seconds until a move that has failed is tried again."""


class MoveEnded(Exception):
    """A move cannot go on: it was cancelled, or the log or its directory has gone."""


class LogChanged(Exception):
    """The log has changed in a way that its copy does not have: the move begins again."""


@dataclass(eq=False, slots=True)
class LogMove:
    """A replica on its way to another directory. `copied` are the segments that its copy has."""

    partition: TopicPartition
    target: LogDirectory
    log: Log
    path: str
    copied: dict[Segment, tuple[str, ...]] = field(default_factory=dict)
    copied_bytes: int = 0
    truncations: int = 0
    """Those of the log before the first segment was copied."""
    made: str | None = None
    """The path of the complete copy, which has the name of a log, until it is used."""
    announced: Log | None = None
    """The open copy, while the target's checkpoints name it and it is not used yet."""
    is_cancelled: bool = False

    @property
    def offset_lag(self) -> int:
        """How many offsets the copy is behind the log."""
        return self.log.log_end_offset - max((each.next_offset for each in self.copied), default=0)


class LogMoves:
    """Moves logs one after the other. `new_id` makes the unique part of a copy's name."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        workers: Workers,
        clock: Clock,
        date_ms: TimeOfDay,
        new_id: Callable[[], uuid.UUID],
        pace: CopyPace,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._workers = workers
        self._clock = clock
        self._date_ms = date_ms
        self._new_id = new_id
        self._pace = pace
        self._moves: dict[TopicPartition, LogMove] = {}
        self._current: LogMove | None = None
        self._is_stopped = False

    def __iter__(self) -> Iterator[LogMove]:
        """The moves that have not ended, in the order in which they were asked for."""
        return iter(list(self._moves.values()))

    def begin(self, partition: TopicPartition, target: LogDirectory) -> None:
        """Move a partition's log to another directory. No effect if it is on its way there already."""
        log = self._logs.find(partition)
        known = self._moves.get(partition)
        if log is None or (known is not None and known.target is target):
            return
        self.cancel(partition)
        path = target.path_of(names.future_directory(partition, self._new_id()))
        self._moves[partition] = LogMove(partition, target, log, path)
        self._proceed()

    def cancel(self, partition: TopicPartition) -> None:
        """Leave a partition's log where it is, also if the last process was moving it."""
        self._logs.arrivals.interrupted_moves.pop(partition, None)
        move = self._moves.pop(partition, None)
        if move is not None:
            move.is_cancelled = True

    def role_changed(self, partition: Partition) -> None:
        """Continue a move that the end of the last process interrupted."""
        target = self._logs.arrivals.interrupted_moves.pop(partition.key, None)
        if target is not None and target.failure is None and partition.key not in target.logs:
            self.begin(partition.key, target)

    def stop(self) -> None:
        """Begin no move, and end the one that is under way. Call it before the logs are closed: a copy that
        is not used is none of them."""
        self._is_stopped = True
        if self._current is not None:
            _withdraw(self._current)

    # -- one after the other -------------------------------------------------------------------------------

    def _proceed(self) -> None:
        if self._current is not None or self._is_stopped:
            return
        move = self._current = next(iter(self._moves.values()), None)
        if move is None:
            return
        done = ensureDeferred(self._move(move))
        done.addErrback(lambda failure: self._failed(move, failure))
        done.addCallback(lambda _: self._ended())

    def _ended(self) -> None:
        self._current = None
        self._proceed()

    def _failed(self, move: LogMove, failure: Failure) -> Deferred[None]:
        """Remove what has been copied, and try again later unless the move has ended."""
        error = failure.value
        paths = [path for path in (move.path, move.made) if path]
        move.made = None
        cleaned = self._workers.run(_remove_all, self._logs.disk, paths)
        if self._is_under_way(move) and isinstance(error, OSError):
            self._disk_failed(move, error)
        if not self._is_under_way(move):
            if self._moves.get(move.partition) is move:
                del self._moves[move.partition]
            return cleaned
        if not isinstance(error, OSError | BrokerError | LogChanged):
            _log.error("%s could not be moved", move.partition, exc_info=raised(failure))
        _log.warning(
            "%s does not move to %s yet; next attempt in %g s: %s",
            move.partition, move.target.path, _RETRY_S, error,
        )  # fmt: skip
        move.copied.clear()
        move.copied_bytes = 0
        waited = pause(self._clock, _RETRY_S)
        return cleaned.addCallback(lambda _: waited)

    def _disk_failed(self, move: LogMove, error: OSError) -> None:
        """Take the directory offline that has failed. One that is full has not."""
        if is_pressure(error) or error.errno in _NO_ROOM:
            return
        if not isinstance(error, SourceUnreadable):
            self._logs.fail_directory(move.target, error)
        elif error.errno != errno.ENOENT:
            move.log.failed(error)

    # -- one log -------------------------------------------------------------------------------------------

    async def _move(self, move: LogMove) -> None:
        await self._work(move, begin_copy, self._logs.disk, move.path)
        move.truncations = move.log.truncations
        rounds = 0
        while rounds < _ROUNDS_MAX:
            has_paused = await self._copy_closed(move, at_once=False)
            if _bytes_left(move) <= _LAST_BYTES:
                break
            rounds = 0 if has_paused else rounds + 1
        begin_settling(move.log)
        try:
            await self._finish(move)
        finally:
            settled(move.log)

    async def _work(self, move: LogMove, function: Callable[..., Any], *args: Any) -> Any:
        """Have a worker do something. Raises MoveEnded if the move may not go on after it."""
        result = await self._workers.run(function, *args)
        self._check(move)
        return result

    def _check(self, move: LogMove) -> None:
        if not self._is_under_way(move):
            raise MoveEnded

    def _is_under_way(self, move: LogMove) -> bool:
        is_current = self._logs.find(move.partition) is move.log and move.log.failure is None
        return is_current and not (self._is_stopped or move.is_cancelled or move.target.failure is not None)

    async def _pause(self, move: LogMove) -> bool:
        """Wait until the pace allows to copy another part. Returns whether it had to wait. Raises MoveEnded
        if the move may not go on after it."""
        has_paused = False
        while pause_s := self._pace.pause_s():
            has_paused = True
            await pause(self._clock, pause_s)
            self._check(move)
        return has_paused

    async def _copy_closed(self, move: LogMove, *, at_once: bool) -> bool:
        """Copy all that the log has now, as closed segments, without a pause if `at_once`. Returns whether
        the pace made it wait."""
        log, disk, has_paused = move.log, self._logs.disk, False
        log.roll(self._date_ms())
        for segment in list(log.segments)[:-1]:
            if segment in move.copied or segment not in log.segments:
                continue
            if segment.damage is not None:
                raise LogChanged(f"{segment.path} is damaged")
            found = [path for path in segment.paths() if disk.exists(path)]
            try:
                for path in found:
                    job = FileCopy(disk, path, os.path.join(move.path, os.path.basename(path)))
                    while not job.is_done:
                        has_paused |= not at_once and await self._pause(move)
                        before = job.size
                        await self._work(move, job.advance, self._pace.part_bytes)
                        move.copied_bytes += job.size - before
                        self._pace.copied(job.size - before)
            except SourceUnreadable as error:
                if error.errno != errno.ENOENT or segment in log.segments:
                    raise
                continue  # Retention or compaction has removed it.
            if log.truncations != move.truncations:
                raise LogChanged("it was truncated")
            if segment in log.segments:
                move.copied[segment] = tuple(map(os.path.basename, found))
        return has_paused

    async def _finish(self, move: LogMove) -> None:
        """Copy the rest of a log that takes no appends, and use the copy in its place."""
        log, logs, target = move.log, self._logs, move.target
        await self._copy_closed(move, at_once=True)
        await self._flush(log)
        self._check(move)
        if log.truncations != move.truncations:
            raise LogChanged("it was truncated")
        state = _state_of(log)
        copied = [name for segment in list(log.segments)[:-1] for name in move.copied.get(segment, ())]
        move.made = target.path_of(str(move.partition))
        await self._work(move, finish_copy, logs.disk, log.directory, move.path, frozenset(copied))
        request = replace(logs.request_of_copy(log, target), high_watermark=self._high_watermark(log))
        copy: Log = await self._work(move, load_log, logs.disk, request)
        # No file has an epoch that has begun and has no records yet.
        copy.epochs.begin(log.epochs.latest, log.log_end_offset)
        is_whole = copy.log_end_offset == log.log_end_offset and copy.epochs.entries == log.epochs.entries
        if _state_of(log) != state or not is_whole or copy.is_cut_short:
            raise LogChanged("it has changed while the last of it was copied")
        await self._announce(move, copy)
        if _state_of(log) != state:
            _withdraw(move)
            raise LogChanged("it has changed while a checkpoint was written")
        await self._replace(move, copy)

    async def _flush(self, log: Log) -> None:
        """Have a worker write what only the memory has, such as leader epochs. Afterwards no flush is under
        way: it would write to the old directory."""
        await self._logs.flusher.durable(log, log.log_end_offset)
        if self._logs.flusher.is_busy(log):
            raise LogChanged("its last flush has not ended")
        job = begin_flush(log, log.last_flush_ms)
        try:
            await self._workers.run(job.run)
            finish_flush(log, job)
        except OSError as error:
            raise log.failed(error) from error

    async def _announce(self, move: LogMove, copy: Log) -> None:
        """Have the checkpoints of the target say all of the copy: after a crash it may be the log."""
        target = move.target
        entry = OffsetEntry(self._high_watermark(move.log), topic_tag(copy.topic_id))
        target.spares[move.partition] = move.announced = copy
        target.high_watermarks[move.partition] = entry
        try:
            await self._logs.checkpoints.write_offsets_of(target)
            await self._logs.checkpoints.write_high_watermarks({})
            self._check(move)
        except MoveEnded:
            _withdraw(move)
            raise

    async def _replace(self, move: LogMove, copy: Log) -> None:
        """The step after which the old log is no more."""
        logs = self._logs
        (source,) = (each for each in logs.directories if each.logs.get(move.partition) is move.log)
        begin_settling(copy)
        # From here on the copy is never removed: if the old log's disk fails now, it is all that there is.
        move.made, move.path, move.announced = None, "", None
        self.cancel(move.partition)
        logs.replace(move.log, copy, move.target)
        partition = self._replicas.find(*move.partition)
        if partition is not None and partition.log is move.log:
            partition.replace_log(copy)
            self._replicas.wake_all(partition)
        _log.info("%s has moved to %s", move.partition, move.target.path)
        try:
            # Until then a power failure may bring the old log back, which would lack what is appended now.
            await self._workers.run(logs.disk.fsync_directory, source.path).addErrback(
                lambda failure: _fail_directory(logs, source, failure)
            )
            await self._workers.run(logs.disk.remove, os.path.join(copy.directory, names.MOVE_UNFINISHED))
            copy.is_move_unfinished = False
        except OSError as error:
            copy.failed(error)
        finally:
            settled(copy)

    def _high_watermark(self, log: Log) -> int:
        partition = self._replicas.find(*log.topic_partition)
        if partition is not None and partition.log is log:
            return min(partition.high_watermark, log.log_end_offset)
        return self._logs.high_watermark(log.topic_partition)


def _withdraw(move: LogMove) -> None:
    """Have the target's checkpoints name a copy no more that is not used: its files are about to go."""
    copy, move.announced = move.announced, None
    if copy is not None and move.target.spares.get(move.partition) is copy:
        del move.target.spares[move.partition]
        move.target.note_departure(copy)


def _fail_directory(logs: LogManager, directory: LogDirectory, failure: Failure) -> None:
    """Errback: an OSError takes the directory offline."""
    failure.trap(OSError)
    assert isinstance(failure.value, OSError)
    logs.fail_directory(directory, failure.value)


def _remove_all(disk: Disk, paths: Sequence[str]) -> None:
    """Remove directories. The next start removes what cannot be removed now."""
    for path in paths:
        with contextlib.suppress(OSError):
            disk.remove_directory(path)


def _bytes_left(move: LogMove) -> int:
    """How much of the log is not in the copy: appended, or written by compaction, since it was copied."""
    return sum(segment.size for segment in move.log.segments if segment not in move.copied)


def _state_of(log: Log) -> tuple[object, ...]:
    """What changes if the files of a log that takes no appends change."""
    segments = tuple((id(segment), segment.size) for segment in log.segments)
    return log.log_start_offset, log.log_end_offset, log.truncations, segments, tuple(log.epochs.entries)
