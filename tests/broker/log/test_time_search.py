"""Look-ups by time in a log that changes between their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.log import timestamps
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.time_search import offset_for_timestamp, offset_of_max_timestamp
from holdfast_log.broker.log.timestamps import LookUp, SearchStep, SegmentSearch, TimestampOffset
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.logs import append, look_up_at_once, new_log, sim_disk


class Walk:
    """A look-up, step by step: `read` does what the worker does, and `go_on` gives its result to the log."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self.search: SegmentSearch | None = next(look_up)
        self.result: TimestampOffset | None = None
        self._step: SearchStep | None = None

    def read(self) -> None:
        assert self.search is not None
        self._step = self.search.run()

    def go_on(self) -> None:
        assert self._step is not None
        try:
            self.search = self._look_up.send(self._step)
        except StopIteration as end:
            self.search, self.result = None, end.value

    def finish(self) -> TimestampOffset | None:
        while self.search is not None:
            self.read()
            self.go_on()
        return self.result


def timed_log(*times: int, **settings: Any) -> Log:
    log = new_log(sim_disk(), **settings)
    for time in times:
        append(log, time)
    return log


def cut_and_write_others(log: Log) -> None:
    """What a new leader's log makes of a follower that led before: other batches at the same positions."""
    truncate_to(log, 1)
    append(log, 15, 16, 17, leader_epoch=1)
    append(log, 35, leader_epoch=1)


def test_a_log_that_is_cut_before_the_worker_reads_is_searched_again() -> None:
    log = timed_log(10, 20, 30, 40)
    walk = Walk(offset_for_timestamp(log, 25))

    cut_and_write_others(log)

    assert walk.finish() == TimestampOffset(4, 35, 1)


def test_a_record_that_is_cut_off_after_it_was_found_is_not_answered() -> None:
    log = timed_log(10, 20, 30, 40)
    walk = Walk(offset_for_timestamp(log, 25))
    walk.read()

    cut_and_write_others(log)
    walk.go_on()

    assert walk.finish() == TimestampOffset(4, 35, 1)


def test_a_record_that_is_deleted_after_it_was_found_is_not_answered() -> None:
    log = timed_log(10, 20, 30, 40)
    walk = Walk(offset_for_timestamp(log, 15))
    walk.read()

    advance_log_start(log, 3)
    walk.go_on()

    assert walk.finish() == TimestampOffset(3, 40, 0)


def test_a_log_that_changes_all_the_time_has_the_client_ask_again() -> None:
    log = timed_log(10, 20, 30, 40)
    walk = Walk(offset_for_timestamp(log, 25))

    def keep_cutting() -> None:
        while walk.search is not None:
            walk.read()
            cut_and_write_others(log)
            walk.go_on()

    with pytest.raises(BrokerError, match="try again") as refused:
        keep_cutting()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and refused.value.retriable


def test_records_that_are_appended_meanwhile_do_not_prolong_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "_STEP_BYTES", 1)
    log = timed_log(10, 20, 30, 40)
    walk = Walk(offset_for_timestamp(log, 40))
    truncate_to(log, 3)  # The index still says that a record of this time is there, for the first attempt.

    while walk.search is not None:
        walk.read()
        append(log, 30)
        walk.go_on()

    assert walk.result is None


def test_a_segment_that_is_removed_meanwhile_is_searched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "_PIECE_BYTES", 100)
    monkeypatch.setattr(timestamps, "_STEP_BYTES", 1)
    log = timed_log(10, 12, 11, 40, 50, segment_bytes=250)
    assert len(log.segments) == 2
    walk = Walk(offset_for_timestamp(log, 12))

    log.discard(log.segments.before(3))
    advance_log_start(log, 3)

    assert walk.finish() == TimestampOffset(3, 40, 0)


def damage(log: Log, position: int) -> None:
    file = log.segments[0].file()
    data = bytearray(file.pread(log.segments[0].size, 0))
    data[position] ^= 0xFF
    file.truncate(0)
    file.append([bytes(data)])


@pytest.mark.parametrize("change", [lambda log: None, lambda log: append(log, 50)], ids=["", "appended to"])
def test_a_damaged_batch_is_examined_and_the_client_asks_again(change: Callable[[Log], object]) -> None:
    log = timed_log(10, 20, 30)
    size = log.segments[0].size // 3
    walk = Walk(offset_for_timestamp(log, 25))
    damage(log, 2 * size + 65)
    change(log)

    with pytest.raises(BrokerError, match=r"damaged of .*the segment is being examined") as refused:
        walk.finish()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_search_reads_some_megabytes_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "_PIECE_BYTES", 200)
    monkeypatch.setattr(timestamps, "_STEP_BYTES", 1000)
    log = timed_log(*range(100, 200), index_interval_bytes=1 << 20)

    walk = Walk(offset_for_timestamp(log, 199))
    steps = 0
    while walk.search is not None:
        steps += 1
        walk.read()
        walk.go_on()

    assert walk.result == TimestampOffset(99, 199, 0)
    assert 5 < steps < 20
    assert look_up_at_once(offset_of_max_timestamp(log)) == TimestampOffset(99, 199, 0)


def test_a_log_without_timestamps_has_no_latest_one() -> None:
    assert look_up_at_once(offset_of_max_timestamp(timed_log(-1, -1))) is None
