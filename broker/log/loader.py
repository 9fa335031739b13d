"""Loads the logs of all log directories when the broker starts, several at a time in worker threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.log.directory import LogDirectory, write_files
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import retried
from holdfast_log.broker.log.recovery import load_log
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")


class Loader:
    """Loads directories in parallel, `lanes` logs of each at a time.

    `request` describes how to load a partition of a directory; `loaded` is called with each log.
    """

    def __init__(
        self,
        workers: Workers,
        clock: Clock,
        lanes: int,
        request: Callable[[LogDirectory, TopicPartition], LoadRequest],
        loaded: Callable[[LogDirectory, Log], None],
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._lanes = lanes
        self._request = request
        self._loaded = loaded

    def load(
        self, directories: Sequence[LogDirectory], failed: Callable[[LogDirectory, Failure], None]
    ) -> Deferred[None]:
        """Load all logs; `failed` is called with each directory that cannot be read."""
        return all_back(
            [self._load(directory).addErrback(partial(failed, directory)) for directory in directories]
        )

    def _load(self, directory: LogDirectory) -> Deferred[None]:
        opened = self._run(directory.path, directory.open)
        loaded = opened.addCallback(lambda found: self._load_logs(directory, found))
        loaded.addCallback(lambda _: self._lower_checkpoints(directory))
        return loaded.addCallback(lambda _: self._run(directory.path, directory.begin_running))

    def _lower_checkpoints(self, directory: LogDirectory) -> Deferred[None] | None:
        """Make it durable that recovery has cut logs before their checkpointed offsets."""
        files = directory.lowered_checkpoints()
        return self._run(directory.path, partial(write_files, directory.disk, files)) if files else None

    def _run(self, path: str, work: Callable[[], T]) -> Deferred[T]:
        return retried(self._clock, f"load of {path}", lambda: self._workers.run(work))

    def _load_logs(self, directory: LogDirectory, found: Sequence[TopicPartition]) -> Deferred[None]:
        remaining = iter(found)

        def load_next(_: object = None) -> Deferred[None] | None:
            partition = next(remaining, None)
            if partition is None:
                return None
            request = self._request(directory, partition)
            read = self._run(request.directory, lambda: load_log(directory.disk, request))
            read.addCallback(lambda log: self._loaded(directory, log))
            return read.addCallback(load_next)

        # One failed load takes the directory offline, once the other loads have ended.
        return all_back([succeed(None).addCallback(load_next) for _ in range(self._lanes)])
