"""One error at each disk call in turn, on every code path: every caller gets an answer, and no call hangs."""

from __future__ import annotations

import errno
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.settings import topic_defaults
from holdfast_log.broker.log.truncation import advance_log_start, truncate_fully_and_start_at, truncate_to
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.disk import SimDisk
from tests.models.faulty_disk import OPENING, FaultyDisk
from tests.models.logs import NOW_MS, append, sim_disk
from tests.models.workers import ImmediateWorkers

FLIGHTS = TopicPartition("flights", 0)
TRAINS = TopicPartition("trains", 0)


@pytest.fixture(autouse=True)
def no_unhandled_failure() -> Iterator[None]:
    """Fails a test in which a Deferred dropped a failure that no errback handled."""
    unhandled: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if "log_failure" in event or event.get("isError"):
            unhandled.append(event)

    gc.collect()
    globalLogPublisher.addObserver(observe)
    yield
    gc.collect()
    globalLogPublisher.removeObserver(observe)
    assert not unhandled


class Story:
    """A broker's logs from start to stop, on a disk that may fail once. Each step may be refused."""

    def __init__(self, disk: Disk) -> None:
        self.clock = Clock()
        self.clock.advance(NOW_MS / 1000)
        self.workers = ImmediateWorkers()
        self.logs = LogManager(
            ("/d1",),
            disk,
            self.workers,
            self.clock,
            self.date_ms,
            random.Random(1),
            Flusher(self.workers, self.clock),
            defaults=topic_defaults({"log.segment.bytes": 250}),
        )
        self.answers: dict[str, list[Any]] = {}
        self.refused: list[str] = []

    def date_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def wait(self, name: str, begin: Callable[[], Deferred[Any]]) -> None:
        outcomes = self.answers[name] = []
        begin().addBoth(outcomes.append)

    def step(self, name: str, act: Callable[[], object]) -> None:
        """Do one step. The only error with which the broker may refuse it is KAFKA_STORAGE_ERROR."""
        try:
            act()
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error
            self.refused.append(name)

    def durable(self, name: str, partition: TopicPartition) -> None:
        log = self.logs.find(partition)
        if log is not None:
            self.wait(name, lambda: self.logs.flusher.durable(log, log.log_end_offset))

    def on(self, name: str, partition: TopicPartition, act: Callable[[Any], object]) -> None:
        log = self.logs.find(partition)
        if log is not None:
            self.step(name, lambda: act(log))

    def live(self) -> None:
        logs, clock = self.logs, self.clock
        self.wait("start", logs.start)
        clock.advance(5)
        self.on("append to a recovered log", FLIGHTS, lambda log: append(log, leader_epoch=2))
        self.durable("first flush", FLIGHTS)
        self.step("create", lambda: logs.get_or_create(TRAINS))
        for _ in range(6):
            self.on("append", TRAINS, lambda log: append(log, leader_epoch=1))
        self.durable("second flush", TRAINS)
        clock.advance(5)
        self.on("read", TRAINS, lambda log: log.read(0, 100, upper_offset=2))
        self.on("delete records", TRAINS, lambda log: advance_log_start(log, 3))
        self.on("roll", TRAINS, lambda log: log.roll(NOW_MS))
        self.wait("offsets", logs.checkpoints.write_offsets)
        self.wait("high watermarks", lambda: logs.checkpoints.write_high_watermarks({TRAINS: 2}))
        clock.advance(5)
        # Truncate two segments, to below the recovery point, while a flush is running.
        self.workers.is_held = True
        self.on("append before truncation", TRAINS, lambda log: append(log, leader_epoch=3))
        self.durable("flush across truncation", TRAINS)
        self.on("truncate", TRAINS, lambda log: truncate_to(log, 4))
        self.workers.release()
        clock.advance(5)
        self.on("append after truncation", TRAINS, lambda log: append(log, leader_epoch=4))
        self.durable("third flush", TRAINS)
        self.on("truncate fully", FLIGHTS, lambda log: truncate_fully_and_start_at(log, 1))
        clock.advance(5)
        self.on("append after full truncation", FLIGHTS, lambda log: append(log, leader_epoch=5))
        self.workers.is_held = True
        self.durable("flush of a deleted log", FLIGHTS)
        self.step("delete topic", lambda: logs.delete(FLIGHTS))
        self.workers.release()
        clock.advance(100_000)
        self.wait("close", lambda: logs.close({TRAINS: 4}))
        clock.advance(5)

    def check(self) -> None:
        unanswered = [name for name, outcomes in self.answers.items() if not outcomes]
        assert not unanswered
        assert not self.workers.jobs


def crashed_disk() -> SimDisk:
    """A disk on which a broker with one log of several segments was killed."""
    disk = sim_disk()
    story = Story(disk)
    story.logs.start()
    log = story.logs.get_or_create(FLIGHTS)
    for number in range(6):
        append(log, leader_epoch=number // 3)
    disk.kill_process()
    return disk


def test_no_error_of_the_disk_leaves_a_caller_without_an_answer() -> None:
    for fails_at in range(1, 2000):
        disk = FaultyDisk(crashed_disk(), fails_at, errno.EIO)
        story = Story(disk)
        try:
            story.live()
            story.check()
        except Exception as error:
            error.add_note(f"call {fails_at}: {disk.failed}")
            raise
        if disk.failed is None:
            assert fails_at > 100
            assert not story.refused
            return
        # Either the directory is offline, or every step succeeded despite the error.
        (directory,) = story.logs.directories
        assert directory.failure is not None or not story.refused, (fails_at, disk.failed, story.refused)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_or_memory_takes_no_directory_offline(error: int) -> None:
    for fails_at in range(1, 2000):
        disk = FaultyDisk(crashed_disk(), fails_at, error, counts=OPENING)
        story = Story(disk)
        try:
            story.live()
            story.check()
        except Exception as failure:
            failure.add_note(f"call {fails_at}: {disk.failed}")
            raise
        (directory,) = story.logs.directories
        assert directory.failure is None, (fails_at, disk.failed)
        if disk.failed is None:
            assert fails_at > 10
            return
