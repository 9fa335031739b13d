"""Group commit: which waiters share an fsync, and what a failed fsync does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.log.checkpoints import decode_epochs
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.disk import SimDisk
from tests.models.logs import append, headers_of, new_log, reopen, sim_disk
from tests.models.workers import ImmediateWorkers


class Scene:
    """A log, a flusher whose fsyncs the test triggers, and the answers of the waiters."""

    def __init__(self, **config: int) -> None:
        self.disk: SimDisk = sim_disk()
        self.log: Log = new_log(self.disk, **config)
        self.workers = ImmediateWorkers(is_held=True)
        self.flusher = Flusher(self.workers, Clock())
        self.log.events = LogEvents(flush_due=self.flusher.flush)
        self.answers: list[tuple[str, ErrorCode | None]] = []

    def write(self, name: str) -> None:
        append(self.log)
        self.wait(name, self.log.log_end_offset)

    def wait(self, name: str, offset: int) -> None:
        durable: Deferred[None] = self.flusher.durable(self.log, offset)
        durable.addCallbacks(
            lambda _: self.answers.append((name, None)),
            lambda failure: self.answers.append((name, failure.value.code)),
        )


def test_waiters_that_arrive_during_an_fsync_share_the_next_one() -> None:
    scene = Scene()
    for name in "abc":
        scene.write(name)
    assert len(scene.workers.jobs) == 1
    scene.workers.work()
    # The fsync began when only "a" was written.
    assert scene.answers == [("a", None)]
    scene.write("d")
    assert len(scene.workers.jobs) == 1
    scene.workers.work()
    assert [name for name, _ in scene.answers] == ["a", "b", "c"]
    scene.workers.work()
    assert [name for name, _ in scene.answers] == ["a", "b", "c", "d"]
    assert scene.workers.jobs == []
    assert scene.log.recovery_point == 4


def test_durable_records_need_no_further_fsync() -> None:
    scene = Scene()
    append(scene.log)
    flush_at_once(scene.log)
    scene.wait("a", 1)
    assert scene.answers == [("a", None)] and scene.workers.jobs == []


def test_an_acknowledged_record_survives_a_power_loss() -> None:
    for seed in range(20):
        scene = Scene(segment_bytes=250)
        scene.disk.rng.seed(seed)
        for number in range(10):
            scene.write(str(number))
            if number % 3 == 0:
                scene.workers.work()
        answered = len(scene.answers)
        assert answered >= 1
        scene.disk.lose_power()
        found = reopen(scene.disk, scene.log, is_clean=False, recovery_point=scene.log.recovery_point)
        assert len(headers_of(found)) >= answered


def test_a_failed_fsync_fails_all_waiters_and_is_never_repeated() -> None:
    scene = Scene()
    failed: list[OSError] = []
    scene.log.events = replace(scene.log.events, failed=lambda log, error: failed.append(error))
    scene.write("a")
    scene.write("b")
    scene.disk.fail("/data", only_writes=True)
    scene.workers.work()
    assert scene.answers == [("a", ErrorCode.KAFKA_STORAGE_ERROR), ("b", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert len(failed) == 1
    scene.disk.mend("/data")
    scene.wait("c", 2)
    assert scene.answers[-1] == ("c", ErrorCode.KAFKA_STORAGE_ERROR)
    assert scene.workers.jobs == [] and scene.log.recovery_point == 0


def test_a_truncated_record_is_never_reported_durable() -> None:
    scene = Scene()
    for name in "abc":
        scene.write(name)
    truncate_to(scene.log, 1)
    append(scene.log)
    scene.workers.work()
    # The fsync covered truncated bytes: only waiters whose records still exist succeed.
    assert scene.answers == [("c", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    scene.workers.work()
    assert scene.answers[1:] == [("a", None), ("b", None)]


def test_a_late_flush_does_not_write_epochs_that_a_truncation_removed() -> None:
    scene = Scene()
    append(scene.log, leader_epoch=1)
    append(scene.log, leader_epoch=2)
    scene.wait("a", 2)
    truncate_to(scene.log, 1)
    # The flush that was already running writes both epochs; the next one starts immediately after it.
    scene.workers.work()
    found = reopen(scene.disk, scene.log, is_clean=False, recovery_point=scene.log.recovery_point)
    assert found.epochs.entries == [(1, 0)]
    scene.workers.work()
    assert decode_epochs(scene.disk.read(scene.log.directory + "/leader-epoch-checkpoint")) == [(1, 0)]


def test_many_unflushed_records_trigger_a_flush() -> None:
    scene = Scene(flush_messages=3)
    append(scene.log)
    append(scene.log)
    assert scene.workers.jobs == []
    append(scene.log)
    scene.workers.work()
    assert scene.log.recovery_point == 3


def test_a_finished_segment_is_flushed_in_the_background() -> None:
    scene = Scene(segment_bytes=100)
    append(scene.log)
    append(scene.log)
    scene.workers.work()
    assert scene.log.recovery_point >= 1


def test_a_flush_of_an_already_failed_log_fails_at_once() -> None:
    scene = Scene()
    append(scene.log)
    scene.log.fail(OSError("gone"))
    scene.wait("a", 1)
    assert scene.answers == [("a", ErrorCode.KAFKA_STORAGE_ERROR)]
    with pytest.raises(BrokerError):
        flush_at_once(scene.log)
