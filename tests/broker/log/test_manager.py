"""The logs of a broker: several directories, starts and stops, directories that fail."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.checkpoints import MetaProperties, OffsetEntry
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.directory import IdentityError, LogDirectory, finished_steps
from holdfast_log.broker.log.disk import Disk, OsDisk
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.identity import claim, known_identity
from holdfast_log.broker.log.index_entries import offset_entries
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.mapped_offset import write_mapped_offset
from holdfast_log.broker.log.settings import LogSettings, topic_defaults
from holdfast_log.broker.log.truncation import advance_log_start, truncate_fully_and_start_at, truncate_to
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import timed_batch
from tests.models.disk import SimDisk, SimFile
from tests.models.logs import NOW_MS, append, append_as_leader, headers_of, make_rivals, sim_disk
from tests.models.workers import ImmediateWorkers

TOPIC_ID, OTHER_ID = uuid.UUID(int=77), uuid.UUID(int=78)
PATHS = ("/d1", "/d2", "/d3")
ONE_BATCH = {"log.segment.bytes": 120}
"""Settings with which every batch has a segment of its own."""


def partitions(count: int, topic: str = "flights") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


class Broker:
    """A manager on a test clock. Its workers run at once unless others are given."""

    def __init__(
        self,
        disk: Disk,
        paths: tuple[str, ...] = PATHS,
        workers: Any = None,
        open_files_max: int = 1024,
        **defaults: Any,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(NOW_MS / 1000)
        self.failed: list[str] = []
        self.workers = workers or ImmediateWorkers()
        self.logs = LogManager(
            paths,
            disk,
            self.workers,
            self.clock,
            self.date_ms,
            random.Random(1),
            Flusher(self.workers, self.clock),
            defaults=topic_defaults(defaults),
            open_files_max=open_files_max,
        )
        self.logs.add_failure_listener(self.failed.append)
        self.started = finished(self.logs.start()) if workers is None else []

    def date_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def log(self, partition: TopicPartition) -> Log:
        log = self.logs.find(partition)
        assert log is not None
        return log


class CountingDisk(SimDisk):
    """Counts the files that its users have open."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        super().__init__(rng, now_ms)
        self._opened: list[weakref.ref[SimFile]] = []

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        self._opened.append(weakref.ref(file))
        return file

    def open_count(self) -> int:
        self._opened = [ref for ref in self._opened if ref() is not None]
        return len(self._opened)


def finished(deferred: Deferred[Any]) -> list[Any]:
    outcomes: list[Any] = []
    deferred.addBoth(outcomes.append)
    assert len(outcomes) == 1 and not isinstance(getattr(outcomes[0], "value", None), Exception), outcomes
    return outcomes


def test_new_logs_are_spread_over_the_directories() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    for partition in partitions(7):
        broker.logs.get_or_create(partition, TOPIC_ID)
    assert [len(directory.logs) for directory in broker.logs.directories] == [3, 2, 2]
    assert disk.list("/d2") == ["flights-1", "flights-4"]
    assert broker.logs.get_or_create(TopicPartition("flights", 4), TOPIC_ID) is broker.log(
        TopicPartition("flights", 4)
    )


@pytest.mark.parametrize("stop", ["clean", "kill", "power"])
def test_a_restart_finds_all_logs(stop: str) -> None:
    disk = sim_disk()
    broker = Broker(disk)
    for partition in partitions(5):
        log = broker.logs.get_or_create(partition, TOPIC_ID)
        for _ in range(partition.partition + 1):
            append(log)
        advance_log_start(log, partition.partition // 2)
        flush_at_once(log)
    finished(broker.logs.checkpoints.write_offsets())
    finished(broker.logs.checkpoints.write_high_watermarks(dict.fromkeys(partitions(5), 1)))
    if stop == "clean":
        finished(broker.logs.close(dict.fromkeys(partitions(5), 1)))
        assert disk.exists("/d1/.kafka_cleanshutdown")
    elif stop == "kill":
        disk.kill_process()
    else:
        for path in PATHS:
            disk.fsync_directory(path)
        disk.lose_power()
    again = Broker(disk)
    assert [directory.is_clean for directory in again.logs.directories] == [stop == "clean"] * 3
    assert not disk.exists("/d1/.kafka_cleanshutdown")
    for partition in partitions(5):
        log = again.log(partition)
        assert (log.log_start_offset, log.log_end_offset) == (
            partition.partition // 2,
            partition.partition + 1,
        )
        assert len(headers_of(log)) == partition.partition + 1 - partition.partition // 2
        assert again.logs.high_watermark(partition) == 1
        assert log.recovery_point == partition.partition + 1
        if stop != "power":
            assert log.topic_id == TOPIC_ID


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_process_without_roles_keeps_the_high_watermarks_of_the_last_one(*, is_clean: bool) -> None:
    """It may stop before the controller has told it its roles, or after the controller has ended them."""
    disk = sim_disk()
    broker = Broker(disk)
    for partition in partitions(5):
        append(broker.logs.get_or_create(partition, TOPIC_ID))
    broker.logs.know_high_watermark(TopicPartition("flights", 0), 1)
    present = {partition: 1 for partition in partitions(5) if partition.partition > 0}
    finished(broker.logs.close(present))
    for _ in range(2):
        again = Broker(disk)
        finished(again.logs.checkpoints.write_high_watermarks({}))
        if is_clean:
            finished(again.logs.close({}))
        disk.kill_process()
    assert {again.logs.high_watermark(partition) for partition in partitions(5)} == {1}


def test_a_slow_write_of_high_watermarks_does_not_replace_a_later_one() -> None:
    """Worker threads may do the jobs in any order."""
    disk, workers = sim_disk(), ImmediateWorkers()
    broker = Broker(disk, ("/d1",), workers=workers)
    finished(broker.logs.start())
    partition = TopicPartition("flights", 0)
    append(broker.logs.get_or_create(partition, TOPIC_ID))
    workers.is_held = True
    first = broker.logs.checkpoints.write_high_watermarks({partition: 0})
    last = broker.logs.checkpoints.write_high_watermarks({partition: 1})
    while workers.jobs:
        workers.jobs.reverse()
        workers.work()
    assert first.called and last.called
    assert unsealed(disk, "replication") == b"0\n1\nflights 0 1\n"


def test_high_watermarks_that_are_noted_in_turns_do_not_follow_those_of_a_clean_stop() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    finished(broker.logs.start())
    partition = TopicPartition("flights", 0)
    append(broker.logs.get_or_create(partition, TOPIC_ID))
    begun: list[tuple[Any, Deferred[Any]]] = []

    def in_turns(steps: Any) -> Deferred[Any]:
        begun.append((steps, Deferred()))
        return begun[-1][1]

    noted = broker.logs.checkpoints.write_high_watermarks_in_turns(lambda: [{partition: 0}], in_turns)
    ended: list[str] = []
    closed = broker.logs.close({partition: 1})
    noted.addCallback(lambda _: ended.append("noted"))
    closed.addCallback(lambda _: ended.append("closed"))
    assert not ended
    ((steps, taken),) = begun
    taken.callback(finished_steps(steps))
    assert len(ended) == 2
    assert unsealed(disk, "replication") == b"0\n1\nflights 0 1\n"


def test_a_truncated_log_takes_no_append_until_a_checkpoint_has_its_new_recovery_point() -> None:
    """Recovery would not check what is appended before the old one."""
    disk, workers = sim_disk(), ImmediateWorkers()
    broker = Broker(disk, ("/d1",), workers=workers)
    finished(broker.logs.start())
    log = broker.logs.get_or_create(TopicPartition("flights", 0), TOPIC_ID)
    for _ in range(3):
        append(log)
    flush_at_once(log)
    finished(broker.logs.checkpoints.write_offsets())
    workers.is_held = True
    truncate_to(log, 1)
    with pytest.raises(BrokerError):
        append(log)
    assert unsealed(disk, "recovery-point") == b"0\n1\nflights 0 3\n"
    workers.release()
    assert unsealed(disk, "recovery-point") == b"0\n1\nflights 0 1\n"
    append(log)
    assert log.log_end_offset == 2


def checkpointed(disk: Disk, name: str) -> list[int]:
    """The offsets in a checkpoint of /d1."""
    return [
        entry.offset for entry in checkpoints.decode_offsets(disk.read(f"/d1/{name}-checkpoint")).values()
    ]


def test_a_log_that_recovery_cuts_short_has_its_lower_recovery_point_in_the_checkpoint() -> None:
    """A bit of a flushed batch has changed. What is appended where that batch was is not yet durable, but the
    process after the next power failure would believe it: it lies before the old recovery point. The entries
    of other logs stay, also that of a log that is missing: the broker may have lost it."""
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **ONE_BATCH)
    for partition in partitions(3):
        log = broker.logs.get_or_create(partition, TOPIC_ID)
        for _ in range(3):
            append(log)
        flush_at_once(log)
    finished(broker.logs.checkpoints.write_offsets())
    disk.lose_power()
    disk.rot("/d1/flights-0/00000000000000000002.log", 70, 1)
    disk.remove_directory("/d1/flights-2")

    again = Broker(disk, ("/d1",), **ONE_BATCH)
    log = again.log(TopicPartition("flights", 0))
    assert log.recovery_point == log.log_end_offset == 2
    assert checkpointed(disk, "recovery-point-offset") == [2, 3, 3]
    assert append(log) == 2


def test_a_log_that_recovery_cuts_short_is_compacted_again_from_its_end() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **ONE_BATCH)
    log = broker.logs.get_or_create(TopicPartition("flights", 0), TOPIC_ID)
    for _ in range(3):
        append(log)
    flush_at_once(log)
    log.cleaned_offset = 3
    finished(broker.logs.checkpoints.write_offsets())
    disk.lose_power()
    disk.rot("/d1/flights-0/00000000000000000002.log", 70, 1)
    Broker(disk, ("/d1",), **ONE_BATCH)
    assert checkpointed(disk, "cleaner-offset") == [2]


def created_again(disk: SimDisk, partition: TopicPartition, *, records: int) -> Broker:
    """A broker that has deleted a log of 9 records, of which the first 8 had been deleted, and has created
    it again for another topic. The checkpoints are those of the first log."""
    broker = Broker(disk, ("/d1",))
    log = broker.logs.get_or_create(partition, TOPIC_ID)
    for _ in range(9):
        append(log)
    flush_at_once(log)
    advance_log_start(log, 8)
    finished(broker.logs.checkpoints.write_offsets())
    finished(broker.logs.checkpoints.write_high_watermarks({partition: 9}))
    broker.logs.delete(partition)
    log = broker.logs.get_or_create(partition, OTHER_ID)
    for _ in range(records):
        append(log)
    return broker


@pytest.mark.parametrize("has_metadata", [True, False])
def test_checkpoints_of_a_deleted_topic_do_not_apply_to_the_one_that_was_created_again(
    has_metadata: bool,
) -> None:
    """Otherwise the new log would be emptied after a kill, because it ends before the old log's start."""
    disk, partition = sim_disk(), TopicPartition("flights", 0)
    created_again(disk, partition, records=2)
    if not has_metadata:
        disk.remove("/d1/flights-0/partition.metadata")

    disk.kill_process()
    again = Broker(disk, ("/d1",))

    log = again.log(partition)
    assert (log.log_start_offset, log.log_end_offset, len(headers_of(log))) == (0, 2, 2)
    assert not log.is_cut_short
    if has_metadata:
        assert again.logs.high_watermark(partition) == 0
        finished(again.logs.checkpoints.write_high_watermarks({partition: 1}))
        assert Broker(disk, ("/d1",)).logs.high_watermark(partition) == 1


def test_a_log_of_a_deleted_topic_is_not_missed_by_the_one_that_was_created_again() -> None:
    disk, partition = sim_disk(), TopicPartition("flights", 0)
    broker = created_again(disk, partition, records=0)
    broker.logs.delete(partition)

    disk.kill_process()
    logs = Broker(disk, ("/d1",)).logs

    assert not logs.may_have_lost(partition, OTHER_ID)
    assert logs.may_have_lost(partition, TOPIC_ID)
    assert logs.may_have_lost(partition, None)


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_file_operation_of_a_record_deletion_leaves_all_from_the_start_in_force(
    loses_power: bool,
) -> None:
    """The new start lies inside a segment, after three others. Without a checkpoint that has it, every
    record is still there."""
    partition = TopicPartition("flights", 0)
    for changes in range(100):
        disk = sim_disk(changes)
        log = Broker(disk, ("/d1",), **ONE_BATCH).logs.get_or_create(partition)
        for _ in range(6):
            append(log, NOW_MS, NOW_MS)
        flush_at_once(log)
        disk.write_back()
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8, 10]
        disk.strike(changes, lambda: None)

        with contextlib.suppress(BrokerError):
            advance_log_start(log, 7)

        is_struck = log.failure is not None
        disk.spare()
        disk.switch_on()
        disk.lose_power() if loses_power else disk.kill_process()
        again = Broker(disk, ("/d1",), **ONE_BATCH).log(partition)
        assert again.log_start_offset in ((0, 7) if is_struck else (7,))
        assert headers_of(again)[0].base_offset == (6 if again.log_start_offset else 0)
        assert again.log_end_offset == 12
        if not is_struck:
            break
    else:
        pytest.fail("the deletion takes more than 100 changes of files")
    assert changes > 6, "the machine ended between the checkpoint and the last rename"


def test_no_segment_is_removed_before_a_checkpoint_has_the_start_after_it() -> None:
    """A second deletion begins while the checkpoint of the first is being written."""
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **ONE_BATCH)
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    for _ in range(4):
        append(log, NOW_MS, NOW_MS)
    broker.workers.is_held = True

    advance_log_start(log, 3)
    advance_log_start(log, 7)

    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    broker.workers.work()
    assert [segment.base_offset for segment in log.segments] == [2, 4, 6]
    broker.workers.release()
    assert [segment.base_offset for segment in log.segments] == [6]


def test_a_log_knows_which_start_its_checkpoint_has() -> None:
    disk, at = sim_disk(), TopicPartition("flights", 0)
    broker = Broker(disk, ("/d1",))
    log, told = broker.logs.get_or_create(at), list[tuple[Log, int]]()
    broker.logs.checkpoints.add_start_listener(lambda log: told.append((log, log.durable_start_offset)))
    for _ in range(4):
        append(log, NOW_MS, NOW_MS)
    broker.workers.is_held = True

    advance_log_start(log, 3)
    advance_log_start(log, 7)
    assert (log.durable_start_offset, told) == (0, [])
    broker.workers.work()
    assert (log.durable_start_offset, told) == (3, [(log, 3)])
    later = sim_disk()
    later.restore(disk.snapshot())
    assert Broker(later, ("/d1",)).log(at).durable_start_offset == 3
    truncate_to(log, 2)
    assert (log.log_start_offset, log.durable_start_offset) == (2, 2)
    broker.workers.release()
    assert (log.durable_start_offset, told) == (2, [(log, 3)])

    truncate_fully_and_start_at(log, 9)
    assert (log.durable_start_offset, told) == (9, [(log, 3), (log, 9)])


def test_a_start_is_not_durable_while_no_checkpoint_can_be_written() -> None:
    disk, at = sim_disk(), TopicPartition("flights", 0)
    broker = Broker(disk, ("/d1",))
    log, told = broker.logs.get_or_create(at), list[Log]()
    broker.logs.checkpoints.add_start_listener(told.append)
    append(log, NOW_MS, NOW_MS)
    disk.fail("/d1", only_writes=True)
    advance_log_start(log, 1)
    assert (log.durable_start_offset, told, broker.failed) == (0, [], ["/d1"])


def unsealed(disk: Disk, name: str) -> bytes:
    """A checkpoint of /d1 without the blanks at its end."""
    return disk.read(f"/d1/{name}-offset-checkpoint").rstrip() + b"\n"


def test_the_checkpoints_are_in_kafkas_format() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    for partition in partitions(2):
        append(broker.logs.get_or_create(partition))
    append(broker.log(TopicPartition("flights", 1)))
    flush_at_once(broker.log(TopicPartition("flights", 0)))
    advance_log_start(broker.log(TopicPartition("flights", 1)), 1)
    finished(broker.logs.checkpoints.write_offsets())
    finished(
        broker.logs.checkpoints.write_high_watermarks(
            {TopicPartition("flights", 1): 2, TopicPartition("x", 0): 3}
        )
    )
    # flights-1 was never flushed, so a power loss may remove its directory. It is in no recovery-point
    # checkpoint, because the next start would then report it as missing.
    assert unsealed(disk, "recovery-point") == b"0\n1\nflights 0 1\n"
    assert unsealed(disk, "log-start") == b"0\n1\nflights 1 1\n"
    assert unsealed(disk, "replication") == b"0\n1\nflights 1 2\n"
    claim(broker.logs.live_directories, MetaProperties(4, "abc"))
    assert disk.read("/d1/meta.properties") == b"#\nbroker.id=4\nversion=0\ncluster.id=abc\n"


def test_a_restart_knows_up_to_where_a_log_was_compacted_and_a_new_topic_begins_uncompacted() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), cleanup_policy=("compact",))
    flights = TopicPartition("flights", 0)
    log = broker.logs.get_or_create(flights)
    for _ in range(3):
        append(log)
    flush_at_once(log)
    log.cleaned_offset = 2
    finished(broker.logs.checkpoints.write_offsets())
    assert unsealed(disk, "cleaner") == b"0\n1\nflights 0 2\n"

    disk.kill_process()
    again = Broker(disk, ("/d1",), cleanup_policy=("compact",))
    log = again.log(flights)
    assert log.cleaned_offset == 2
    log.lower_cleaned_offset(1)
    assert unsealed(disk, "cleaner") == b"0\n1\nflights 0 1\n"
    again.logs.delete(flights)
    assert again.logs.get_or_create(flights).cleaned_offset == 0
    finished(again.logs.checkpoints.write_offsets())
    assert unsealed(disk, "cleaner") == b"0\n0\n"


def test_a_log_that_was_compacted_once_may_keep_its_gaps_under_another_policy() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    broker.logs.settings.set_topic("flights", {"cleanup.policy": ("compact",)})
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    for _ in range(3):
        append(log)
        log.roll(NOW_MS)
    log.cleaned_offset = 2
    broker.logs.settings.set_topic("flights", {"cleanup.policy": ("delete",)})
    assert [segment.is_dense for segment in log.segments] == [False, False, True, True]


def test_damaged_checkpoints_are_ignored() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    append(broker.logs.get_or_create(TopicPartition("flights", 0)))
    disk.kill_process()
    for name in ("recovery-point", "replication", "log-start"):
        disk.write_atomically(f"/d1/{name}-offset-checkpoint", b"0\n5\nflights 0 1\n")
    again = Broker(disk)
    assert again.log(TopicPartition("flights", 0)).log_end_offset == 1
    assert again.logs.high_watermark(TopicPartition("flights", 0)) == 0


def test_directories_belong_to_one_broker_of_one_cluster() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    assert known_identity(broker.logs.live_directories) is None
    claim(broker.logs.live_directories, MetaProperties(1, "cluster"))
    again = Broker(disk, (*PATHS, "/d4"))
    assert known_identity(again.logs.live_directories) == MetaProperties(1, "cluster")
    claim(again.logs.live_directories, MetaProperties(1, "cluster"))
    assert disk.exists("/d4/meta.properties")
    for meta in (MetaProperties(2, "cluster"), MetaProperties(1, "other")):
        with pytest.raises(IdentityError):
            claim(again.logs.live_directories, meta)
    for strange, why in (
        (b"broken", "cannot be read"),
        (b"broker.id=1\nversion=x\n", "cannot be read"),
        (b"version=1\nnode.id=1\ncluster.id=cluster\n", "cannot be read"),
        (b"broker.id=1\nversion=1\n", "is of version 1, and .* up to 0: a later version"),
    ):
        disk.write_atomically("/d2/meta.properties", strange)
        with pytest.raises(IdentityError, match=r"/d2/meta\.properties " + why):
            known_identity(Broker(disk).logs.live_directories)
    disk.write_atomically("/d2/meta.properties", b"broker.id=9\nversion=0\n")
    with pytest.raises(IdentityError):
        known_identity(Broker(disk).logs.live_directories)


def test_code_of_before_refuses_a_directory_of_a_later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of its marks: whoever removes one of them still does not start."""
    disk = sim_disk()
    broker = Broker(disk)
    monkeypatch.setattr(checkpoints, "DIRECTORY_VERSION", 7)
    claim(broker.logs.live_directories, MetaProperties(1, "cluster"))
    (first, *_) = broker.logs.live_directories
    disk.write_atomically("/d1/.holdfast-directory", checkpoints.encode_directory_id("an-id"))
    assert (first.identity(), first.directory_id()) == (MetaProperties(1, "cluster"), "an-id")
    monkeypatch.undo()
    for read in (first.identity, first.directory_id):
        with pytest.raises(IdentityError, match=r"is of version 7, .* Start that one"):
            read()


def test_a_failed_directory_takes_only_its_own_logs_offline() -> None:
    disk = sim_disk()
    broker = Broker(disk)
    for partition in partitions(6):
        append(broker.logs.get_or_create(partition))
    disk.fail("/d2", only_writes=True)
    with pytest.raises(BrokerError) as raised:
        append(broker.log(TopicPartition("flights", 1)))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failed == ["/d2"]
    assert broker.logs.find(TopicPartition("flights", 4)) is None
    assert append(broker.log(TopicPartition("flights", 0))) == 1
    # An existing replica may be in the unreadable directory, so it must not be created again.
    with pytest.raises(BrokerError):
        broker.logs.get_or_create(TopicPartition("flights", 4), is_new=False)
    broker.logs.get_or_create(TopicPartition("fresh", 0), is_new=True)
    finished(broker.logs.close({}))
    assert disk.exists("/d1/.kafka_cleanshutdown") and not disk.exists("/d2/.kafka_cleanshutdown")


def test_a_missing_directory_is_not_created_again(tmp_path: Path) -> None:
    """Its disk may be unmounted, so its partitions must not be created as new."""
    paths = tuple(str(tmp_path / name) for name in ("one", "two"))
    broker = Broker(OsDisk(), paths)
    shutil.rmtree(paths[0])
    with pytest.raises(BrokerError) as caught:
        for partition in partitions(2):
            broker.logs.get_or_create(partition)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failed == [paths[0]]
    assert not Path(paths[0]).exists()


def test_a_directory_that_cannot_be_read_at_the_start_is_offline() -> None:
    disk = sim_disk()
    finished(Broker(disk).logs.close({}))
    disk.fail("/d3")
    broker = Broker(disk)
    assert broker.failed == ["/d3"]
    assert len(broker.logs.live_directories) == 2


def test_a_deletion_removes_the_partition_at_once_and_its_files_later() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    log = broker.logs.get_or_create(TopicPartition("flights", 0), TOPIC_ID)
    append(log)
    broker.logs.delete(TopicPartition("flights", 0))
    assert broker.logs.find(TopicPartition("flights", 0)) is None
    (name,) = disk.list("/d1")
    assert name.startswith("flights-0.") and name.endswith("-delete")
    with pytest.raises(BrokerError):
        append(log)
    assert broker.failed == []
    again = broker.logs.get_or_create(TopicPartition("flights", 0), uuid.UUID(int=78))
    assert again.log_end_offset == 0
    broker.clock.advance(61)
    assert disk.list("/d1") == ["flights-0"]


def test_directories_deleted_before_the_stop_are_removed_at_the_start() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    append(broker.logs.get_or_create(TopicPartition("flights", 0)))
    broker.logs.delete(TopicPartition("flights", 0))
    Broker(disk, ("/d1",))
    assert disk.list("/d1") == []


def test_a_recreated_topic_does_not_get_the_old_data() -> None:
    broker = Broker(sim_disk())
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    assert log.topic_id is None
    assert broker.logs.get_or_create(TopicPartition("flights", 0), TOPIC_ID).topic_id == TOPIC_ID
    with pytest.raises(BrokerError) as raised:
        broker.logs.get_or_create(TopicPartition("flights", 0), uuid.UUID(int=78))
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_changed_topic_settings_apply_to_its_logs_at_once() -> None:
    broker = Broker(sim_disk(), **{"message.max.bytes": 500})
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    other = broker.logs.get_or_create(TopicPartition("other", 0))
    assert log.settings.max_message_bytes == 500
    broker.logs.settings.set_topic("flights", {"max.message.bytes": "60"})
    with pytest.raises(BrokerError) as raised:
        append(log)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    append(other)
    broker.logs.settings.set_topic("flights", {})
    append(log)


def test_changed_defaults_apply_at_once_to_settings_that_topics_do_not_override() -> None:
    broker = Broker(sim_disk())
    broker.logs.settings.set_topic("own", {"retention.ms": "7"})
    broker.logs.settings.set_topic("stubborn", {"min.compaction.lag.ms": "50"})
    own, none, stubborn = (
        broker.logs.get_or_create(TopicPartition(topic, 0)) for topic in ("own", "none", "stubborn")
    )
    broker.logs.settings.set_defaults(
        topic_defaults({"log.retention.ms": 9, "log.cleaner.max.compaction.lag.ms": 20})
    )
    assert (own.settings.retention_ms, own.settings.max_compaction_lag_ms) == (7, 20)
    assert (none.settings.retention_ms, none.settings.max_compaction_lag_ms) == (9, 20)
    # The topic's minimum compaction lag would exceed the new maximum, so its old settings stay.
    assert stubborn.settings.retention_ms == LogSettings().retention_ms
    assert broker.logs.get_or_create(TopicPartition("new", 0)).settings.retention_ms == 9
    another = broker.logs.get_or_create(TopicPartition("stubborn", 1))
    assert another.settings.min_compaction_lag_ms == 50


def flush_for(broker: Broker, seconds: int) -> None:
    """Flush the due logs once a second for this many seconds."""
    for _ in range(seconds):
        broker.clock.advance(1)
        broker.logs.flush_due()


def test_logs_of_topics_with_a_flush_interval_are_flushed_by_age() -> None:
    broker = Broker(sim_disk())
    broker.logs.settings.set_topic("flights", {"flush.ms": "5000"})
    flushed = broker.logs.get_or_create(TopicPartition("flights", 0))
    left = broker.logs.get_or_create(TopicPartition("other", 0))
    for round_number in range(1, 3):
        append(flushed)
        append(left)
        flush_for(broker, 4)
        assert flushed.recovery_point == round_number - 1
        flush_for(broker, 1)
        assert (flushed.recovery_point, left.recovery_point) == (round_number, 0)


def test_the_index_of_the_active_segment_is_on_disk_while_the_broker_runs() -> None:
    """Tools read it: without entries a check of it would check nothing."""
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **{"log.index.interval.bytes": 0})
    log, gone = (broker.logs.get_or_create(partition) for partition in partitions(2))
    for _ in range(3):
        append(log)
        append(gone)
    index, times = (log.segments.active.path_of(suffix) for suffix in (".index", ".timeindex"))
    assert disk.size(index) == disk.size(times) == 0, "an append costs no write of an index"
    broker.logs.delete(gone.topic_partition)
    broker.logs.flush_due()
    assert list(offset_entries(disk.read(index))) == log.segments.active.indexes.offsets.pairs()
    assert disk.size(index) == 2 * 8
    assert disk.size(times) == 12
    append(log)
    broker.logs.flush_due()
    assert disk.size(index) == 3 * 8


def test_a_failed_write_of_an_index_takes_the_directory_offline() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **{"log.index.interval.bytes": 0})
    (partition,) = partitions(1)
    log = broker.logs.get_or_create(partition)
    append(log)
    append(log)
    disk.fail("/d1", only_writes=True)
    broker.logs.flush_due()
    assert log.failure is not None
    assert broker.logs.live_directories == []


def test_a_flush_interval_covers_earlier_records_and_ends_when_removed() -> None:
    broker = Broker(sim_disk())
    first, second = (broker.logs.get_or_create(TopicPartition("flights", number)) for number in range(2))
    append(first)
    broker.logs.settings.set_topic("flights", {"flush.ms": "5000"})
    append(second)
    flush_for(broker, 5)
    assert (first.recovery_point, second.recovery_point) == (1, 1)
    append(first)
    broker.logs.settings.set_topic("flights", {})
    flush_for(broker, 10)
    assert first.recovery_point == 1


def test_records_not_durable_at_the_last_stop_are_flushed_by_age() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), **{"log.flush.interval.ms": 5000})
    append(broker.logs.get_or_create(TopicPartition("flights", 0)))
    disk.kill_process()
    again = Broker(disk, ("/d1",), **{"log.flush.interval.ms": 5000})
    log = again.log(TopicPartition("flights", 0))
    log.recovery_point = 0
    again.logs.settings.set_topic("flights", {})
    flush_for(again, 5)
    assert log.recovery_point == 1


def test_a_log_restarted_behind_its_recovery_point_is_flushed_by_age() -> None:
    broker = Broker(sim_disk(), **{"log.flush.interval.ms": 5000})
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    truncate_fully_and_start_at(log, 100)
    append(log)
    flush_for(broker, 5)
    assert log.recovery_point == 101


def test_deleted_logs_are_not_flushed_by_age() -> None:
    disk = sim_disk()
    broker = Broker(disk, **{"log.flush.interval.ms": 5000})
    for partition in partitions(3):
        append(broker.logs.get_or_create(partition))
    broker.logs.delete(TopicPartition("flights", 0))
    disk.fail("/d2", only_writes=True)
    with pytest.raises(BrokerError):
        append(broker.log(TopicPartition("flights", 1)))
    flush_for(broker, 5)
    assert broker.log(TopicPartition("flights", 2)).recovery_point == 1
    assert broker.failed == ["/d2"]


def test_silent_producers_are_forgotten_after_the_expiration_time() -> None:
    broker = Broker(sim_disk())
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    # The records have old timestamps; the expiration counts from the write.
    append_as_leader(log, timed_batch(1, producer_id=1, epoch=0, sequence=0), 0, now_ms=broker.date_ms())
    for hours, left in ((23, 1), (2, 0)):
        broker.clock.advance(hours * 3600)
        broker.logs.expire_producers()
        assert len(log.producers) == left


NEWER_ID = uuid.UUID(int=78)


@pytest.mark.parametrize("older_epoch", [0, 9])
def test_moving_aside_one_of_two_logs_of_one_name_puts_the_other_in_use(older_epoch: int) -> None:
    partition = TopicPartition("flights", 0)
    disk = sim_disk()
    make_rivals(disk, TOPIC_ID, NEWER_ID, partition, older_epoch)
    broker = Broker(disk, ("/d1", "/d2"))
    assert broker.log(partition).topic_id == TOPIC_ID
    assert [log.directory for log in broker.logs] == ["/d1/flights-0"]
    path = broker.logs.move_aside(partition)
    assert path.startswith("/d1/flights-0.") and path.endswith("-stray")
    log = broker.log(partition)
    assert (log.topic_id, log.directory, log.log_end_offset) == (NEWER_ID, "/d2/flights-0", 1)
    assert broker.logs.get_or_create(partition, NEWER_ID) is log
    append(log)
    finished(broker.logs.close({}))


def test_the_unused_of_two_logs_of_one_name_is_unchanged_after_a_stop() -> None:
    disk = sim_disk()
    make_rivals(disk, TOPIC_ID, NEWER_ID, TopicPartition("flights", 0))
    broker = Broker(disk, ("/d1", "/d2"))
    finished(broker.logs.close({}))
    again = Broker(disk, ("/d2", "/d1"))
    assert again.log(TopicPartition("flights", 0)).topic_id == TOPIC_ID
    assert again.logs.move_aside(TopicPartition("flights", 0))
    assert again.log(TopicPartition("flights", 0)).log_end_offset == 1


def test_a_truncation_below_the_recovery_point_is_checkpointed_first() -> None:
    disk = sim_disk()
    workers = ImmediateWorkers(is_held=True)
    broker = Broker(disk, ("/d1",), workers)
    started = broker.logs.start()
    while workers.jobs:
        workers.work()
    finished(started)
    log = broker.logs.get_or_create(TopicPartition("flights", 0))
    for _ in range(3):
        append(log)
    flush_at_once(log)
    written = broker.logs.checkpoints.write_offsets()
    truncate_to(log, 1)
    # An earlier write of the checkpoint is still running and has the old recovery point, so the log must not
    # grow.
    workers.work()
    finished(written)
    assert unsealed(disk, "recovery-point") == b"0\n1\nflights 0 3\n"
    for grow in (append, lambda log: append_as_follower(log, timed_batch(), now_ms=NOW_MS)):
        with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
            grow(log)
    workers.work()
    assert unsealed(disk, "recovery-point") == b"0\n1\nflights 0 1\n"
    assert append(log) == 1
    assert not workers.jobs


def test_truncations_of_many_logs_share_their_checkpoint() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    workers = broker.workers
    logs = [broker.logs.get_or_create(partition) for partition in partitions(50)]
    for log in logs:
        append(log)
        append(log)
        flush_at_once(log)
    workers.is_held = True
    for log in logs:
        truncate_to(log, 1)
    assert len(workers.jobs) == 1, "no write on the reactor"
    workers.work()
    assert len(workers.jobs) == 1
    workers.work()
    assert not workers.jobs
    assert [append(log) for log in logs] == [1] * 50


def test_a_broker_formats_only_the_checkpointed_offsets_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    logs = [broker.logs.get_or_create(partition) for partition in partitions(50)]
    formatted: list[str] = []

    def counted(partition: TopicPartition, entry: OffsetEntry) -> str:
        formatted.append(f"{partition} {entry.offset}")
        return f"{partition.topic} {partition.partition} {entry.offset}"

    high_watermarks = dict.fromkeys(partitions(50), 0)
    finished(broker.logs.checkpoints.write_high_watermarks(high_watermarks))
    finished(broker.logs.checkpoints.write_offsets())
    monkeypatch.setattr(checkpoints, "offset_line", counted)
    for changed, expected in ((7, 2), (None, 0), (8, 2)):
        if changed is not None:
            append(logs[changed])
            flush_at_once(logs[changed])
            high_watermarks[partitions(50)[changed]] = 1
        formatted.clear()
        finished(broker.logs.checkpoints.write_high_watermarks(high_watermarks))
        finished(broker.logs.checkpoints.write_offsets())
        assert len(formatted) == expected
    assert b"\nflights 7 1\n" in disk.read("/d1/recovery-point-offset-checkpoint")


def test_more_logs_than_open_files_are_written_flushed_and_read() -> None:
    disk = CountingDisk(random.Random(0), lambda: NOW_MS)
    broker = Broker(disk, ("/d1",), open_files_max=16)
    logs = [broker.logs.get_or_create(partition) for partition in partitions(60)]
    for round_ in range(3):
        for log in logs:
            assert append(log) == round_
            assert disk.open_count() <= 20
    for log in logs:
        assert len(headers_of(log)) == 3
    finished(broker.logs.close({}))
    again = Broker(disk, ("/d1",), open_files_max=16)
    assert [log.log_end_offset for log in again.logs] == [3] * 60
    assert disk.open_count() <= 20


def test_responses_in_flight_do_not_use_up_all_descriptors() -> None:
    disk = CountingDisk(random.Random(0), lambda: NOW_MS)
    broker = Broker(disk, ("/d1",), open_files_max=12)
    logs = [broker.logs.get_or_create(partition) for partition in partitions(40)]
    for log in logs:
        append(log)
    refused: list[Log] = []
    errors: list[BrokerError] = []

    def respond() -> None:
        being_sent = []
        for log in logs:
            try:
                being_sent.append(log.read(0, 1000, upper_offset=1).slice)
            except BrokerError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                refused.append(log)
                errors.append(error.with_traceback(None))
        assert len(being_sent) >= 4
        # Writes do not depend on how fast consumers read.
        assert [append(log) for log in logs] == [1] * 40
        assert disk.open_count() <= 24

    respond()
    assert broker.failed == []
    # An error that a caller keeps does not keep a file open.
    assert disk.open_count() <= 12
    assert [len(headers_of(log)) for log in refused] == [2] * len(refused)


def test_a_file_is_synced_before_it_closes_and_its_error_takes_the_directory_offline() -> None:
    """The workers are busy, so that no flush runs before the file is closed."""
    disk = sim_disk()
    broker = Broker(disk, ("/d1",), open_files_max=6)
    logs = [broker.logs.get_or_create(partition) for partition in partitions(6)]
    broker.workers.is_held = True
    append(logs[0])
    answers: list[Any] = []
    broker.logs.flusher.durable(logs[0], 1).addBoth(answers.append)
    for log in logs[1:4]:
        append(log)
    disk.fail("/d1/flights-0", only_writes=True)
    append(logs[4])
    disk.mend("/d1/flights-0")
    # The system reports the error once, to the sync before the close: the later flush succeeds.
    broker.workers.release()
    assert answers[0].value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failed == ["/d1"]


def test_logs_load_in_parallel_on_real_threads(tmp_path: Path) -> None:
    """Loading logs in parallel gives the same result as loading them one by one."""
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    broker = Broker(OsDisk(), paths)
    for partition in partitions(30):
        log = broker.logs.get_or_create(partition, TOPIC_ID)
        for _ in range(partition.partition):
            append(log)
        log.release()
    results: dict[TopicPartition, int] = {}

    def load(numbers: range) -> None:
        for number in numbers:
            directory = broker.logs.directories[number % 2]
            request = broker.logs._request(directory, TopicPartition("flights", number))
            from holdfast_log.broker.log.recovery import load_log

            log = load_log(OsDisk(), request)
            results[log.topic_partition] = log.log_end_offset
            log.release()

    threads = [threading.Thread(target=load, args=(range(lane, 30, 4),)) for lane in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {partition: partition.partition for partition in partitions(30)}


def test_default_settings_are_those_of_the_settings_table() -> None:
    assert LogSettings.of({}) == LogSettings()
    assert LogSettings.of({}, topic_defaults({})) == LogSettings()


@pytest.mark.parametrize("leaves", ["delete", "move aside", "with the last process"])
def test_a_partition_that_returns_grows_only_once_no_checkpoint_has_its_old_recovery_point(
    leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery would not check the records before that point. The topic may be the same, so the tags of the
    entries do not tell the two logs apart."""
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    partition = TopicPartition("flights", 0)
    log = broker.logs.get_or_create(partition, TOPIC_ID)
    for _ in range(3):
        append(log)
    flush_at_once(log)
    finished(broker.logs.checkpoints.write_offsets())
    written: list[Deferred[None]] = []
    write_offsets_of = broker.logs.checkpoints.write_offsets_of

    def hold(directory: LogDirectory) -> Deferred[None]:
        written.append(Deferred())
        return written[-1].addCallback(lambda _: write_offsets_of(directory))

    if leaves == "with the last process":
        disk.kill_process()
        disk.remove_directory("/d1/flights-0")
        broker = Broker(disk, ("/d1",))
        write_offsets_of = broker.logs.checkpoints.write_offsets_of
    monkeypatch.setattr(broker.logs.checkpoints, "write_offsets_of", hold)
    if leaves == "delete":
        broker.logs.delete(partition)
    elif leaves == "move aside":
        broker.logs.move_aside(partition)
    log = broker.logs.get_or_create(partition, TOPIC_ID)
    assert log.settling
    with pytest.raises(BrokerError) as refused:
        append(log)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for each in written:
        each.callback(None)
    assert append(log) == 0
    assert partition not in checkpoints.decode_offsets(disk.read(f"/d1/{names.RECOVERY_POINTS}"))
    assert not broker.logs.directories[0].departed


def test_an_emptied_log_forgets_how_far_compaction_has_looked_before_it_grows() -> None:
    disk = sim_disk()
    broker = Broker(disk, ("/d1",))
    partition = TopicPartition("flights", 0)
    log = broker.logs.get_or_create(partition, TOPIC_ID)
    for _ in range(3):
        append(log)
    flush_at_once(log)
    write_mapped_offset(disk, log.directory, 3)
    disk.kill_process()
    broker = Broker(disk, ("/d1",))
    log = broker.log(partition)
    assert log.mapped_offset == 3
    truncate_to(log, 1)
    assert log.mapped_offset == 3
    truncate_fully_and_start_at(log, 0)
    assert log.mapped_offset == 0
    assert append(log) == 0
    disk.kill_process()
    assert Broker(disk, ("/d1",)).log(partition).mapped_offset == 0
