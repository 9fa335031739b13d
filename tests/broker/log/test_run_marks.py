"""Marks in log directories, from which a starting broker derives whether its logs have lost records."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.run_marks import (
    LINEAGE_MAX,
    NO_EPOCH,
    decode_clean_mark,
    decode_run_mark,
    encode_clean_mark,
    encode_run_mark,
)
from holdfast_log.broker.log.settings import topic_defaults
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.disk import SimDisk
from tests.models.logs import append, sim_disk
from tests.models.workers import ImmediateWorkers

EPOCH = 77
DIRECTORIES = ("/d1", "/d2")


def started(disk: SimDisk, boot: str | None = "one") -> LogManager:
    clock, workers = Clock(), ImmediateWorkers()
    logs = LogManager(
        DIRECTORIES,
        disk,
        workers,
        clock,
        lambda: 0,
        random.Random(1),
        Flusher(workers, clock),
        topic_defaults({}),
        boot=boot,
    )
    finished(logs.start())
    return logs


def finished(work: Deferred[None]) -> None:
    done: list[None] = []
    work.addCallback(done.append)
    assert done


def stop(disk: SimDisk, logs: LogManager) -> None:
    finished(logs.close({}))


def kill(disk: SimDisk, logs: LogManager) -> None:
    disk.kill_process()


@pytest.mark.parametrize(
    ("end", "boot", "epoch"),
    [
        (stop, "one", EPOCH),
        (stop, "two", EPOCH),
        (stop, None, EPOCH),
        (kill, "one", EPOCH),
        (kill, "two", NO_EPOCH),
        (kill, None, NO_EPOCH),
    ],
    ids=["stopped", "stopped-and-booted", "stopped-no-id", "killed", "lost-power", "killed-no-id"],
)
def test_what_a_process_wrote_is_all_there_after_a_clean_stop_or_in_the_same_boot(
    end: Callable[[SimDisk, LogManager], None], boot: str | None, epoch: int
) -> None:
    disk = sim_disk()
    logs = started(disk, None if boot is None else "one")
    assert logs.runs.start_epoch == NO_EPOCH
    finished(logs.begin_run(EPOCH))
    end(disk, logs)
    assert started(disk, boot).runs.start_epoch == epoch


def test_a_process_that_never_registered_keeps_the_mark_of_the_one_before() -> None:
    disk = sim_disk()
    logs = started(disk)
    finished(logs.begin_run(EPOCH))
    stop(disk, logs)
    stop(disk, started(disk))
    assert started(disk, "two").runs.start_epoch == EPOCH


@pytest.mark.parametrize("end", [stop, kill])
def test_a_process_names_every_process_before_it_whose_writes_are_all_there(
    end: Callable[[SimDisk, LogManager], None],
) -> None:
    """A broker may restart twice before a controller records one of its start epochs."""
    disk = sim_disk()
    for epoch in range(EPOCH, EPOCH + 30):
        logs = started(disk)
        finished(logs.begin_run(epoch))
        end(disk, logs)
    assert started(disk).runs.lineage == tuple(range(EPOCH + 29, EPOCH + 29 - LINEAGE_MAX, -1))


def test_a_process_that_may_have_lost_records_begins_a_new_lineage() -> None:
    disk = sim_disk()
    for number, boot in enumerate(["one", "one", "two"]):
        logs = started(disk, boot)
        finished(logs.begin_run(EPOCH + number))
        disk.kill_process()
    assert started(disk, "two").runs.lineage == (EPOCH + 2,)


def test_one_empty_directory_makes_the_others_doubtful() -> None:
    disk = sim_disk()
    logs = started(disk)
    finished(logs.begin_run(EPOCH))
    stop(disk, logs)
    disk.wipe("/d2")
    assert started(disk).runs.start_epoch == NO_EPOCH


def test_a_directory_that_was_offline_in_the_last_run_makes_the_others_doubtful() -> None:
    disk = sim_disk()
    finished(started(disk).begin_run(EPOCH))
    disk.kill_process()
    disk.fail("/d2")
    logs = started(disk)
    assert logs.runs.start_epoch == NO_EPOCH
    finished(logs.begin_run(EPOCH + 1))
    stop(disk, logs)
    disk.mend("/d2")
    assert started(disk).runs.start_epoch == NO_EPOCH


def test_a_directory_that_failed_is_not_trusted_even_in_the_same_boot() -> None:
    """The operating system may have dropped pages that it could not write."""
    disk = sim_disk()
    logs = started(disk)
    finished(logs.begin_run(EPOCH))
    logs.fail_directory(logs.directories[1], OSError("fsync failed"))
    disk.kill_process()
    assert started(disk).runs.start_epoch == NO_EPOCH


@pytest.mark.parametrize("end", [stop, kill])
def test_a_process_that_removed_complete_batches_is_not_forgotten_when_it_ends_at_once(
    end: Callable[[SimDisk, LogManager], None],
) -> None:
    """The next process finds a log without any damage, which ends earlier."""
    disk = sim_disk()
    logs = started(disk)
    finished(logs.begin_run(EPOCH))
    log = logs.get_or_create(TopicPartition("t", 0))
    for _ in range(3):
        append(log)
    path = log.segments.active.path
    end(disk, logs)
    disk.rot(path, 20, 0)
    if end is stop:
        disk.remove("/d1/.kafka_cleanshutdown")
    for _ in range(2):
        logs = started(disk)
        assert logs.get_or_create(TopicPartition("t", 0)).log_end_offset == 0
        assert logs.runs.start_epoch == NO_EPOCH
        disk.kill_process()


def test_a_directory_that_cannot_be_marked_goes_offline() -> None:
    disk = sim_disk()
    logs = started(disk)
    disk.fail("/d2", only_writes=True)
    finished(logs.begin_run(EPOCH))
    assert [directory.path for directory in logs.live_directories] == ["/d1"]


def test_marks_decode_as_encoded() -> None:
    assert decode_clean_mark(encode_clean_mark(EPOCH)) == EPOCH
    assert decode_run_mark(encode_run_mark(EPOCH, "one"), "one") == EPOCH


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"brokerEpoch":"x","start_epoch":"x","boot":"one"}', b"\xff"]
)
def test_marks_of_other_software_name_no_process(data: bytes) -> None:
    """Kafka before KIP-966, and Holdfast before this mark had content, wrote an empty one."""
    assert decode_clean_mark(data) == NO_EPOCH
    assert decode_run_mark(data, "one") == NO_EPOCH


@pytest.mark.parametrize("seed", range(10))
def test_a_new_log_directory_survives_a_power_loss(seed: int) -> None:
    disk = SimDisk(random.Random(seed), lambda: 0)
    disk.make_directory("/mnt")
    disk.fsync_directory("/")
    LogDirectory(disk, "/mnt/holdfast/logs").open()
    disk.lose_power()
    assert disk.is_directory("/mnt/holdfast/logs")
