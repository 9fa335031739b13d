"""Bugs of moves between log directories (KIP-113)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.log import log_copy, names
from holdfast_log.broker.log.arrivals import Arrivals
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.recovery import load_log
from holdfast_log.broker.replication import log_moves
from holdfast_log.broker.replication.log_moves import LogMove, LogMoves
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import MOVES

_COPY_CLOSED, _REPLACE, _DELETE = LogMoves._copy_closed, LogMoves._replace, LogManager.delete
_SEGMENT_FILES = (names.LOG, names.INDEX, names.TIME_INDEX)


async def _finish_blindly(self: LogMoves, move: LogMove, finish: Any) -> None:
    """The last step without any comparison of the copy with the log."""
    log, logs, target = move.log, self._logs, move.target
    copied = [name for segment in list(log.segments)[:-1] for name in move.copied.get(segment, ())]
    move.made = target.path_of(str(move.partition))
    await self._work(move, finish, logs.disk, log.directory, move.path, frozenset(copied))
    request = replace(logs.request_of_copy(log, target), recovery_point=0)
    copy: Log = await self._work(move, load_log, logs.disk, request)
    copy.epochs.begin(log.epochs.latest, log.log_end_offset)
    await self._announce(move, copy)
    await self._replace(move, copy)


def _use_what_is_copied() -> Sequence[Patch]:
    def finish(disk: Disk, source: str, copy: str, copied: frozenset[str]) -> str:
        rest = {name for name in disk.list(source) if name.endswith(_SEGMENT_FILES)}
        return log_copy.finish_copy(disk, source, copy, copied | rest)

    return [(LogMoves, "_finish", lambda self, move: _finish_blindly(self, move, finish))]


def _take_appends_meanwhile() -> Sequence[Patch]:
    async def mutant(self: LogMoves, move: LogMove) -> None:
        move.log.settling -= 1
        try:
            await _finish_blindly(self, move, log_copy.finish_copy)
        finally:
            move.log.settling += 1

    return [(LogMoves, "_finish", mutant)]


def _keep_what_was_truncated() -> Sequence[Patch]:
    async def copy_closed(self: LogMoves, move: LogMove, *, at_once: bool) -> bool:
        move.truncations = move.log.truncations
        return await _COPY_CLOSED(self, move, at_once=at_once)

    async def finish(self: LogMoves, move: LogMove) -> None:
        await _finish_blindly(self, move, _add_rest)

    return [(LogMoves, "_copy_closed", copy_closed), (LogMoves, "_finish", finish)]


def _add_rest(disk: Disk, source: str, copy: str, copied: frozenset[str]) -> str:
    """What the copy has already stays, also what the log has no more."""
    for name in disk.list(copy):
        if name.endswith(names.LOG) and not disk.exists(os.path.join(source, name)):
            disk.open(os.path.join(source, name), create=True).close()
    return log_copy.finish_copy(disk, source, copy, copied | {*disk.list(copy)})


class _UnsyncedFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "fsync" else getattr(self._file, name)


class _UnsyncedDisk:
    """A disk on which nothing is made durable."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return (lambda path: None) if name == "fsync_directory" else getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False) -> Any:
        return _UnsyncedFile(self._disk.open(path, create=create))


def _use_an_undurable_copy() -> Sequence[Patch]:
    def finish(disk: Any, source: str, copy: str, copied: frozenset[str]) -> str:
        return log_copy.finish_copy(_UnsyncedDisk(disk), source, copy, copied)

    return [(log_moves, "finish_copy", finish)]


def _leave_the_copy_unmarked() -> Sequence[Patch]:
    def finish(disk: Disk, source: str, copy: str, copied: frozenset[str]) -> str:
        path = log_copy.finish_copy(disk, source, copy, copied)
        disk.remove(os.path.join(path, names.MOVE_UNFINISHED))
        return path

    return [(log_moves, "finish_copy", finish)]


def _leave_the_mark() -> Sequence[Patch]:
    def mutant(self: Arrivals) -> Deferred[None]:
        for directory in self._logs.live_directories:
            for partition in directory.interrupted_moves:
                self.interrupted_moves[partition] = directory
        return succeed(None)

    return [(Arrivals, "finish_moves", mutant)]


class _WithoutDirectories:
    """Workers that make no name in a directory durable."""

    def __init__(self, workers: Any) -> None:
        self._workers = workers

    def run(self, function: Any, *arguments: Any) -> Any:
        if getattr(function, "__name__", "") == "fsync_directory":
            return succeed(None)
        return self._workers.run(function, *arguments)


def _trust_the_old_name_to_go() -> Sequence[Patch]:
    async def mutant(self: LogMoves, move: LogMove, copy: Log) -> None:
        workers: Any = self._workers
        self._workers = _WithoutDirectories(workers)  # type: ignore[assignment]
        try:
            await _REPLACE(self, move, copy)
        finally:
            self._workers = workers

    return [(LogMoves, "_replace", mutant)]


def _forget_the_high_watermark() -> Sequence[Patch]:
    return [(LogMoves, "_high_watermark", lambda self, log: log.log_start_offset)]


def _move_what_was_asked_back() -> Sequence[Patch]:
    def mutant(self: LogMoves, partition: TopicPartition) -> None:
        self._moves.pop(partition, None)

    def is_under_way(self: LogMoves, move: LogMove) -> bool:
        is_current = self._logs.find(move.partition) is move.log and move.log.failure is None
        return is_current and not (self._is_stopped or move.target.failure is not None)

    return [(LogMoves, "cancel", mutant), (LogMoves, "_is_under_way", is_under_way)]


def _leave_the_last_process_s_move() -> Sequence[Patch]:
    def mutant(self: LogMoves, partition: TopicPartition) -> None:
        move = self._moves.pop(partition, None)
        if move is not None:
            move.is_cancelled = True

    return [(LogMoves, "cancel", mutant)]


def _move_the_next_topic_too() -> Sequence[Patch]:
    def mutant(self: LogManager, partition: TopicPartition) -> None:
        interrupted = dict(self.arrivals.interrupted_moves)
        _DELETE(self, partition)
        self.arrivals.interrupted_moves.update(interrupted)

    return [(LogManager, "delete", mutant)]


def _go_on_with_the_old_log() -> Sequence[Patch]:
    return [(Partition, "replace_log", lambda self, log: None)]


def _forget_what_crashed() -> Sequence[Patch]:
    return [(LogMoves, "role_changed", lambda self, partition: None)]


def _leave_what_was_copied() -> Sequence[Patch]:
    def mutant(self: LogManager, log: Log, directory: LogDirectory) -> None:
        del directory.logs[log.topic_partition]

    return [(LogManager, "drop", mutant)]


def _close_what_is_not_used() -> Sequence[Patch]:
    return [(LogMoves, "stop", lambda self: setattr(self, "_is_stopped", True))]


MUTATIONS = (
    Mutation(
        "moved-before-caught-up",
        "a copy takes the log's place with the segments that were closed when the move began",
        _use_what_is_copied,
        MOVES,
    ),
    Mutation(
        "appends-lost-in-move",
        "a log takes appends while the last of it is copied, and nothing compares the copy with it",
        _take_appends_meanwhile,
        MOVES,
    ),
    Mutation(
        "moved-before-durable",
        "the old directory is removed although a power loss could take what was copied last",
        _use_an_undurable_copy,
        MOVES,
    ),
    Mutation(
        "high-watermark-not-moved",
        "the checkpoint of the new directory knows nothing to be committed",
        _forget_the_high_watermark,
        MOVES,
    ),
    Mutation(
        "moved-though-asked-back",
        "a move that was asked back goes on",
        _move_what_was_asked_back,
        MOVES,
    ),
    Mutation(
        "old-log-used-after-move",
        "a replica goes on with the log that has moved",
        _go_on_with_the_old_log,
        MOVES,
    ),
)

RARE = (
    Mutation(
        "unused-copy-closed",
        "a broker that stops closes the copy of a move whose files go at the same time",
        _close_what_is_not_used,
        MOVES,
    ),
    Mutation(
        "truncation-not-moved",
        "a copy keeps what was truncated while it was made",
        _keep_what_was_truncated,
        MOVES,
    ),
    Mutation(
        "copy-not-marked",
        "after a crash a copy cannot be told from the log",
        _leave_the_copy_unmarked,
        MOVES,
    ),
    Mutation(
        "mark-left-on-copy",
        "a copy that is used after a crash is still marked as one",
        _leave_the_mark,
        MOVES,
    ),
    Mutation(
        "old-name-not-synced",
        "a power loss after a move brings the old log back beside the new one",
        _trust_the_old_name_to_go,
        MOVES,
    ),
    Mutation(
        "asked-back-after-a-crash",
        "a move that a crash interrupted goes on, though it was asked back after the crash",
        _leave_the_last_process_s_move,
        MOVES,
    ),
    Mutation(
        "next-topic-moves-too",
        "a new topic moves since a crash had interrupted a move of the one before, which had its name",
        _move_the_next_topic_too,
        MOVES,
    ),
    Mutation(
        "interrupted-move-forgotten",
        "a move does not go on after a crash",
        _forget_what_crashed,
        MOVES,
    ),
    Mutation(
        "dropped-copy-left",
        "a copy that was not used stays beside the log",
        _leave_what_was_copied,
        MOVES,
    ),
)
