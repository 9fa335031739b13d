"""Whose turn it is to be compacted: no client can keep the cleaner from the logs of others."""

from __future__ import annotations

import pytest

from holdfast_log.broker.cleaning.cleaning_pass import sources_of
from holdfast_log.broker.cleaning.plan import CleaningPlan, plan_of
from holdfast_log.broker.cleaning.producers import last_batches
from holdfast_log.broker.cleaning.turns import CleaningTurns, Rests
from holdfast_log.broker.log.log import Log
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.records import BatchBuilder
from tests.broker.cleaning.test_cleaner import Room, numbered, rows
from tests.models.compaction import compact
from tests.models.logs import NOW_MS, append_as_leader

BACKOFF_S = 15.0


class Contest(Room):
    """A cleaner whose passes take a minute each, beside a stranger who makes a log dirty again at once."""

    def __init__(self) -> None:
        super().__init__()
        self.workers.is_held = True
        self.served: list[str] = []

    def wait_for_passes(self, count: int, strangers: list[Log]) -> list[str]:
        """The topics of the next passes; before each a stranger writes to all its logs."""
        for _ in range(count):
            for log in strangers:
                if log not in self.cleaner.busy:
                    self.write(log, *numbered(20))
            self.clock.advance(BACKOFF_S)
            while not self.cleaner.busy:
                self.workers.work()  # A search for horizons.
                self.clock.advance(0)
            (log,) = self.cleaner.busy
            self.served.append(log.topic_partition.topic)
            self.clock.advance(60.0)
            while log in self.cleaner.busy:
                self.workers.work()
        return self.served


def lazy_log(room: Room, topic: str, index: int = 0) -> Log:
    """A log that is just dirty enough to be compacted."""
    log = room.log(topic, index, min_cleanable_dirty_ratio=0.1)
    room.write(log, *((b"%d" % number, b"x") for number in range(30)))
    log.cleaned_offset = log.log_end_offset
    room.write(log, *numbered(10))
    return log


def test_a_log_that_is_always_dirty_does_not_keep_the_cleaner_from_others() -> None:
    room = Contest()
    stranger = room.log("stranger", min_cleanable_dirty_ratio=0.0, segment_bytes=1 << 20)
    lazy_log(room, "honest")
    room.write(stranger, *numbered(20))
    room.start()
    assert "honest" in room.wait_for_passes(4, [stranger])


def test_a_log_that_is_always_due_does_not_keep_the_cleaner_from_others() -> None:
    room = Contest()
    stranger = room.log(
        "stranger", max_compaction_lag_ms=1, min_cleanable_dirty_ratio=0.0, segment_bytes=1 << 20
    )
    lazy_log(room, "honest")
    room.write(stranger, *numbered(20))
    room.start()
    assert "honest" in room.wait_for_passes(5, [stranger])


def test_a_topic_of_many_partitions_gets_no_more_turns_than_one_of_a_single_partition() -> None:
    turns, room = CleaningTurns(lambda topic: False), Room()
    many = [plan(lazy_log(room, "many", index)) for index in range(20)]
    single = plan(lazy_log(room, "single"))
    served, now_s = [], 0.0
    for _ in range(10):
        chosen = turns.choose([*many, single], now_s)
        assert chosen is not None
        turns.begin(chosen.log, now_s)
        served.append(chosen.log)
        now_s += 100
        turns.end(chosen.log, now_s, ())
    assert served.count(single.log) == 5
    assert len({*served} - {single.log}) == 5, "each partition of a topic has its turn"


def test_every_second_turn_is_that_of_an_internal_topic() -> None:
    turns, room = CleaningTurns(OFFSETS_TOPIC.__eq__), Room()
    internal = plan(lazy_log(room, OFFSETS_TOPIC))
    others = [plan(lazy_log(room, f"other-{number}")) for number in range(50)]
    served, now_s = [], 0.0
    for _ in range(6):
        chosen = turns.choose([*others, internal], now_s)
        assert chosen is not None
        served.append(chosen is internal)
        turns.begin(chosen.log, now_s)
        now_s += 1000
        turns.end(chosen.log, now_s, ())
    assert served == [True, False] * 3
    assert turns.choose([internal], now_s) is internal


def plan(log: Log) -> CleaningPlan:
    found = plan_of(log, log.log_end_offset, NOW_MS)
    assert found is not None
    return found


def test_a_pass_that_cannot_succeed_is_tried_again_ever_later() -> None:
    room = Room()
    log = room.log("t")
    room.write(log, *((b"%d" % number, b"x") for number in range(30)))
    tries = [0]
    room.cleaner._rests, failed = Rests(room.clock.seconds), Rests.failed

    def counted(self: Rests, log: Log, backoff_s: float) -> None:
        tries[0] += 1
        failed(self, log, backoff_s)

    room.disk.leave_room(100)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Rests, "failed", counted)
        room.start()
        for _ in range(120):
            room.clock.advance(BACKOFF_S)
    assert 6 <= tries[0] <= 10, "half an hour: after 15, 30, 60, 120, 240, 480 s, then every ten minutes"

    room.disk.leave_room(None)
    for _ in range(41):
        room.clock.advance(BACKOFF_S)
    assert log.cleaned_offset == 30


def test_passes_that_remove_next_to_nothing_become_rare_until_one_is_worth_it() -> None:
    room = Room()
    log = room.log("t", min_cleanable_dirty_ratio=0.0, segment_bytes=1 << 20)
    number = 0

    def write_new_keys() -> None:
        nonlocal number
        room.write(log, *((b"%d" % each, b"x") for each in range(number, number + 3)))
        number += 3

    write_new_keys()
    room.start()
    for _ in range(120):
        write_new_keys()
        room.clock.advance(BACKOFF_S)
    assert 5 <= room.cleaner.passes <= 10

    room.write(log, *numbered(number))
    for _ in range(41):
        room.clock.advance(BACKOFF_S)
    passes = room.cleaner.passes
    room.write(log, *numbered(number))
    room.clock.advance(BACKOFF_S)
    assert room.cleaner.passes == passes + 1, "after a pass that was worth it the next one does not wait"


def test_tombstones_of_an_earlier_process_expire_beside_a_log_that_is_always_dirty() -> None:
    room = Contest()
    idle = room.log("idle", delete_retention_ms=120_000)
    room.write(idle, (b"k", b"v"), (b"k", None), (b"last", b"1"))
    compact(idle, room.disk, room.now_ms())
    assert (b"k", None) in rows(idle)
    stranger = room.log("stranger", min_cleanable_dirty_ratio=0.0, segment_bytes=1 << 20)
    room.write(stranger, *numbered(20))
    room.start()
    room.wait_for_passes(8, [stranger])
    room.workers.release()
    assert rows(idle) == [(b"last", b"1")]


def test_a_record_of_the_far_future_does_not_stop_the_compaction_of_what_follows_it() -> None:
    """With min.compaction.lag.ms records stay for a while, and with max.compaction.lag.ms not for ever."""
    room = Room()
    log = room.log(
        "t", min_compaction_lag_ms=30_000, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=0.99,
        message_timestamp_after_max_ms=1 << 62, segment_bytes=1 << 20,
    )  # fmt: skip
    room.write(log, *((b"%d" % number, b"x") for number in range(50)))
    log.cleaned_offset = log.log_end_offset
    builder = BatchBuilder()
    builder.append(room.now_ms() + (1 << 50), b"k", b"future")
    append_as_leader(log, memoryview(builder.build()), 0, now_ms=room.now_ms())
    room.append(log, *numbered(3))
    room.start()
    for _ in range(10):
        room.clock.advance(BACKOFF_S)
    assert len(rows(log)) == 51


def test_without_a_snapshot_only_the_producers_that_the_log_knows_are_looked_for() -> None:
    """A log may hold batches of millions of producers that it has forgotten."""
    room = Room()
    log = room.log("t")
    for producer_id in range(40):
        builder = BatchBuilder()
        builder.append(room.now_ms(), b"k", b"v")
        built = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0)
        append_as_leader(log, memoryview(built), 0, now_ms=room.now_ms())
    log.roll(room.now_ms())
    sources = sources_of(log.segments[:-1])
    assert last_batches(room.disk, "/data/none.snapshot", sources, {7, 39}) == {7: 7, 39: 39}
