"""All logs of a broker, over one or several directories.

A directory whose file system fails goes offline with its logs, and the broker goes on with the others.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from broker.log import names
from broker.log.checkpoints import MetaProperties
from broker.log.config import LogConfig
from broker.log.directory import IdentityError, LogDirectory, write_files
from broker.log.disk import Disk
from broker.log.flusher import Flusher
from broker.log.log import Log, LogEvents
from broker.log.names import TopicPartition
from broker.log.open_files import OpenFiles
from broker.log.recovery import LoadRequest, create_log, load_log, write_partition_metadata
from broker.workers import Workers
from clients.settings import SettingError
from protocol.errors import BrokerError, ErrorCode, error_for

logger = logging.getLogger(__name__)

ZERO_ID = uuid.UUID(int=0)


class Clock(Protocol):
    """What of a reactor tells and keeps time."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class ManagerLimits:
    """Values of the settings of these names."""

    num_recovery_threads_per_data_dir: int = 1
    producer_id_expiration_ms: int = 86_400_000


@dataclass(slots=True)
class LogManager:
    """The map of partitions to logs.

    `defaults` are the broker's values of topic settings (see `config.topic_defaults`);
    `directory_failed` is called with the path of a directory that has gone offline.
    """

    paths: Sequence[str]
    disk: Disk
    workers: Workers
    clock: Clock
    random: random.Random
    flusher: Flusher
    defaults: Mapping[str, Any] = field(default_factory=dict)
    limits: ManagerLimits = field(default_factory=ManagerLimits)
    directory_failed: Callable[[str], None] = field(default=lambda path: None)
    directories: list[LogDirectory] = field(init=False)
    _files: OpenFiles = field(init=False)
    _overrides: dict[str, Mapping[str, Any]] = field(init=False, default_factory=dict)
    _latest_config: tuple[str, LogConfig] | None = field(init=False, default=None)
    """The topic whose logs were made last, and their settings: one's logs are made one after the other."""

    def __post_init__(self) -> None:
        self.directories = [LogDirectory(self.disk, os.path.abspath(path)) for path in self.paths]
        self._files = OpenFiles(self.disk)

    def __iter__(self) -> Iterator[Log]:
        for directory in self.live_directories:
            yield from directory.logs.values()

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    # Starting.

    def start(self) -> Deferred[None]:
        """Load what is there, several logs of a directory at a time. A directory that cannot be read is
        offline from the beginning."""
        loads = [self._load_directory(directory) for directory in self.directories]
        return DeferredList(loads, consumeErrors=True).addCallback(_raise_first)

    def _load_directory(self, directory: LogDirectory) -> Deferred[None]:
        opened = self.workers.run(directory.open)
        loaded = opened.addCallback(lambda found: self._load_logs(directory, found))
        loaded.addCallback(lambda _: self.workers.run(directory.begin_running))
        return loaded.addErrback(lambda failure: self._directory_failed(directory, failure))

    def _directory_failed(self, directory: LogDirectory, failure: Failure) -> None:
        """For Deferreds: what the file system refused takes the directory offline, all else is a mistake."""
        failure.trap(OSError)
        assert isinstance(failure.value, OSError)
        self.fail_directory(directory, failure.value)

    def _load_logs(self, directory: LogDirectory, found: Sequence[TopicPartition]) -> Deferred[None]:
        remaining = iter(found)

        def load_next(_: object = None) -> Deferred[None] | None:
            partition = next(remaining, None)
            if partition is None:
                return None
            loaded = self.workers.run(load_log, self.disk, self._request(directory, partition))
            loaded.addCallback(partial(self._adopt, directory))
            return loaded.addCallback(load_next)

        lanes = self.limits.num_recovery_threads_per_data_dir
        started = [succeed(None).addCallback(load_next) for _ in range(lanes)]
        # One failed load ends the directory, but only once the others have come back.
        return DeferredList(started, consumeErrors=True).addCallback(_raise_first)

    def _request(
        self, directory: LogDirectory, partition: TopicPartition, topic_id: uuid.UUID | None = None
    ) -> LoadRequest:
        return LoadRequest(
            partition,
            directory.path_of(str(partition)),
            self.config_of(partition.topic),
            self.now_ms(),
            recovery_point=directory.recovery_points.get(partition, 0),
            log_start_offset=directory.log_start_offsets.get(partition, 0),
            is_clean=directory.is_clean,
            topic_id=topic_id,
            producer_expiration_ms=self.limits.producer_id_expiration_ms,
        )

    def _adopt(self, directory: LogDirectory, log: Log) -> Log:
        """Take over a log that a worker opened."""
        other = self.find(log.topic_partition)
        if other is not None:
            logger.error("%s is left alone: %s has that partition too", log.directory, other.directory)
            log.release()
            return other
        log.use_files(self._files)
        log.config = self.config_of(log.topic_partition.topic)
        log.events = LogEvents(
            discard=partial(self._discard, log.config.file_delete_delay_ms),
            flush_due=self.flusher.flush,
            recovery_point_lowered=lambda _: self._write_checkpoints_now(directory),
            failed=lambda _, error: self.fail_directory(directory, error),
        )
        log.last_flush_ms = self.now_ms()
        if log.config.segment_jitter_ms:
            log.roll_jitter_ms = self.random.randrange(log.config.segment_jitter_ms + 1)
        directory.logs[log.topic_partition] = log
        return log

    def identity(self) -> MetaProperties | None:
        """Whose directories these are; None where all are new. To be asked after `start`.

        Raises `IdentityError` where they disagree.
        """
        known = None
        for directory in self.live_directories:
            meta = directory.identity()
            if meta is None:
                continue
            if known is not None and meta != known:
                raise IdentityError(f"{directory.path} belongs to {meta}, another directory to {known}")
            known = meta
        return known

    def claim(self, meta: MetaProperties) -> None:
        """Write down whose directories these are.

        Raises `IdentityError` where one belongs to another broker or another cluster, OSError.
        """
        known = self.identity()
        if known is not None:
            if known.broker_id != meta.broker_id:
                raise IdentityError(
                    f"the log directories belong to broker {known.broker_id}, not to broker {meta.broker_id}"
                    ": correct broker.id or log.dirs"
                )
            if known.cluster_id is not None and known.cluster_id != meta.cluster_id:
                raise IdentityError(
                    f"the log directories belong to cluster {known.cluster_id}, not to {meta.cluster_id}: "
                    "correct zookeeper.connect (its /chroot too) or log.dirs"
                )
        for directory in self.live_directories:
            if directory.identity() != meta:
                directory.write_identity(meta)

    # Finding, making and deleting logs.

    def find(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, if a directory that works has it."""
        for directory in self.live_directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def get_or_create(
        self, partition: TopicPartition, topic_id: uuid.UUID | None = None, *, is_new: bool = True
    ) -> Log:
        """The log of a partition, made where there is none: in the directory with the fewest.

        Raises BrokerError: INCONSISTENT_TOPIC_ID where the log is that of an older topic of the name,
        KAFKA_STORAGE_ERROR where it cannot be made, or where it is not `is_new` and may lie in a directory
        that is offline.
        """
        topic_id = None if topic_id == ZERO_ID else topic_id
        log = self.find(partition)
        if log is not None:
            self._check_topic_id(log, topic_id)
            return log
        live = self.live_directories
        if not live or (not is_new and len(live) < len(self.directories)):
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition}: a log directory is offline")
        directory = min(live, key=lambda directory: len(directory.logs))
        # What the checkpoints say of the name is about a log that is there no more.
        directory.recovery_points.pop(partition, None)
        directory.log_start_offsets.pop(partition, None)
        directory.high_watermarks.pop(partition, None)
        try:
            if not self.disk.is_directory(directory.path):
                # Its disk is gone. Made anew, it would be a directory on whatever holds the mount point.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory.path)
            log = create_log(self.disk, self._request(directory, partition, topic_id))
        except OSError as error:
            self.fail_directory(directory, error)
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self._adopt(directory, log)

    def _check_topic_id(self, log: Log, topic_id: uuid.UUID | None) -> None:
        if topic_id is None or log.topic_id == topic_id:
            return
        if log.topic_id is not None:
            raise error_for(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} holds data of topic id {log.topic_id}, not of {topic_id}",
            )
        try:
            write_partition_metadata(self.disk, log.directory, topic_id)
        except OSError as error:
            self.fail_directory(self._directory_of(log), error)
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.topic_id = topic_id

    def high_watermark(self, partition: TopicPartition) -> int:
        """As it was written down before the last stop; 0 where it was not."""
        for directory in self.live_directories:
            if partition in directory.logs:
                return directory.high_watermarks.get(partition, 0)
        return 0

    def delete(self, partition: TopicPartition) -> None:
        """Let the partition's log be gone at once, and its files a little later.

        Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.
        """
        log = self.find(partition)
        if log is not None:
            path = self._take_out(log, names.deleted_directory)
            self._later(log.config.file_delete_delay_ms, self.disk.remove_directory, path)

    def move_aside(self, partition: TopicPartition) -> str:
        """Let the partition's log be gone at once, and keep its files elsewhere; where. There must be one.

        Raises as `delete` does.
        """
        log = self.find(partition)
        assert log is not None
        return self._take_out(log, names.stray_directory)

    def _take_out(self, log: Log, name: Callable[[TopicPartition, uuid.UUID], str]) -> str:
        """Have a log no more; the path that its directory is renamed to."""
        partition, directory = log.topic_partition, self._directory_of(log)
        del directory.logs[partition]
        # Nothing that happens to its files from now on is a failure of the directory.
        log.events = LogEvents()
        log.release()
        path = directory.path_of(name(partition, uuid.UUID(int=self.random.getrandbits(128), version=4)))
        try:
            self.disk.rename(log.directory, path)
        except OSError as error:
            self.fail_directory(directory, error)
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.move(path)
        log.fail(OSError(f"{partition} was deleted"))
        return path

    def _discard(self, delay_ms: int, log: Log, paths: list[str]) -> None:
        for path in paths:
            self._later(delay_ms, self.disk.remove, path)

    def _later(self, delay_ms: int, function: Callable[[str], None], path: str) -> None:
        def run() -> None:
            # Files that could not be removed are tried again at the next start.
            self.workers.run(function, path).addErrback(
                lambda failure: logger.warning("%s could not be removed: %s", path, failure.value)
            )

        self.clock.callLater(delay_ms / 1000, run)

    def _directory_of(self, log: Log) -> LogDirectory:
        return next(
            directory for directory in self.directories if directory.logs.get(log.topic_partition) is log
        )

    # Settings.

    def config_of(self, topic: str) -> LogConfig:
        """The settings of a new log of a topic.

        Where the topic's own do not go with the broker's, which have changed since, they go without them: a
        replica that cannot be made would be worse.
        """
        if self._latest_config is not None and self._latest_config[0] == topic:
            return self._latest_config[1]
        overrides = self._overrides.get(topic, {})
        try:
            config = LogConfig.of(overrides, self.defaults)
        except SettingError as error:
            logger.error("Topic %s is kept without this broker's defaults: %s", topic, error)
            config = LogConfig.of(overrides)
        self._latest_config = topic, config
        return config

    def configure(self, topic: str, overrides: Mapping[str, Any]) -> None:
        """Take a topic's own settings, at once. Raises `SettingError`, and then nothing has changed."""
        config = LogConfig.of(overrides, self.defaults)
        self._latest_config = None
        if overrides:
            self._overrides[topic] = dict(overrides)
        else:
            self._overrides.pop(topic, None)
        for log in self:
            if log.topic_partition.topic == topic:
                log.config = config

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Take other values for what topics do not set themselves, at once.

        A topic whose own settings do not go with them keeps what it has.
        """
        self.defaults = defaults
        self._latest_config = None
        configs: dict[str, LogConfig | None] = {}
        for log in self:
            topic = log.topic_partition.topic
            if topic not in configs:
                try:
                    configs[topic] = LogConfig.of(self._overrides.get(topic, {}), defaults)
                except SettingError as error:
                    logger.error("Settings of topic %s are left as they were: %s", topic, error)
                    configs[topic] = None
            config = configs[topic]
            if config is not None:
                log.config = config

    # Durability.

    def flush_due(self) -> None:
        """Begin to flush the logs that have waited for their `flush.ms`."""
        now_ms = self.now_ms()
        for log in self:
            if log.recovery_point < log.log_end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flusher.flush(log)

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        now_ms = self.now_ms()
        for log in self:
            log.producers.expire(now_ms)

    def write_checkpoints(self) -> Deferred[None]:
        """Write down recovery points and log start offsets, in a worker."""
        return self._write_all(lambda directory: directory.offset_checkpoints())

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Write down high watermarks, in a worker."""
        return self._write_all(lambda directory: directory.high_watermark_checkpoint(offsets))

    def _write_all(self, content: Callable[[LogDirectory], dict[str, bytes]]) -> Deferred[None]:
        writes = [self._write(directory, content(directory)) for directory in self.live_directories]
        return DeferredList(writes, consumeErrors=True).addCallback(_raise_first)

    def _write(self, directory: LogDirectory, files: Mapping[str, bytes]) -> Deferred[None]:
        written_now = directory.checkpoints_written_now
        written = self.workers.run(write_files, self.disk, files)

        def check(_: None) -> None:
            # A checkpoint that was written meanwhile, because it could not wait, may have been replaced.
            if written_now != directory.checkpoints_written_now:
                self._write_checkpoints_now(directory)

        written.addCallback(check)
        return written.addErrback(lambda failure: self._directory_failed(directory, failure))

    def _write_checkpoints_now(self, directory: LogDirectory) -> None:
        directory.checkpoints_written_now += 1
        write_files(self.disk, directory.offset_checkpoints())

    def close(self, high_watermarks: Mapping[TopicPartition, int]) -> Deferred[None]:
        """Close all logs, write the checkpoints, and say that the stop was clean.

        Nothing else may be asked of the manager or its logs from now on.
        """
        # The fsyncs side by side, then the rest, for which a log belongs to one worker at a time.
        flushes = [self.flusher.durable(log, log.log_end_offset) for log in self]
        closed: Deferred[Any] = DeferredList(flushes, consumeErrors=True)
        for directory in self.live_directories:
            closed.addCallback(partial(self._close_directory, directory, high_watermarks))
        return closed

    def _close_directory(
        self, directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int], _: object
    ) -> Deferred[None] | None:
        if directory.failure is not None:
            return None
        closed = self.workers.run(_close_logs, list(directory.logs.values()), self.now_ms())

        def finish(_: None) -> Deferred[None]:
            files = directory.offset_checkpoints() | directory.high_watermark_checkpoint(high_watermarks)
            return self.workers.run(write_files, self.disk, files)

        closed.addCallback(finish)
        closed.addCallback(lambda _: self.workers.run(directory.mark_clean))
        return closed.addErrback(partial(_close_failed, directory))

    # Directories that fail.

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline, with all its logs."""
        if directory.failure is not None:
            return
        directory.failure = error
        logger.error("Log directory %s is offline: %s", directory.path, error)
        for log in directory.logs.values():
            log.fail(error)
        self.directory_failed(directory.path)


def _close_failed(directory: LogDirectory, failure: Failure) -> None:
    failure.trap(OSError, BrokerError)
    logger.error("%s could not be closed cleanly: %s", directory.path, failure.value)


def _close_logs(logs: Sequence[Log], now_ms: int) -> None:
    for log in logs:
        log.close(now_ms)


def _raise_first(results: Sequence[tuple[bool, Any]]) -> None:
    for succeeded, result in results:
        if not succeeded:
            result.raiseException()
