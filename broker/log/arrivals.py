"""Logs as a start loads them: which one is used of a partition that several directories have.

Two directories may have a log of the same partition because the last process was moving it from one to the
other (KIP-113), or because one was offline while the topic was deleted and created again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast_log.broker.log import names
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class LogPlaces(Protocol):
    """The logs of a broker, by their directories: what `LogManager` has for those that arrive."""

    @property
    def live_directories(self) -> list[LogDirectory]: ...

    def __iter__(self) -> Iterator[Log]: ...

    def find(self, partition: TopicPartition) -> Log | None: ...

    def directory_of(self, log: Log) -> LogDirectory: ...

    def adopt(self, directory: LogDirectory, log: Log) -> Log: ...

    def set_aside(self, log: Log) -> None: ...

    def drop(self, log: Log, directory: LogDirectory) -> None: ...


class Arrivals:
    """Takes up the logs that a start loads, one after the other, in any order."""

    def __init__(self, logs: LogPlaces, disk: Disk, workers: Workers) -> None:
        self.interrupted_moves: dict[TopicPartition, LogDirectory] = {}
        """The directories to which the last process was moving logs."""
        self._logs = logs
        self._disk = disk
        self._workers = workers

    def loaded(self, directory: LogDirectory, log: Log) -> None:
        """Add a log that a worker opened.

        Of two logs of a partition of which none is the copy of the other, the more recent one is used until
        the controller names the topic's id (see `LogManager.move_aside`); the other is kept unchanged.
        """
        if log.is_cut_short:
            directory.lineage = ()
        partition = log.topic_partition
        other = self._logs.find(partition)
        if other is None:
            self._logs.adopt(directory, log)
            return
        if log.is_move_unfinished != other.is_move_unfinished:
            self._drop_copy(partition, directory, log, other)
            return
        if _rank(log, directory) > _rank(other, self._logs.directory_of(other)):
            self._logs.set_aside(other)
            self._logs.adopt(directory, log)
        else:
            directory.spares[partition] = log
        logger.error(
            "%s and %s hold the same partition; the more recent log is used, the other is kept",
            other.directory,
            log.directory,
        )

    def _drop_copy(self, partition: TopicPartition, directory: LogDirectory, log: Log, other: Log) -> None:
        """Of two logs of a partition, drop the one that the last process had copied from the other: it did
        not come to use it."""
        if log.is_move_unfinished:
            self.interrupted_moves[partition] = directory
            directory.logs[partition] = log
            self._logs.drop(log, directory)
        else:
            place = self._logs.directory_of(other)
            self.interrupted_moves[partition] = place
            self._logs.drop(other, place)
            self._logs.adopt(directory, log)

    def finish_moves(self) -> Deferred[None]:
        """Once all logs are there: forget of which ones the last process had not come to remove the
        originals. They have gone."""
        for directory in self._logs.live_directories:
            for partition in directory.interrupted_moves:
                self.interrupted_moves[partition] = directory
        moved = [log for log in self._logs if log.is_move_unfinished]
        for log in moved:
            log.is_move_unfinished = False
        paths = [os.path.join(log.directory, names.MOVE_UNFINISHED) for log in moved]
        return all_back([self._workers.run(self._disk.remove, path) for path in paths])


def _rank(log: Log, directory: LogDirectory) -> tuple[bool, int, int, str]:
    """Rank of a log among several of one partition: the highest is used."""
    return log.topic_id is not None, log.epochs.latest, log.log_end_offset, directory.path
