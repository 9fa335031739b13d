"""A replica moves to another log directory of its broker, while it is in use and whatever fails meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.log import names
from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.broker.replication.copy_pace import CopyPace
from holdfast_log.broker.replication.log_moves import LogMoves
from holdfast_log.broker.replication.metrics import MOVE_METRICS
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.log.test_manager import Broker
from tests.broker.replication.replica_logs import TOPIC_ID
from tests.models.disk import SimDisk
from tests.models.logs import append, headers_of, sim_disk
from tests.models.workers import ImmediateWorkers

AT = TopicPartition("t", 0)
PATHS = ("/d1", "/d2")
SETTINGS = {"log.segment.bytes": 1_000, "log.index.interval.bytes": 100}
BATCHES = 40
ASSIGNED = LeaderAndIsr(1, 5, (1,), 5, (1,))
FOLLOWS = LeaderAndIsr(2, 6, (1, 2), 6, (1, 2))


class OneReplica:
    """The one replica of a broker."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.woken = 0

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partition if (topic, index) == self.partition.key else None

    def wake_all(self, partition: Partition) -> None:
        self.woken += 1


class Scene:
    """A broker with two directories. Its replica, a leader, has its log in the first, or in the second if it
    moves `is_back`. Workers work when the test says so."""

    def __init__(self, disk: SimDisk | None = None, *, is_back: bool = False, **config: Any) -> None:
        self.disk = disk or new_disk()
        self.broker = Broker(self.disk, PATHS, **{**SETTINGS, **config})
        self.logs = self.broker.logs
        self.first, self.second = self.logs.directories[::-1] if is_back else self.logs.directories
        self.workers: ImmediateWorkers = self.broker.workers
        if self.logs.find(AT) is None:
            self.logs.choices.choose(AT, self.first)
        log = self.logs.get_or_create(AT, TOPIC_ID)
        self.partition = Partition("t", 0, TOPIC_ID, 1, log)
        self.partition.restore_high_watermark(self.logs.high_watermark(AT))
        self.partition.lead(ASSIGNED, 0)
        self.replicas = OneReplica(self.partition)
        self.pace = CopyPace(self.broker.clock)
        self.moves = LogMoves(
            self.logs,
            self.replicas,  # type: ignore[arg-type]
            self.workers,
            self.broker.clock,
            self.broker.date_ms,
            lambda: uuid.UUID(int=7),
            self.pace,
        )
        self.workers.is_held = True

    @property
    def log(self) -> Log:
        log = self.logs.find(AT)
        assert log is not None
        assert self.partition.log is log
        return log

    @property
    def place(self) -> str:
        return self.log.directory

    def fill(self, count: int = BATCHES) -> None:
        for _ in range(count):
            append(self.partition.log)
        flush_at_once(self.partition.log)
        self.partition.high_watermark = self.partition.log.log_end_offset

    def work(self, between: Callable[[], None] = lambda: None, *, jobs_max: int = 10_000) -> int:
        """Have the workers work until nothing is left to do. Returns the number of jobs."""
        for done in range(jobs_max):
            if not self.workers.jobs:
                return done
            between()
            self.workers.work()
        return jobs_max

    def begin(self) -> None:
        self.moves.begin(AT, self.second)

    def move(self, between: Callable[[], None] = lambda: None) -> None:
        self.begin()
        self.work(between)

    def files(self, directory: LogDirectory) -> list[str]:
        """The logs in a directory, without those that are about to be removed."""
        found = [name for name in self.disk.list(directory.path) if name.startswith("t-0")]
        return [name for name in found if not names.is_deleted_directory(name)]


def new_disk(seed: int = 0) -> SimDisk:
    disk = sim_disk(seed)
    for path in PATHS:
        disk.make_directory(path)
    disk.fsync_directory("/")
    return disk


def filled(**config: Any) -> Scene:
    scene = Scene(**config)
    scene.fill()
    assert len(scene.log.segments) > 3
    return scene


def batches(log: Log) -> list[int]:
    return [header.base_offset for header in headers_of(log)]


def test_a_log_moves_with_all_that_it_has() -> None:
    scene = filled()
    log, had = scene.log, batches(scene.log)
    advance_log_start(log, 6)
    high_watermark = scene.partition.high_watermark
    scene.move()
    assert scene.place == "/d2/t-0"
    assert batches(scene.log) == [each for each in had if each >= 6]
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (6, log.log_end_offset)
    assert (scene.log.topic_id, scene.log.epochs.entries) == (TOPIC_ID, log.epochs.entries)
    assert scene.log.recovery_point == scene.log.log_end_offset
    assert scene.partition.high_watermark == high_watermark
    assert list(scene.moves) == []
    assert log.failure is not None
    assert scene.replicas.woken == 1
    scene.fill()
    assert len(batches(scene.log)) == len(had) + BATCHES - had.index(6)


def test_nothing_is_left_in_the_old_directory() -> None:
    scene = filled(**{"log.segment.delete.delay.ms": 1_000})
    scene.move()
    scene.broker.clock.advance(3_600)
    scene.work()
    assert not any(name.startswith("t-0") for name in scene.disk.list("/d1"))
    assert [name for name in scene.disk.list("/d2") if name.startswith("t-0")] == ["t-0"]
    assert not scene.disk.exists(f"/d2/t-0/{names.MOVE_UNFINISHED}")


def test_what_is_appended_meanwhile_moves_too() -> None:
    scene = filled()
    refused, written = 0, batches(scene.log)

    def write() -> None:
        nonlocal refused
        try:
            scene.log.check_may_grow()
        except BrokerError as error:
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            refused += 1
        else:
            written.append(scene.log.log_end_offset)
            append(scene.log)

    before = scene.log.log_end_offset
    scene.move(write)
    assert scene.place == "/d2/t-0"
    assert scene.log.log_end_offset > before
    assert batches(scene.log) == written
    assert refused > 0  # for a moment at the end
    scene.log.check_may_grow()


def test_a_move_is_shown_with_its_lag() -> None:
    scene = filled()
    scene.begin()
    (move,) = scene.moves
    assert (move.target, move.copied_bytes) == (scene.second, 0)
    assert move.offset_lag == scene.log.log_end_offset
    lags = [move.offset_lag]
    scene.work(lambda: lags.append(move.offset_lag))
    assert lags == sorted(lags, reverse=True)
    assert lags[-1] == 0


def test_a_second_request_changes_nothing_and_another_directory_replaces_the_first() -> None:
    scene = filled()
    scene.begin()
    (move,) = scene.moves
    scene.begin()
    assert list(scene.moves) == [move]
    scene.moves.begin(AT, scene.first)
    scene.moves.cancel(AT)
    scene.work()
    assert scene.place == "/d1/t-0"
    assert scene.files(scene.second) == []


def steps() -> int:
    """How many jobs a whole move takes."""
    scene = filled()
    scene.begin()
    return scene.work()


STEPS = steps()


@pytest.mark.parametrize("done", range(STEPS + 1))
def test_a_move_that_is_cancelled_leaves_nothing(done: int) -> None:
    scene = filled()
    scene.begin()
    scene.work(jobs_max=done)
    is_moved = scene.place == "/d2/t-0"
    scene.moves.cancel(AT)
    scene.work()
    assert scene.place == ("/d2/t-0" if is_moved else "/d1/t-0")
    assert scene.files(scene.second) == (["t-0"] if is_moved else [])
    assert list(scene.moves) == []
    scene.log.check_may_grow()
    scene.fill(1)
    assert len(batches(scene.log)) == BATCHES + 1


def interrupted() -> Scene:
    """A broker that has begun again in the middle of a move, and has no role yet."""
    scene = filled()
    scene.begin()
    scene.work(jobs_max=STEPS // 2)
    assert scene.place == "/d1/t-0"
    scene.disk.kill_process()
    return Scene(scene.disk)


def test_a_move_that_is_cancelled_before_it_goes_on_after_a_restart_does_not() -> None:
    scene = interrupted()
    scene.moves.cancel(AT)
    scene.moves.role_changed(scene.partition)
    scene.work()
    assert scene.place == "/d1/t-0" and list(scene.moves) == []


def test_a_new_topic_does_not_move_since_the_last_one_of_its_name_did() -> None:
    scene = interrupted()
    scene.logs.delete(AT)
    scene.logs.choices.choose(AT, scene.first)
    log = scene.logs.get_or_create(AT, uuid.UUID(int=8))
    partition = Partition("t", 0, uuid.UUID(int=8), 1, log)
    scene.moves.role_changed(partition)
    scene.work()
    assert log.directory == "/d1/t-0" and list(scene.moves) == []


@pytest.mark.parametrize("end", ["kill", "power"])
@pytest.mark.parametrize("done", range(STEPS + 1))
def test_a_crash_at_any_step_leaves_one_whole_log_and_the_move_goes_on(done: int, end: str) -> None:
    scene = filled()
    had = batches(scene.log)
    finished_high_watermarks = scene.logs.checkpoints.write_high_watermarks({AT: len(had)})
    scene.work()
    assert finished_high_watermarks.called
    scene.begin()
    scene.work(jobs_max=done)
    was_moved = scene.place == "/d2/t-0"
    if end == "kill":
        scene.disk.kill_process()
    else:
        scene.disk.lose_power()
    again = Scene(scene.disk)
    assert batches(again.log) == had
    assert again.logs.high_watermark(AT) == len(had)
    assert scene.files(scene.second) == (["t-0"] if again.place == "/d2/t-0" else [])
    if was_moved and end == "kill":
        assert again.place == "/d2/t-0"
    again.moves.role_changed(again.partition)
    again.work()
    again.broker.clock.advance(3_600)
    again.work()
    is_begun = done > 0
    assert again.place == ("/d2/t-0" if is_begun else "/d1/t-0")
    assert batches(again.log) == had
    assert scene.files(scene.first) == ([] if is_begun else ["t-0"])
    assert not scene.disk.exists(f"/d2/t-0/{names.MOVE_UNFINISHED}")
    again.fill(1)


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("done", range(STEPS + 1))
def test_a_stop_in_order_at_any_step_closes_both_directories_cleanly(done: int, is_back: bool) -> None:
    """A copy that is not used is no log that has to be closed: its files are about to go."""
    scene = filled(is_back=is_back)
    had = batches(scene.log)
    scene.begin()
    scene.work(jobs_max=done)
    scene.moves.stop()
    scene.logs.close({AT: len(had)})
    # The workers come to what the move leaves before they close the logs.
    scene.work(jobs_max=1)
    while jobs := scene.workers.jobs:
        jobs.insert(0, jobs.pop())
        scene.workers.work()
    scene.disk.kill_process()
    assert [scene.disk.exists(f"{path}/{names.CLEAN_SHUTDOWN}") for path in PATHS] == [True, True]
    again = Scene(scene.disk)
    assert batches(again.log) == had
    assert again.logs.high_watermark(AT) == len(had)


@pytest.mark.parametrize("done", range(STEPS + 1))
def test_a_crash_after_the_move_loses_nothing_that_was_written_since(done: int) -> None:
    """Whatever of the move a power failure undoes, an append that was made durable is there."""
    scene = filled()
    scene.begin()
    scene.work(jobs_max=done)
    try:
        scene.log.check_may_grow()
        append(scene.log)
        flush_at_once(scene.log)
    except BrokerError as error:
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    had = batches(scene.log)
    scene.disk.lose_power()
    assert batches(Scene(scene.disk).log) == had


@pytest.mark.parametrize("done", range(STEPS))
def test_a_truncation_at_any_step_is_not_undone(done: int) -> None:
    scene = filled()
    scene.begin()
    scene.work(jobs_max=done)
    middle = batches(scene.log)[BATCHES // 2]
    truncate_to(scene.log, middle)
    after = batches(scene.log)
    for _ in range(3):
        scene.work()
        scene.broker.clock.advance(10)
    assert scene.place == "/d2/t-0"
    assert batches(scene.log) == after
    scene.fill(1)


@pytest.mark.parametrize("done", range(STEPS))
def test_retention_goes_on_at_any_step(done: int) -> None:
    scene = filled()
    scene.begin()
    scene.work(jobs_max=done)
    start = scene.log.segments[2].base_offset
    advance_log_start(scene.log, start)
    for _ in range(3):
        scene.work()
        scene.broker.clock.advance(10)
    assert scene.place == "/d2/t-0"
    assert scene.log.log_start_offset == start
    assert batches(scene.log)[0] == start


@pytest.mark.parametrize("done", range(STEPS))
@pytest.mark.parametrize("path", PATHS)
def test_a_disk_that_fails_at_any_step_takes_only_its_own_log(path: str, done: int) -> None:
    scene = filled()
    had = batches(scene.log)
    scene.begin()
    scene.work(jobs_max=done)
    is_moved = scene.place == "/d2/t-0"
    scene.disk.fail(path)
    for _ in range(4):
        scene.work()
        scene.broker.clock.advance(10)
    log = scene.logs.find(AT)
    if path == ("/d2" if is_moved else "/d1"):
        assert log is None or log.directory == "/d2/t-0"
    else:
        assert log is not None
        assert batches(log) == had
        log.check_may_grow()


def test_a_role_that_changes_meanwhile_is_no_obstacle() -> None:
    scene = filled()
    scene.begin()
    scene.work(jobs_max=STEPS // 2)
    scene.partition.follow(FOLLOWS)
    scene.work()
    assert scene.place == "/d2/t-0"


def test_a_topic_that_is_deleted_meanwhile_does_not_come_back() -> None:
    for done in range(STEPS):
        scene = filled()
        scene.begin()
        scene.work(jobs_max=done)
        if scene.place == "/d1/t-0":
            scene.logs.delete(AT)
            scene.work()
            assert scene.logs.find(AT) is None
            assert scene.files(scene.second) == []
            assert list(scene.moves) == []


def test_a_damaged_log_waits_until_it_is_repaired() -> None:
    scene = filled()
    segment = scene.log.segments[1]
    segment.damage = Damage(segment.base_offset, 0, segment.base_offset, "the test says so")
    scene.move()
    assert scene.place == "/d1/t-0"
    segment.damage = None
    scene.broker.clock.advance(10)
    scene.work()
    assert scene.place == "/d2/t-0"


def test_the_metrics_say_what_moves_and_how_far_behind_it_is() -> None:
    scene = filled()

    def found() -> list[float]:
        return [sample.value for row in MOVE_METRICS for sample in row.read(scene.moves)]

    assert found() == [0, 0]
    scene.begin()
    assert found() == [1, scene.log.log_end_offset]
    lags = []
    scene.work(lambda: lags.append(found()[1]))
    assert lags == sorted(lags, reverse=True) and lags[0] > lags[-1]
    assert found() == [0, 0]
