"""Retention carried out on a broker's replicas: starts, checkpoints, files, readers and followers."""

from __future__ import annotations

import dataclasses
import errno
import logging
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.log import names
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import close_log, flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.truncation import advance_log_start
from holdfast_log.broker.replication import retention as retention_module
from holdfast_log.broker.replication.retention import Retention
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.replication.test_conditions import one
from tests.broker.world import World, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import START_MS, batch, encoded
from tests.models.compaction import compact, records_of
from tests.models.disk import SimDisk

T = TopicPartition("t", 0)
DAY_MS = 86_400_000
ONE_BATCH = {
    "segment.bytes": 120,
    "file.delete.delay.ms": 5000,
    "retention.ms": -1,
    "message.timestamp.after.max.ms": 1000 * DAY_MS,
}
"""Settings with which every batch has a segment of its own, and any timestamp."""
BOTH_POLICIES: dict[str, Any] = {"cleanup_policy": ("compact", "delete"), "min_cleanable_dirty_ratio": 0.0}


class Kept(World):
    """A broker that leads t-0, of which each batch fills a segment, and whose retention the test runs."""

    def __init__(self, directory: Path, seed: int = 1, disk: SimDisk | None = None, **settings: Any) -> None:
        self.sim_disk = disk or SimDisk(random.Random(seed), lambda: START_MS)
        config = ONE_BATCH | {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__(Path("/logs"), self.sim_disk, config)
        self.retention = Retention(
            self.replicas, self.logs.checkpoints.write_offsets, self.workers, self.clock, self.now_ms
        )

    def produce(self, timestamp: int = START_MS, topic: str = "t") -> None:
        request = produce_request(topic, batch(b"x" * 40, timestamp=timestamp), acks=1)
        assert only_produced(self.client().call(request)).error_code == ErrorCode.NONE

    def check(self) -> None:
        """Run one check of retention to its end."""
        self.retention.check()
        for _ in range(200):
            self.clock.advance(0)

    @property
    def log(self) -> Log:
        found = self.logs.find(T)
        assert found is not None
        return found

    def files(self, suffix: str = names.LOG) -> list[str]:
        return [name for name in self.sim_disk.list("/logs/t-0") if name.endswith(suffix)]


def led(directory: Path, batches: int, **settings: Any) -> Kept:
    world = Kept(directory, **settings)
    world.assign("t")
    for _ in range(batches):
        world.produce()
    return world


def test_by_size_the_first_segments_go_and_their_files_follow_after_the_delay(tmp_path: Path) -> None:
    world = led(tmp_path, 5, retention_bytes=250)
    one = world.log.segments[0].size
    assert 250 <= 3 * one < 250 + one
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (2, 5)
    assert len(world.log.segments) == 3
    assert len(world.files(names.LOG + names.DELETED)) == 2
    assert world.files() == [f"{offset:020}.log" for offset in (2, 3, 4)]
    world.clock.advance(5)
    assert not world.files(names.DELETED)


def test_by_age_the_expired_segments_go_and_at_last_the_active_one(tmp_path: Path) -> None:
    world = led(tmp_path, 2, retention_ms=DAY_MS)
    world.produce(START_MS + DAY_MS)
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert world.log.log_start_offset == 0
    world.set_clock_forward(1)
    world.check()
    assert world.log.log_start_offset == 2
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (3, 3)
    assert world.files() == [f"{3:020}.log"]
    world.produce()
    assert world.log.log_end_offset == 4


def test_what_was_decided_before_a_wait_is_decided_again(tmp_path: Path) -> None:
    """The log may have changed meanwhile; here the clock, which was ahead, is set right."""
    world = led(tmp_path, 3, retention_ms=DAY_MS)
    world.log.segments[1].indexes.max_timestamp = None
    world.set_clock_forward(2 * DAY_MS / 1000)

    async def in_vain(*_: object) -> bool:
        world.set_clock_forward(-2 * DAY_MS / 1000)
        return False

    world.retention._read_timestamp = in_vain  # type: ignore[method-assign]
    world.check()
    assert world.log.log_start_offset == 0


def test_the_age_is_that_of_the_latest_record_not_of_the_first(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS, segment_bytes=10_000)
    for timestamp in (START_MS - 2 * DAY_MS, START_MS, START_MS - 2 * DAY_MS):
        world.produce(timestamp)
    world.log.roll(START_MS)
    world.check()
    assert world.log.log_start_offset == 0
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.check()
    assert world.log.log_start_offset == 3


def test_segments_of_an_earlier_process_are_as_old_as_their_files_say(tmp_path: Path) -> None:
    """Their timestamps are read by a worker; the log may be truncated in the meantime."""
    world = led(tmp_path, 3, retention_ms=DAY_MS)
    for segment in world.log.segments:
        segment.indexes.max_timestamp = None
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.workers.is_held = True
    world.check()
    assert world.log.log_start_offset == 0
    world.workers.release()
    for _ in range(20):
        world.clock.advance(0)
    assert world.log.log_start_offset == 3


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS)
    world.produce(-1)
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert world.log.log_start_offset == 0
    world.set_clock_forward(1)
    world.check()
    assert world.log.log_start_offset == 1


def test_a_record_of_the_far_future_stays_no_longer_than_others(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS)
    world.produce(START_MS + 900 * DAY_MS)
    world.produce()
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert world.log.log_start_offset == 0
    world.set_clock_forward(1)
    world.check()
    assert world.log.log_start_offset == 2


def test_a_record_from_a_little_ahead_stays_until_its_own_time_is_old(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS)
    world.produce(START_MS + DAY_MS)
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.check()
    assert world.log.log_start_offset == 0
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert world.log.log_start_offset == 1


def test_a_log_that_was_written_in_the_future_is_kept_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine's clock has been set back, or was ahead before."""
    world = led(tmp_path, 2, retention_ms=DAY_MS)
    world.set_clock_forward(-2 * DAY_MS / 1000)
    world.check()
    world.check()
    assert world.log.log_start_offset == 0
    told = [line for line in caplog.messages if "later than this machine's clock" in line]
    assert len(told) == 1 and told[0].startswith("Retention keeps t-0 from offset 0 on")
    world.set_clock_forward(4 * DAY_MS / 1000)
    world.check()
    assert world.log.log_start_offset == 2


def test_nothing_beyond_the_high_watermark_is_removed(tmp_path: Path) -> None:
    world = Kept(tmp_path, retention_bytes=0)
    world.assign("t", replicas=(1, 2))
    for _ in range(3):
        world.produce()
    world.check()
    assert world.log.log_start_offset == 0
    request = fetch_request(world.topic_id("t"), 2, replica_id=2)
    world.client().call(request)
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (2, 3)


def test_a_follower_applies_the_limits_to_its_own_log(tmp_path: Path) -> None:
    world = led(tmp_path, 3, retention_bytes=0)
    world.assign("t", replicas=(2, 1), leader=2, leader_epoch=1, partition_epoch=1)
    partition = world.replicas.partition("t", 0)
    assert partition.leader == 2
    world.check()
    assert world.log.log_start_offset == 3


def test_the_offsets_of_groups_are_never_removed(tmp_path: Path) -> None:
    world = Kept(tmp_path, retention_bytes=0, retention_ms=0)
    world.assign(OFFSETS_TOPIC)
    log = world.logs.find(TopicPartition(OFFSETS_TOPIC, 0))
    assert log is not None
    for offset in range(3):
        log.append_prepared(prepared(log), 0, now_ms=START_MS)
        assert log.log_end_offset == offset + 1
    world.replicas.partition(OFFSETS_TOPIC, 0).high_watermark = 3
    world.set_clock_forward(1)
    world.check()
    assert log.log_start_offset == 0


def prepared(log: Log) -> Any:
    records = memoryview(bytearray(batch(b"x" * 40)))
    return prepare_append(log, records, origin=AppendOrigin.COORDINATOR, now_ms=START_MS)


def test_no_file_is_touched_before_the_new_start_is_durable(tmp_path: Path) -> None:
    world = led(tmp_path, 3, retention_bytes=100)
    world.workers.is_held = True
    world.check()
    assert world.log.log_start_offset == 2
    assert len(world.files()) == 3
    world.workers.release()
    for _ in range(20):
        world.clock.advance(0)
    assert len(world.files()) == 1


def test_removed_records_do_not_come_back_after_a_power_failure(tmp_path: Path) -> None:
    """Not even those before another record that stays: the disk may have kept any of the renames."""
    for seed in range(1, 9):
        world = Kept(tmp_path, seed, retention_bytes=100)
        world.assign("t")
        for _ in range(4):
            world.produce()
        flush_at_once(world.log)
        world.check()
        assert world.log.log_start_offset == 3
        world.sim_disk.lose_power()
        reopened = World(Path("/logs"), world.sim_disk, ONE_BATCH).logs.find(T)
        assert reopened is not None
        assert (reopened.log_start_offset, reopened.log_end_offset) == (3, 4)


def test_segments_that_a_crash_left_before_the_start_are_removed_by_the_next_check(tmp_path: Path) -> None:
    world = led(tmp_path, 3)
    world.log.log_start_offset = 2
    world.check()
    assert world.files() == [f"{2:020}.log"]


def test_a_reader_of_a_removed_segment_finishes(tmp_path: Path) -> None:
    world = led(tmp_path, 3, retention_bytes=100)
    read = world.log.read(0, 1000, upper_offset=3)
    assert read.slice is not None
    before = read.slice.read()
    world.check()
    world.clock.advance(5)
    assert not world.files(names.DELETED)
    assert read.slice.read() == before


def test_a_consumer_before_the_start_gets_out_of_range_and_the_new_start(tmp_path: Path) -> None:
    world = led(tmp_path, 3, retention_bytes=100)
    world.check()
    answer = only_fetched(world.client().call(fetch_request(world.topic_id("t"), 0)))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert only_fetched(world.client().call(fetch_request(world.topic_id("t"), 2))).log_start_offset == 2


class TurnClock(Clock):
    """Notes, whenever the retention waits for the next turn, how many segments have files."""

    def __init__(self, world: Kept) -> None:
        super().__init__()
        self.world = world
        self.left: list[int] = []

    def callLater(self, *call: Any) -> Any:
        self.left.append(len(self.world.files()))
        return super().callLater(*call)


def test_many_segments_take_several_turns(tmp_path: Path) -> None:
    world = led(tmp_path, 100, retention_bytes=0)
    clock = TurnClock(world)
    retention = Retention(
        world.replicas, world.logs.checkpoints.write_offsets, world.workers, clock, world.now_ms
    )
    retention.check()
    assert world.log.log_start_offset == 100
    clock.advance(0)
    assert len(world.files()) == 1
    assert len(clock.left) > 5
    assert max(before - after for before, after in pairwise(clock.left)) <= 16


class RollClock(Clock):
    """Notes, whenever the retention waits for the next turn, how many logs have begun a new segment, and how
    many segments have gone."""

    def __init__(self, logs: list[Log]) -> None:
        super().__init__()
        self.logs = logs
        self.begun = [0]
        self.gone = [0]

    def callLater(self, *call: Any) -> Any:
        self.note()
        return super().callLater(*call)

    def note(self) -> None:
        self.begun.append(sum(log.log_start_offset for log in self.logs))
        self.gone.append(sum(log.segments[0].base_offset for log in self.logs))


def test_logs_that_expire_together_begin_new_segments_in_turns_of_their_own(tmp_path: Path) -> None:
    """A new segment has files of its own, and completes those of the last one: more than a millisecond."""
    world = Kept(tmp_path, retention_ms=DAY_MS)
    names_of = [f"t{number}" for number in range(50)]
    for name in names_of:
        world.assign(name)
        world.produce(topic=name)
    world.set_clock_forward(2 * DAY_MS / 1000)
    logs = [log for name in names_of if (log := world.logs.find(TopicPartition(name, 0))) is not None]
    clock = RollClock(logs)
    retention = Retention(
        world.replicas, world.logs.checkpoints.write_offsets, world.workers, clock, world.now_ms
    )
    retention.check()
    for _ in range(3 * len(logs)):
        clock.advance(0)
        world.clock.advance(0)
    clock.note()
    assert clock.begun[-1] == clock.gone[-1] == len(logs) == len(names_of)
    assert max(after - before for before, after in pairwise(clock.begun)) == 1
    assert max(after - before for before, after in pairwise(clock.gone)) <= 4


def test_new_segments_that_share_a_turn_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move = retention_module.move_log_start

    def free_of_charge(log: Log, offset: int, *, now_ms: int = 0) -> None:
        move(log, offset, now_ms=now_ms)
        for each in retentions:
            each._work = 0.0

    retentions: list[Retention] = []
    init = Retention.__init__

    def noted(self: Retention, *arguments: Any) -> None:
        retentions.append(self)
        init(self, *arguments)

    monkeypatch.setattr(Retention, "__init__", noted)
    monkeypatch.setattr(retention_module, "move_log_start", free_of_charge)
    with pytest.raises(AssertionError):
        test_logs_that_expire_together_begin_new_segments_in_turns_of_their_own(tmp_path)


def test_logs_that_keep_everything_share_a_turn(tmp_path: Path) -> None:
    world = Kept(tmp_path, retention_ms=DAY_MS)
    for number in range(64):
        world.assign(f"t{number}")
        world.produce(topic=f"t{number}")
    clock = RollClock([])
    retention = Retention(
        world.replicas, world.logs.checkpoints.write_offsets, world.workers, clock, world.now_ms
    )
    retention.check()
    while clock.calls:
        clock.advance(0)
    assert len(clock.begun) == 1 + 64 // 32


def test_a_stopped_retention_changes_nothing_more(tmp_path: Path) -> None:
    world = led(tmp_path, 3, retention_bytes=0)
    world.retention.stop()
    world.check()
    assert world.log.log_start_offset == 0


def test_a_check_logs_how_many_segments_go_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = led(tmp_path, 3, retention_bytes=100)
    with caplog.at_level(logging.INFO):
        world.check()
    assert "Removing 2 segments of t-0: 2 by retention.bytes; its log starts at offset 2 now, 0 before" in (
        caplog.messages
    )


def test_new_settings_apply_at_the_next_check(tmp_path: Path) -> None:
    world = led(tmp_path, 3)
    world.check()
    assert world.log.log_start_offset == 0
    world.logs.settings.set_topic("t", {"retention.bytes": "100", "file.delete.delay.ms": "1000"})
    world.check()
    assert world.log.log_start_offset == 2
    world.clock.advance(1)
    assert not world.files(names.DELETED)


def test_producers_epochs_and_the_end_survive_a_restart_after_everything_was_removed(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_bytes=0)
    for sequence in range(3):
        records = batch(b"x" * 40, producer_id=7, producer_epoch=0, base_sequence=sequence)
        world.client().call(produce_request("t", records, acks=1))
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (3, 3)
    close_log(world.log)
    world.logs.close({})
    reopened = World(Path("/logs"), world.sim_disk, ONE_BATCH).logs.find(T)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.log_end_offset) == (3, 3)
    entry = reopened.producers.get(7)
    assert entry is not None and entry.last_sequence == 2


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("is_clean", [True, False])
def test_an_emptied_log_keeps_the_epoch_of_its_last_record(
    tmp_path: Path, seed: int, *, is_clean: bool
) -> None:
    """An election that compares logs prefers the one with the latest epoch (unclean recovery)."""
    world = Kept(tmp_path, seed, retention_bytes=0)
    for epoch in (3, 6):
        world.assign("t", leader_epoch=epoch, partition_epoch=epoch)
        world.produce()
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (2, 2)
    assert world.log.last_written_epoch == 6
    if is_clean:
        world.logs.close({})
    else:
        flush_at_once(world.log)
        world.logs.checkpoints.write_offsets()
        world.sim_disk.lose_power()
    reopened = World(Path("/logs"), world.sim_disk, ONE_BATCH).logs.find(T)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.log_end_offset) == (2, 2)
    assert reopened.last_written_epoch == 6


@pytest.mark.parametrize("is_led_again", [False, True])
def test_a_condition_on_the_last_record_holds_after_that_record_was_removed(
    tmp_path: Path, *, is_led_again: bool
) -> None:
    """No leader epoch of it is known any more, but a removed record was committed: nobody has replaced it."""
    world = Kept(tmp_path, retention_bytes=0)
    world.assign("t", leader_epoch=3)
    world.produce()
    world.check()
    assert world.log.log_start_offset == 1
    if is_led_again:
        world.assign("t", leader_epoch=5, partition_epoch=1)
    client = world.client()
    assert one(client, 1, expected_leader_epoch=3).error_code == ErrorCode.NONE
    refused = one(client, 2, expected_leader_epoch=3 if is_led_again else 2)
    assert refused.error_code == ErrorCode.OFFSET_MISMATCH, "the epoch of a present record is compared"
    assert one(client, 1, expected_leader_epoch=3, attempt=1).error_code == ErrorCode.OFFSET_MISMATCH


def keyed(world: Kept, rows: dict[bytes, bytes], timestamps: tuple[int, ...]) -> None:
    """Produce one batch with these keys and values."""
    entries = [(timestamp, *row) for timestamp, row in zip(timestamps, rows.items(), strict=True)]
    request = produce_request("t", bytes(encoded(entries)), acks=1)
    assert only_produced(world.client().call(request)).error_code == ErrorCode.NONE


def clean(world: Kept) -> None:
    """Compact all that was written so far."""
    world.log.roll(world.now_ms())
    flush_at_once(world.log)
    cleaning = compact(world.log, world.sim_disk, world.now_ms())
    assert cleaning is not None and cleaning.end_offset == world.log.log_end_offset


def values_of(world: Kept) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records_of(world.log)}


@pytest.mark.parametrize(("is_cleaned_first", "start"), [(False, 3), (True, 4)])
def test_a_compacted_log_loses_old_records_by_either_policy_in_either_order(
    tmp_path: Path, is_cleaned_first: bool, start: int
) -> None:
    """Compaction merges the segment of the superseded record 3, which it empties, with the one before it."""
    world = led(tmp_path, 0, retention_ms=DAY_MS, **BOTH_POLICIES)
    for key in (b"a", b"b", b"c"):
        keyed(world, {key: b"old"}, (START_MS,))
    for key in (b"a", b"d", b"a"):
        keyed(world, {key: b"new"}, (START_MS + DAY_MS,))
    world.set_clock_forward(DAY_MS / 1000 + 1)
    for act in (clean, Kept.check) if is_cleaned_first else (Kept.check, clean):
        act(world)

    assert world.log.log_start_offset == start
    assert [(record.offset, record.key) for record in records_of(world.log)] == [(4, b"d"), (5, b"a")]
    assert min(world.files()) == f"{start:020}.log"


def test_a_compacted_segment_is_as_old_as_the_latest_record_that_it_still_has(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS, **BOTH_POLICIES)
    keyed(world, {b"a": b"1", b"b": b"1"}, (START_MS, START_MS + DAY_MS))
    keyed(world, {b"b": b"2"}, (START_MS + DAY_MS,))
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.check()
    assert world.log.log_start_offset == 0
    clean(world)
    assert values_of(world) == {b"a": b"1", b"b": b"2"}
    world.check()
    assert world.log.log_start_offset == 2
    assert values_of(world) == {b"b": b"2"}


def test_records_that_compaction_merges_into_one_segment_go_together(tmp_path: Path) -> None:
    world = led(tmp_path, 0, retention_ms=DAY_MS, **BOTH_POLICIES)
    keyed(world, {b"a": b"1"}, (START_MS,))
    keyed(world, {b"b": b"1"}, (START_MS + DAY_MS,))
    world.log.settings = dataclasses.replace(world.log.settings, segment_bytes=10_000)
    clean(world)
    assert len(world.log.segments) == 2 and not world.log.segments.active.size
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.check()
    assert values_of(world) == {b"a": b"1", b"b": b"1"}
    world.set_clock_forward(DAY_MS / 1000)
    world.check()
    assert values_of(world) == {}
    assert (world.log.log_start_offset, world.log.log_end_offset) == (2, 2)


def test_a_segment_goes_although_offsets_are_missing_before_the_next_one(tmp_path: Path) -> None:
    """A follower has such segments: it rolls its log where its leader's compaction has left a gap."""
    world = led(tmp_path, 0, retention_ms=DAY_MS, **BOTH_POLICIES)
    keyed(world, {b"a": b"1" * 40}, (START_MS,))
    log, later = world.log, bytearray(batch(b"x" * 40, timestamp=START_MS + DAY_MS))
    later[:8] = (5).to_bytes(8, "big")
    append_as_follower(log, memoryview(later), now_ms=START_MS)
    flush_at_once(log)
    assert [(each.base_offset, each.next_offset) for each in log.segments] == [(0, 1), (5, 6)]
    world.replicas.partition("t", 0).high_watermark = 6
    world.set_clock_forward(1)

    world.check()
    world.set_clock_forward(DAY_MS / 1000)
    world.check()

    assert log.log_start_offset == 5
    assert world.files() == [f"{5:020}.log"]


@pytest.mark.parametrize(("is_cleaned_first", "start"), [(False, 3), (True, 0)])
def test_retention_by_size_counts_what_compaction_has_left(
    tmp_path: Path, is_cleaned_first: bool, start: int
) -> None:
    world = led(tmp_path, 0, retention_bytes=-1, segment_bytes=200, **BOTH_POLICIES)
    for number in range(6):
        keyed(world, {b"a": b"%d" % number * 100}, (START_MS,))
    one = world.log.segments[0].size
    world.log.settings = dataclasses.replace(world.log.settings, retention_bytes=3 * one)
    for act in (clean, Kept.check) if is_cleaned_first else (Kept.check, clean):
        act(world)
    assert world.log.log_start_offset == start
    assert values_of(world) == {b"a": b"5" * 100}


def test_retention_by_size_shortens_a_compacted_log(tmp_path: Path) -> None:
    world = led(tmp_path, 0, **BOTH_POLICIES)
    for number in range(6):
        keyed(world, {b"%d" % number: b"x" * 40}, (START_MS,))
    clean(world)
    size = world.log.segments[0].size
    world.log.settings = dataclasses.replace(world.log.settings, retention_bytes=3 * size)
    world.check()
    assert [record.offset for record in records_of(world.log)] == [3, 4, 5]


def test_a_full_disk_takes_its_directory_offline_before_retention_has_removed_anything(
    tmp_path: Path,
) -> None:
    """The checkpoint of the new start does not fit. Once there is space, the next process removes the
    segments."""
    world = led(tmp_path, 4, retention_bytes=100)
    flush_at_once(world.log)
    world.logs.checkpoints.write_offsets()
    world.sim_disk.leave_room(0)
    world.check()
    (directory,) = world.logs.directories
    assert directory.failure is not None and directory.failure.errno == errno.ENOSPC
    assert len(world.files()) == 4 and not world.files(names.DELETED)

    world.sim_disk.leave_room(None)
    world.sim_disk.kill_process()
    again = Kept(tmp_path, disk=world.sim_disk, retention_bytes=100)
    again.assign("t")
    assert (again.log.log_start_offset, again.log.log_end_offset) == (0, 4)
    again.check()
    assert again.log.log_start_offset == 3 and len(again.files()) == 1


def test_a_start_on_a_full_disk_first_removes_the_files_that_retention_has_renamed(tmp_path: Path) -> None:
    world = led(tmp_path, 4, retention_bytes=100)
    flush_at_once(world.log)
    world.check()
    assert world.files(names.DELETED)
    world.sim_disk.leave_room(0)
    world.sim_disk.kill_process()
    again = Kept(tmp_path, disk=world.sim_disk, retention_bytes=100)
    again.assign("t")
    assert not again.files(names.DELETED)
    again.produce()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (3, 5)


def test_old_records_before_the_start_go_although_the_log_was_truncated_to_its_start(tmp_path: Path) -> None:
    """They are in the segment that takes the appends."""
    world = led(tmp_path, 3, retention_ms=DAY_MS, segment_bytes=10_000)
    advance_log_start(world.log, 2)
    world.replicas.partition("t", 0).truncate_to(2, world.now_ms())
    assert world.log.segments[0].base_offset == 0 and world.log.log_start_offset == 2
    world.set_clock_forward(DAY_MS / 1000 + 1)
    world.check()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (2, 2)
    assert world.files() == [f"{2:020}.log"]
