"""The cleaner at work: which log it chooses, when it waits, and what it does if it cannot compact a log."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.cleaning.cleaner import Cleaner
from holdfast_log.broker.cleaning.settings import SETTINGS, CleanerSettings
from holdfast_log.broker.decompression_budget import DecompressionBudget, DecompressionLimits
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.append_ids import AppendIdLimits
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.time_search import offset_for_timestamp
from holdfast_log.broker.log.truncation import move_log_start, restore_log_producers, truncate_to
from holdfast_log.broker.setting_groups import Live
from holdfast_log.protocol.batches import Compression, split
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.compaction import compact, records_of
from tests.models.logs import NOW_MS, append_as_leader, look_up_at_once, new_log, read_all, sim_disk
from tests.models.workers import ImmediateWorkers

Row = tuple[bytes | None, bytes | None]


class Room:
    """A cleaner and its logs, on a simulated disk."""

    def __init__(self, **settings: Any) -> None:
        self.disk = sim_disk()
        self.workers = ImmediateWorkers()
        self.clock = Clock()
        self.logs: list[Log] = []
        self.settings: dict[str, Any] = {row.name: row.default for row in SETTINGS}
        self.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self.committed: dict[Log, int | None] = {}
        self.suspected: list[Log] = []
        self.failed: list[OSError] = []
        self.cleaner = Cleaner(
            self, self.disk, self.workers, self.clock, self.now_ms,
            Live(CleanerSettings, self.settings), self.committed_offset,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Log]:
        return iter(self.logs)

    def now_ms(self) -> int:
        return NOW_MS + round(self.clock.seconds() * 1000)

    def committed_offset(self, log: Log) -> int | None:
        return self.committed.get(log, log.log_end_offset)

    def log(self, topic: str, index: int = 0, **settings: Any) -> Log:
        values = {"segment_bytes": 200, "cleanup_policy": ("compact",)} | settings
        wanted = LoadRequest(
            TopicPartition(topic, index), f"/data/{topic}-{index}", LogSettings(**values), NOW_MS
        )
        log = create_log(self.disk, wanted)
        log.events = LogEvents(
            suspected=lambda log, offset, why: self.suspected.append(log),
            failed=lambda log, error: self.failed.append(error),
        )
        self.logs.append(log)
        return log

    def write(self, log: Log, *rows: Row) -> None:
        """One batch for each record, then a new segment."""
        self.append(log, *rows)
        log.roll(self.now_ms())

    def append(self, log: Log, *rows: Row) -> None:
        """One batch for each record; all are durable then."""
        for key, value in rows:
            builder = BatchBuilder()
            builder.append(self.now_ms(), key, value)
            append_as_leader(
                log, memoryview(builder.build()), max(0, log.epochs.latest), now_ms=self.now_ms()
            )
        flush_at_once(log)

    def restart(self) -> None:
        """Go on with the cleaner of another process, which knows only the files."""
        self.cleaner.stop()
        self.cleaner = Cleaner(
            self, self.disk, self.workers, self.clock, self.now_ms,
            Live(CleanerSettings, self.settings), self.committed_offset,
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        self.cleaner.start()
        self.clock.advance(0)


def rows(log: Log) -> list[Row]:
    return [(record.key, record.value) for record in records_of(log)]


def numbered(count: int, key: bytes = b"k") -> list[Row]:
    return [(key, b"%d" % number) for number in range(count)]


def test_a_log_is_compacted_at_the_start_and_again_after_the_backoff() -> None:
    room = Room()
    log = room.log("t")
    room.write(log, *numbered(5))
    room.start()
    assert rows(log) == [(b"k", b"4")]
    assert log.cleaned_offset == 5

    room.write(log, *numbered(5), (b"other", b"6"))
    room.clock.advance(14.9)
    assert len(rows(log)) == 7
    room.clock.advance(0.2)
    assert rows(log) == [(b"k", b"4"), (b"other", b"6")]


class TurnedClock(Clock):
    """Counts something in each call that it has made: all calls but the first follow from earlier ones."""

    def __init__(self, count: Callable[[], int]) -> None:
        super().__init__()
        self._count = count
        self.counts: list[int] = []
        self.between: Callable[[], None] = lambda: None

    def callLater(self, when: float, what: Callable[..., object], *arguments: Any, **named: Any) -> Any:
        def call() -> None:
            before = self._count()
            what(*arguments, **named)
            self.counts.append(self._count() - before)
            self.between()

        return super().callLater(when, call)


class Watch(Room):
    """A cleaner whose looks at logs are counted by turns of the reactor."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0
        self.clock: TurnedClock = TurnedClock(lambda: self.looked)
        self.cleaner = Cleaner(
            self, self.disk, self.workers, self.clock, self.now_ms,
            Live(CleanerSettings, self.settings), self.committed_offset,
        )  # fmt: skip

    def committed_offset(self, log: Log) -> int | None:
        self.looked += 1
        return super().committed_offset(log)


def test_many_logs_are_looked_at_in_many_turns_and_the_dirtiest_of_all_is_compacted() -> None:
    room = Watch()
    logs = [room.log(f"t{number}") for number in range(1000)]
    last = logs[-1]
    room.write(last, *numbered(5))
    room.start()
    assert rows(last) == [(b"k", b"4")]
    assert sum(room.clock.counts) >= 1000
    assert max(room.clock.counts) <= 201, "one turn looks at too many logs"


def test_a_log_that_changes_while_others_are_looked_at_is_planned_again() -> None:
    room = Watch()
    gone, failed, *_, last = (room.log(f"t{number}") for number in range(500))
    room.write(gone, *numbered(9))
    room.write(failed, *numbered(8))
    room.write(last, *numbered(2))

    def change() -> None:
        if 1 < room.looked < 400:
            room.committed[gone] = None
            failed.failed(OSError(errno.EIO, "broken"))

    room.clock.between = change
    room.start()
    assert (gone.cleaned_offset, failed.cleaned_offset) == (0, 0)
    assert last.cleaned_offset == 2


def test_a_cleaner_that_is_stopped_between_two_turns_looks_at_no_more_logs() -> None:
    room = Watch()
    for number in range(500):
        room.log(f"t{number}")
    room.clock.between = room.cleaner.stop
    room.start()
    assert 0 < room.looked < 250


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_bomb_that_is_in_a_log_already_stays_as_it_is_and_is_told(
    caplog: pytest.LogCaptureFixture, codec: Compression
) -> None:
    room = Room()
    room.cleaner = Cleaner(
        room, room.disk, room.workers, room.clock, room.now_ms,
        Live(CleanerSettings, room.settings), room.committed_offset,
        DecompressionBudget(room.workers, DecompressionLimits(40_000)),
    )  # fmt: skip
    log = room.log("t", segment_bytes=10_000)
    bomb = BatchBuilder(codec)
    bomb.append(room.now_ms(), b"bomb", bytes(100_000))
    room.append(log, *numbered(5))
    append_as_leader(log, memoryview(bomb.build()), 0, origin=AppendOrigin.COORDINATOR, now_ms=room.now_ms())
    room.write(log, *numbered(5))

    room.start()

    assert rows(log) == [(b"bomb", bytes(100_000)), (b"k", b"4")]
    (message,) = [message for message in caplog.messages if "keeps all records" in message]
    assert "t-0 keeps all records of 1 batches, the first at offset 5" in message
    assert not room.cleaner.uncleanable


def test_the_dirtiest_log_comes_first_and_one_that_is_clean_enough_not_at_all() -> None:
    room = Room()
    logs = {topic: room.log(topic) for topic in ("mostly-clean", "half", "dirty")}
    for log, clean in zip(logs.values(), (30, 8, 0), strict=True):
        room.write(log, *((b"%d" % number, b"x") for number in range(clean)))
        log.cleaned_offset = log.log_end_offset
        room.write(log, *numbered(10))
    room.workers.is_held = True
    room.start()

    def busy() -> list[str]:
        return [log.topic_partition.topic for log in room.cleaner.busy]

    assert busy() == ["dirty"]
    room.settings["log.cleaner.threads"] = 3
    room.clock.advance(15)
    assert sorted(busy()) == ["dirty", "half"]
    room.workers.release()
    room.clock.advance(15)
    assert [room.logs[n].cleaned_offset for n in range(3)] == [30, 18, 10]


@pytest.mark.parametrize("why", ["disabled", "policy", "no role"])
def test_a_log_is_left_alone(why: str) -> None:
    room = Room(log_cleaner_enable=why != "disabled")
    log = room.log("t", cleanup_policy=("delete",) if why == "policy" else ("compact", "delete"))
    room.write(log, *numbered(5))
    if why == "no role":
        room.committed[log] = None
    room.start()
    room.clock.advance(60)

    assert len(rows(log)) == 5


def test_no_record_from_the_high_watermark_on_is_touched() -> None:
    room = Room()
    log = room.log("t", segment_bytes=80)
    room.write(log, *numbered(6))
    room.committed[log] = 3
    room.start()

    assert rows(log) == [(b"k", b"2"), (b"k", b"3"), (b"k", b"4"), (b"k", b"5")]


def test_no_record_that_is_committed_and_not_yet_durable_is_touched() -> None:
    room = Room()
    log = room.log("t", segment_bytes=80)
    room.write(log, *numbered(3))
    for _, value in numbered(3):
        builder = BatchBuilder()
        builder.append(room.now_ms(), b"k", value)
        append_as_leader(log, memoryview(builder.build()), 0, now_ms=room.now_ms())
    log.roll(room.now_ms())
    assert (room.committed_offset(log), log.recovery_point) == (6, 3)
    room.start()

    assert rows(log) == [(b"k", b"2"), (b"k", b"0"), (b"k", b"1"), (b"k", b"2")]


def test_records_younger_than_the_minimum_lag_stay() -> None:
    room = Room()
    log = room.log("t", min_compaction_lag_ms=30_000)
    room.write(log, *numbered(3))
    room.clock.advance(20)
    room.write(log, *numbered(3))
    room.clock.advance(15)
    room.start()

    assert rows(log) == [(b"k", b"2"), *numbered(3)]


def test_an_idle_log_is_compacted_within_the_maximum_lag() -> None:
    """Also its active segment, and however small its dirty part is."""
    room = Room()
    log = room.log("t", max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=0.99, segment_bytes=1 << 20)
    room.write(log, *((b"%d" % number, b"x") for number in range(50)))
    room.start()
    room.append(log, *numbered(3))
    room.clock.pump([5.0] * 11)
    assert len(rows(log)) == 53
    room.clock.pump([5.0] * 10)

    assert len(rows(log)) == 51


def test_more_keys_than_the_map_holds_take_several_passes() -> None:
    room = Room(log_cleaner_dedupe_buffer_size=1024)
    log = room.log("t", min_cleanable_dirty_ratio=0.0)
    keys = [(b"%d" % number, value) for value in (b"old", b"new") for number in range(100)]
    room.write(log, *keys)
    room.start()
    room.clock.pump([0.0] * 20)

    assert room.cleaner.passes > 4
    assert rows(log) == keys[100:]
    assert log.cleaned_offset == 200


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_tombstone_goes_after_its_horizon_although_nothing_new_was_written(is_restarted: bool) -> None:
    room = Room(log_cleaner_backoff_ms=1000)
    log = room.log("t", delete_retention_ms=60_000, min_cleanable_dirty_ratio=0.5)
    room.write(log, (b"k", b"v"), (b"k", None), (b"last", b"1"))
    room.start()
    room.clock.pump([1.0] * 30)
    assert rows(log) == [(b"k", None), (b"last", b"1")]
    if is_restarted:
        room.restart()
    room.clock.pump([1.0] * 28)
    assert rows(log) == [(b"k", None), (b"last", b"1")]
    room.clock.pump([1.0] * 5)
    assert rows(log) == [(b"last", b"1")]
    passes = room.cleaner.passes
    room.clock.pump([1.0] * 200)
    assert room.cleaner.passes == passes


def test_the_tombstone_at_the_end_of_a_log_does_not_keep_the_cleaner_busy() -> None:
    """It stays although its horizon has passed: readers see by it how far the log reaches."""
    room = Room(log_cleaner_backoff_ms=1000)
    log = room.log("t", delete_retention_ms=10_000)
    room.write(log, (b"k", b"v"), (b"k", None))
    room.start()
    room.clock.pump([1.0] * 200)
    assert rows(log) == [(b"k", None)]
    assert room.cleaner.passes <= 2


def test_a_tombstone_after_the_end_of_a_pass_gets_no_horizon_from_it() -> None:
    """Its key may have earlier records still: a reader who sees one of them must see the tombstone too."""
    room = Room()
    log = room.log("t", segment_bytes=1 << 20, delete_retention_ms=1000, min_cleanable_dirty_ratio=0.0)
    room.write(log, *((b"%d" % number, b"x") for number in range(40)), (b"1", None))
    room.append(log, (b"end", b"x"))
    small = CleanerSettings(dedupe_buffer_size_bytes=24 * 40)
    first = compact(log, room.disk, NOW_MS, settings=small)
    assert first is not None and first.end_offset < 40

    compact(log, room.disk, NOW_MS + 2000)
    assert (b"1", None) in rows(log)
    log.cleaned_offset = 0
    compact(log, room.disk, NOW_MS + 3000)
    assert (b"1", None) not in rows(log)


def test_the_rate_limit_spreads_the_work(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(log_cleaner_io_max_bytes_per_second=100.0)
    log = room.log("t")
    room.write(log, *numbered(50))
    size = log.size_bytes
    with caplog.at_level(logging.INFO, "holdfast_log.broker.cleaning.cleaner"):
        room.start()
        for _ in range(size * 3 // 100 + 10):
            room.clock.advance(1)

    assert rows(log) == numbered(50)[-1:]
    (message,) = [message for message in caplog.messages if "Compacted t-0" in message]
    assert int(message.split(" in ")[1].split(" ms")[0]) >= 2 * size / 100 * 1000 - 2000


def test_a_log_that_cannot_be_compacted_is_skipped_and_examined_and_the_others_are_compacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = Room()
    bad, good = room.log("bad"), room.log("good")
    room.write(bad, *numbered(9))
    room.write(good, (b"a", b"1"), (b"b", b"2"), *numbered(3))
    room.disk.rot(bad.segments[1].path, 70, 3)
    room.start()
    room.clock.pump([1.0] * 40)

    assert rows(good) == [(b"a", b"1"), (b"b", b"2"), (b"k", b"2")]
    assert list(room.cleaner.uncleanable) == [bad]
    assert room.suspected == [bad]
    assert sum("cannot be compacted" in message for message in caplog.messages) == 1
    assert not [name for name in room.disk.list(bad.directory) if name.endswith(".cleaned")]

    room.disk.rewrite(bad.segments[1].path, 70, 3)
    bad.segments[1].replaced(bad.segments[1].size)
    assert bad.cleaned_offset == 0
    room.cleaner.uncleanable.clear()
    room.clock.advance(15)
    assert rows(bad) == [(b"k", b"8")]


def test_the_part_before_damage_is_compacted() -> None:
    room = Room()
    log = room.log("t", segment_bytes=80)
    room.write(log, *numbered(6))
    damaged = log.segments[3]
    damaged.damage = Damage(damaged.base_offset, 0, damaged.base_offset, "bad")
    room.start()

    assert log.cleaned_offset == 3
    assert damaged in log.segments
    assert b"".join(log.disk.read(each.path) for each in log.segments[:3]).count(b"k") == 1


def test_a_full_disk_delays_the_compaction_and_takes_no_directory_offline() -> None:
    room = Room()
    log = room.log("t")
    room.write(log, *((b"%d" % number, b"x") for number in range(30)))
    room.disk.leave_room(100)
    room.start()
    assert log.failure is None and not room.failed
    assert not [name for name in room.disk.list(log.directory) if name.endswith(".cleaned")]

    room.disk.leave_room(None)
    room.clock.pump([5.0] * 4)
    assert log.cleaned_offset == 30


def test_a_disk_error_takes_the_directory_offline() -> None:
    room = Room()
    log = room.log("t")
    room.write(log, *numbered(9))
    room.disk.fail_syncs("/data")
    room.start()

    assert [error.errno for error in room.failed] == [errno.EIO]


@pytest.mark.parametrize("what", ["truncated", "deleted", "policy", "stopped", "retention"])
def test_a_log_that_changes_while_it_is_compacted_keeps_the_change(what: str) -> None:
    room = Room()
    log = room.log("t", segment_bytes=150)
    room.write(log, *((b"%d" % (number % 9), b"x") for number in range(30)))
    before = rows(log)
    for step in range(12):
        room.workers.is_held = True
        room.start()
        for _ in range(step):
            if room.workers.jobs:
                room.workers.work()
        match what:
            case "truncated":
                truncate_to(log, 25 - step)
            case "deleted":
                log.fail(OSError("deleted"))
            case "policy":
                log.settings = replace(log.settings, cleanup_policy=("delete",))
            case "stopped":
                room.cleaner.stop()
            case _:
                log.discard(log.segments[:1])
                log.log_start_offset = log.segments[0].base_offset
        room.workers.release()
        room.clock.advance(0)
        if what == "deleted":
            return
        stored = rows(log)
        assert not [name for name in room.disk.list(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert set(stored) <= set(before)
        if what == "truncated":
            assert log.log_end_offset <= 25 - step
        if what in ("policy", "stopped"):
            return


def test_the_settings_that_kafka_can_change_at_runtime_are_dynamic() -> None:
    assert [row.name for row in SETTINGS if not row.dynamic] == ["log.cleaner.enable"]


def test_a_consumer_gets_no_response_that_begins_with_a_batch_without_records() -> None:
    room = Room()
    log = room.log("t", segment_bytes=80)
    room.write(log, *numbered(6), (b"other", b"x"))
    room.start()
    empty = log.read(0, 1, upper_offset=7)
    assert empty.slice is not None and split(empty.slice.read())[0].record_count == 0

    for offset in range(7):
        read = log.read(offset, 1, upper_offset=7, skips_empty=True)
        assert read.slice is not None
        (header,) = split(read.slice.read())
        assert header.record_count == 1 and header.base_offset == max(offset, 5)
    assert log.read(0, 1, upper_offset=5, skips_empty=True).slice is None


def test_the_last_record_of_a_log_stays_even_if_it_is_an_expired_tombstone() -> None:
    room = Room()
    log = room.log("t", delete_retention_ms=0, min_cleanable_dirty_ratio=0.0)
    room.write(log, (b"a", b"1"), (b"a", None))
    compact(log, room.disk, NOW_MS)
    log.cleaned_offset = 0
    compact(log, room.disk, NOW_MS + 1)
    assert rows(log) == [(b"a", None)]

    room.append(log, (b"b", b"1"))
    log.cleaned_offset = 0
    compact(log, room.disk, NOW_MS + 2)
    assert rows(log) == [(b"b", b"1")]


def test_a_time_of_a_batch_without_records_is_not_found() -> None:
    room = Room()
    log = room.log("t", message_timestamp_type="LogAppendTime", segment_bytes=80)
    room.write(log, *numbered(2))
    room.clock.advance(1)
    room.write(log, *numbered(2))
    compact(log, room.disk, room.now_ms())

    found = look_up_at_once(offset_for_timestamp(log, 0))

    assert found is not None and found.offset == 3


def test_a_tombstone_stays_for_the_retention_time_after_the_pass_that_first_covers_it() -> None:
    room = Room()
    log = room.log("t", delete_retention_ms=1000, min_cleanable_dirty_ratio=0.0)
    room.append(log, (b"a", b"1"), (b"a", None), *((b"%d" % number, b"x") for number in range(9)))
    for at_ms, is_there in ((5000, True), (5999, True), (6000, False)):
        log.cleaned_offset = 0
        compact(log, room.disk, NOW_MS + at_ms)
        assert ((b"a", None) in rows(log)) == is_there
        assert (b"a", b"1") not in rows(log)


def copied(log: Log) -> Log:
    """The log of a replica that has fetched the compacted log from its start."""
    copy = new_log(sim_disk(), "/data/copy-0", cleanup_policy=("compact",))
    append_as_follower(copy, memoryview(bytearray(read_all(log))), now_ms=NOW_MS)
    return copy


def test_a_copy_of_a_compacted_log_knows_the_last_sequence_of_each_producer() -> None:
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0)
    for number in range(4):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"k", b"%d" % number)
        batch = builder.build(producer_id=number // 2, producer_epoch=0, base_sequence=number % 2)
        append_as_leader(log, memoryview(batch), 0, now_ms=NOW_MS)
    room.write(log, (b"k", b"last"))
    compact(log, room.disk, NOW_MS)

    assert rows(log) == [(b"k", b"last")]
    sequences = {entry.producer_id: entry.last_sequence for entry in copied(log).producers.entries()}
    assert sequences == {0: 1, 1: 1}


def test_a_copy_of_a_compacted_log_knows_the_append_ids_that_are_left_and_that_others_were_there() -> None:
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0)
    log.producers.append_ids.limits = AppendIdLimits(ids_max=2)
    for number in range(4):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"k", b"x" * 90, ((APPEND_ID_HEADER, number.to_bytes(16)),))
        batch = memoryview(builder.build(has_append_id=True))
        prepared = prepare_append(log, batch, now_ms=NOW_MS, append_id=number.to_bytes(16))
        log.append_prepared(prepared, 0, now_ms=NOW_MS)
    room.write(log, (b"k", b"last"))
    compact(log, room.disk, NOW_MS)

    copy = copied(log)
    for reads_again in (False, True):
        if reads_again:
            restore_log_producers(copy, NOW_MS)
        ids = copy.producers.append_ids
        found = [ids.find(number.to_bytes(16)) is not None for number in range(4)]
        assert found == [False, False, True, True]
        assert ids.known_from == log.producers.append_ids.known_from == 2


def test_a_copy_of_a_compacted_log_knows_where_each_leader_epoch_began() -> None:
    """Otherwise a replica with other records of an earlier epoch would not truncate all of them."""
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0)
    for number in range(9):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"k", b"%d" % number)
        append_as_leader(log, memoryview(builder.build()), number // 3, now_ms=NOW_MS)
    room.write(log, (b"k", b"last"))
    compact(log, room.disk, NOW_MS)

    assert rows(log) == [(b"k", b"last")]
    copy = copied(log)
    assert [copy.end_offset_for_epoch(epoch) for epoch in (0, 1)] == [(0, 3), (1, 6)]


def test_the_batch_that_ends_a_segment_before_the_log_start_has_its_leader_epoch() -> None:
    """A follower's segments end before the next ones begin where its leader had compacted. Retention may move
    the log start into such a gap; the log forgets the epochs of what lies before, and the segment stays for a
    while."""
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0, segment_bytes=140)
    for number in range(4):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"k", b"%d" % number)
        append_as_leader(log, memoryview(builder.build()), number // 2, now_ms=NOW_MS)
    flush_at_once(log)
    log.roll(NOW_MS)
    assert [(each.base_offset, each.next_offset) for each in log.segments] == [(0, 2), (2, 4), (4, 4)]
    move_log_start(log, 2)
    assert log.epochs.epoch_at(1) == -1

    compact(log, room.disk, NOW_MS)

    (data,) = room.disk.contents(log.directory, f"{0:020}.log")
    last = split(memoryview(data))[-1]
    assert (last.last_offset, last.record_count, last.leader_epoch) == (1, 0, 0)


def test_a_truncation_makes_what_is_written_again_dirty() -> None:
    """Otherwise a tombstone there would expire although earlier records of its key are still in the log."""
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0, segment_bytes=80)
    room.write(log, (b"a", b"1"), *((b"%d" % number, b"x") for number in range(5)))
    compact(log, room.disk, NOW_MS)
    truncate_to(log, 2)
    assert log.cleaned_offset == 2

    room.write(log, (b"a", None), (b"b", b"1"))
    room.append(log, (b"b", b"2"))
    compact(log, room.disk, NOW_MS)

    assert rows(log) == [(b"0", b"x"), (b"a", None), (b"b", b"1"), (b"b", b"2")]
