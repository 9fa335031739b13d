"""Checkpoints of log directories. Worker threads write them periodically, and when a log loses records.

The files of recovery points and log start offsets cover all logs of a directory, so each directory has at
most one write of them at a time. All requests that arrive while it is running share the next write. High
watermarks are written in the order of the requests: no slow write may replace the last one of a clean stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred, DeferredLock, execute, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.log.directory import LogDirectory, MadeLater, finished_steps, write_files
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import retried
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.topic_partition import TopicPartition

InTurns: TypeAlias = "Callable[[Generator[None, None, Any]], Deferred[Any]]"
"""Takes steps in turns of the reactor. The Deferred fires with what they return."""


def _at_once(steps: Generator[None, None, Any]) -> Deferred[Any]:
    return execute(finished_steps, steps)


class StartDurable(Protocol):
    """A listener of log starts."""

    def __call__(self, log: Log) -> None:
        """Take note that a checkpoint has a later start of `log`, its `durable_start_offset`."""
        ...


class DirectoryFailed(Protocol):
    def __call__(self, directory: LogDirectory, failure: Failure) -> None:
        """Take `directory` offline."""
        ...


@dataclass(slots=True)
class _Turn:
    """The writes of one directory's recovery points and log start offsets, and of its high watermarks."""

    is_running: bool = False
    waiting: list[Deferred[None]] = field(default_factory=list)
    high_watermarks: DeferredLock = field(default_factory=DeferredLock)


class CheckpointWriter:
    """Writes the checkpoints of the directories that are online. Calls `failed` with a directory whose write
    failed.

    The Deferreds of `write_offsets`, `write_offsets_of` and `write_high_watermarks` never fail: the `failure`
    of a directory says whether its write failed.
    """

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        disk: Disk,
        workers: Workers,
        clock: Clock,
        failed: DirectoryFailed,
    ) -> None:
        self._directories = directories
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._failed = failed
        self._turns = {directory.path: _Turn() for directory in directories}
        self._start_listeners: list[StartDurable] = []

    def add_start_listener(self, listener: StartDurable) -> None:
        """Call `listener` with each log of which a later start becomes durable from now on."""
        self._start_listeners.append(listener)

    def write_offsets(self) -> Deferred[None]:
        """Write recovery points and log start offsets."""
        return all_back([self._request(directory) for directory in self._live()])

    def write_offsets_of(self, directory: LogDirectory) -> Deferred[None]:
        """Write one directory's recovery points and log start offsets, as they are now or later. Fires once
        they are durable, or the directory has failed."""
        return self._request(directory)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Write high watermarks."""
        return self.write_high_watermarks_in_turns(lambda: [offsets], _at_once)

    def write_high_watermarks_in_turns(
        self, parts: Callable[[], Iterable[Mapping[TopicPartition, int]]], in_turns: InTurns
    ) -> Deferred[None]:
        """Write high watermarks. `in_turns` takes the steps in which they are noted, each of which has one of
        `parts` or a few hundred rows: of thousands of logs all together would take ten milliseconds."""
        return all_back(
            [self._write_high_watermarks(directory, parts, in_turns) for directory in self._live()]
        )

    def write_last(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Write all checkpoints of a directory whose logs are closed, after any write that is still running.
        `offsets` are high watermarks. Fails with OSError."""
        turn = self._turns[directory.path]
        running = self._request(directory) if turn.is_running else succeed(None)
        return running.addCallback(
            lambda _: turn.high_watermarks.run(
                self._write,
                directory,
                directory.offset_checkpoints() | directory.high_watermark_checkpoint(offsets),
            )
        )

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    def _write_high_watermarks(
        self,
        directory: LogDirectory,
        parts: Callable[[], Iterable[Mapping[TopicPartition, int]]],
        in_turns: InTurns,
    ) -> Deferred[None]:
        def note_and_write() -> Deferred[None]:
            # Within the lock, too: what was noted before the last write of a clean stop must not follow it.
            noted = in_turns(directory.high_watermark_steps(parts()))
            return noted.addCallback(lambda files: self._write(directory, files))

        written: Deferred[None] = self._turns[directory.path].high_watermarks.run(note_and_write)
        return written.addErrback(lambda failure: self._failed(directory, failure))

    def _request(self, directory: LogDirectory) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        turn = self._turns[directory.path]
        turn.waiting.append(done)
        if not turn.is_running:
            self._begin(directory, turn)
        return done

    def _begin(self, directory: LogDirectory, turn: _Turn) -> None:
        turn.is_running = True
        served, turn.waiting = turn.waiting, []
        departed = dict(directory.departed)
        starts = directory.moved_starts()
        written = self._write(directory, directory.offset_checkpoints())
        written.addCallback(lambda _: directory.forget_departures(departed))
        written.addCallback(lambda _: _note_durable(starts))
        written.addErrback(lambda failure: self._failed(directory, failure))
        written.addBoth(self._written, directory, turn, served)

    def _written(
        self,
        durable: Sequence[Log] | None,
        directory: LogDirectory,
        turn: _Turn,
        served: Sequence[Deferred[None]],
    ) -> None:
        """`durable` are the logs of which a later start is durable now; None if the write failed."""
        turn.is_running = False
        # Before the callbacks, which may ask again at once.
        if turn.waiting:
            self._begin(directory, turn)
        for done in served:
            done.callback(None)
        for log in durable or ():
            for listener in self._start_listeners:
                listener(log)

    def _write(self, directory: LogDirectory, files: Mapping[str, bytes | MadeLater]) -> Deferred[None]:
        return retried(
            self._clock,
            f"write of the checkpoints in {directory.path}",
            lambda: self._workers.run(write_files, self._disk, files),
        )


def _note_durable(starts: Mapping[Log, int]) -> list[Log]:
    """Note that these log starts are durable. Returns the logs for which that is news."""
    found = []
    for log, start in starts.items():
        # A truncation during the write may have lowered the start.
        start = min(start, log.log_start_offset)
        if start > log.durable_start_offset:
            log.durable_start_offset = start
            found.append(log)
    return found
