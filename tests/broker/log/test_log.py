"""A log in use: append, read, look up, truncate."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.disk import DiskFile, OsDisk
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.time_search import offset_for_timestamp, offset_of_max_timestamp
from holdfast_log.broker.log.timestamps import TimestampOffset
from holdfast_log.broker.log.truncation import advance_log_start, truncate_fully_and_start_at, truncate_to
from holdfast_log.protocol import batches
from holdfast_log.protocol.batches import TimestampType, assign
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.batches import timed_batch
from tests.models.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    append_as_leader,
    headers_of,
    look_up_at_once,
    new_log,
    read_all,
    reopen,
    sim_disk,
)

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def log() -> Log:
    return new_log(sim_disk())


def refusal(log: Log, records: memoryview, **values: object) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        append_as_leader(log, records, 0, now_ms=NOW_MS, **values)  # type: ignore[arg-type]
    return raised.value.code


def test_offsets_are_consecutive_and_received_bytes_stored_unchanged(log: Log) -> None:
    first, second = timed_batch(1, 2, 3), timed_batch(4, 5)
    result = append_as_leader(log, first, 7, now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, result.log_append_time_ms) == (0, 2, -1)
    result = append_as_leader(log, second, 8, now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, result.is_duplicate) == (3, 4, False)
    # Offset and epoch were assigned in the buffers themselves.
    assert read_all(log) == bytes(first) + bytes(second)
    assert [(header.base_offset, header.leader_epoch) for header in headers_of(log)] == [(0, 7), (3, 8)]
    assert log.epochs.entries == [(7, 0), (8, 3)]
    assert log.log_end_offset == 5


def test_reads_end_between_batches_below_the_upper_offset_and_within_max_bytes(log: Log) -> None:
    sizes = [len(timed_batch(NOW_MS, NOW_MS)) for _ in range(5)]
    for _ in sizes:
        append(log, NOW_MS, NOW_MS)
    size = sizes[0]
    whole = log.read(0, 10_000, upper_offset=10)
    assert whole.slice is not None and (len(whole.slice), whole.next_offset) == (5 * size, 10)
    for upper_offset, batches_read in [(9, 4), (8, 4), (7, 3), (2, 1)]:
        read = log.read(0, 10_000, upper_offset=upper_offset)
        assert read.slice is not None
        assert (len(read.slice), read.next_offset) == (batches_read * size, batches_read * 2)
    assert log.read(0, 10_000, upper_offset=1).slice is None
    for max_bytes, batches_read in [(size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size + 1, 4)]:
        read = log.read(2, max_bytes, upper_offset=10)
        assert read.slice is not None
        assert (read.slice.offset, len(read.slice)) == (size, batches_read * size)
    # A read from an offset inside a batch returns the whole batch.
    inside = log.read(3, size, upper_offset=10)
    assert inside.slice is not None and (inside.slice.offset, len(inside.slice)) == (size, size)


def test_a_read_returns_its_first_batch_whole_even_above_max_bytes(log: Log) -> None:
    append(log, size=5000)
    append(log)
    read = log.read(0, 1, upper_offset=2)
    assert read.slice is not None and read.next_offset == 1
    assert log.read(0, 1, upper_offset=2, min_one_batch=False).slice is None
    assert log.read(0, 0, upper_offset=1, min_one_batch=False).slice is None


def test_a_read_outside_the_log_is_refused_and_one_at_its_end_is_empty(log: Log) -> None:
    append(log)
    assert log.read(1, 100, upper_offset=1).slice is None
    for offset in (-1, 2):
        with pytest.raises(BrokerError) as raised:
            log.read(offset, 100, upper_offset=1)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_full_segment_is_followed_by_another_and_reads_span_both() -> None:
    log = new_log(sim_disk(), segment_bytes=300)
    written = []
    for number in range(10):
        records = timed_batch(NOW_MS + number)
        append_as_leader(log, records, 0, now_ms=NOW_MS)
        written.append(bytes(records))
    assert len(log.segments) == 4
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert all(segment.size <= 300 for segment in log.segments)
    assert read_all(log) == b"".join(written)
    for offset in range(10):
        read = log.read(offset, 1, upper_offset=10)
        assert read.slice is not None and read.slice.read() == written[offset]
    assert log.size_bytes == sum(map(len, written))


def test_a_batch_that_is_larger_than_a_segment_is_refused() -> None:
    records = timed_batch(size=1000)
    log = new_log(sim_disk(), segment_bytes=len(records) - 1)
    with pytest.raises(BrokerError, match="raise segment") as refused:
        append_as_leader(log, records, 0, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0
    log.settings = LogSettings(segment_bytes=len(records))
    assert append_as_leader(log, records, 0, now_ms=NOW_MS).last_offset == 0


def test_the_retry_of_a_batch_that_no_longer_fits_in_a_segment_gets_its_offset() -> None:
    log = new_log(sim_disk(), segment_bytes=2000)
    assert append(log, size=1000, producer_id=7, epoch=0, sequence=0) == 0
    log.settings = LogSettings(segment_bytes=200)
    assert append(log, size=1000, producer_id=7, epoch=0, sequence=0) == 0


def test_a_copied_batch_larger_than_a_segment_gets_its_own_segment() -> None:
    """The leader took it while segment.bytes was larger. So does a batch of the broker itself."""
    log = new_log(sim_disk(), segment_bytes=200)
    for _ in range(2):
        records = timed_batch(size=1000)
        assign(records, 0, log.log_end_offset, 0)
        append_as_follower(log, records, now_ms=NOW_MS)
    append_as_leader(log, timed_batch(size=1000), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_segments_roll_by_the_age_of_their_records() -> None:
    log = new_log(sim_disk(), segment_ms=1000)
    append(log, 5000)
    append(log, 6000)
    append(log, 6001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize(
    ("jitter_ms", "share", "span_ms"),
    [(0, 0.9, 1000), (400, 0.5, 800), (400, 0.999, 601), (5000, 0.5, 500), (5000, 0.999, 1)],
)
def test_jitter_shortens_the_time_span_of_segments_but_never_to_nothing(
    jitter_ms: int, share: float, span_ms: int
) -> None:
    log = new_log(sim_disk(), segment_ms=1000)
    log.roll_jitter = share
    append(log, 5000)
    # segment.jitter.ms is dynamic.
    log.settings = replace(log.settings, segment_jitter_ms=jitter_ms)
    append(log, 5000 + span_ms)
    assert len(log.segments) == 1
    append(log, 5000 + span_ms + 1)
    assert len(log.segments) == 2


def test_a_full_index_closes_its_segment() -> None:
    log = new_log(sim_disk(), segment_index_bytes=24, index_interval_bytes=0)
    for number in range(8):
        append(log, NOW_MS + number)
    assert len(log.segments) > 1
    assert all(len(segment.indexes.times) <= 3 for segment in log.segments)
    assert len(headers_of(log)) == 8


@pytest.mark.parametrize("interval", [0, 50, 4096])
def test_the_first_record_at_or_after_a_timestamp_is_found(interval: int) -> None:
    log = new_log(sim_disk(), segment_bytes=700, index_interval_bytes=interval)
    timestamps = [10, 30, 20, 40, 40, 35, 60, 50, 70, 65, 80, 90, 85, 100, 95]
    for start in range(0, len(timestamps), 3):
        append(log, *timestamps[start : start + 3], leader_epoch=start)
    for wanted in range(102):
        expected = next(
            (TimestampOffset(offset, timestamp, offset // 3 * 3)
             for offset, timestamp in enumerate(timestamps) if timestamp >= wanted),
            None,
        )  # fmt: skip
        assert look_up_at_once(offset_for_timestamp(log, wanted)) == expected
    assert look_up_at_once(offset_of_max_timestamp(log)) == TimestampOffset(13, 100, 12)
    advance_log_start(log, 4)
    assert look_up_at_once(offset_for_timestamp(log, 0)) == TimestampOffset(4, 40, 3)


def test_a_failed_read_leaves_the_largest_timestamp_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = sim_disk()
    log = new_log(disk)
    append(log, 30, 70, 50)
    close_log(log)
    log = reopen(disk, log, is_clean=True)

    def lack_descriptors(segment: Segment) -> DiskFile:
        raise OSError(errno.EMFILE, "too many open files", segment.path)

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "file", lack_descriptors)
        with pytest.raises(BrokerError, match="too many open files"):
            look_up_at_once(offset_of_max_timestamp(log))

    assert look_up_at_once(offset_of_max_timestamp(log)) == TimestampOffset(1, 70, 0)


def test_log_append_time_topics_get_the_brokers_timestamp() -> None:
    log = new_log(sim_disk(), message_timestamp_type="LogAppendTime")
    result = append_as_leader(log, timed_batch(5, 6), 0, now_ms=NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    header = headers_of(log)[0]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW_MS
    assert look_up_at_once(offset_for_timestamp(log, NOW_MS - 1)) == TimestampOffset(0, NOW_MS, 0)


def test_records_with_timestamps_out_of_bounds_are_refused() -> None:
    log = new_log(sim_disk(), message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=60_000)
    assert refusal(log, timed_batch(NOW_MS + 1001)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, timed_batch(NOW_MS - 60_001)) is ErrorCode.INVALID_TIMESTAMP
    append(log, NOW_MS - 60_000, NOW_MS + 1000)
    claimed = timed_batch(NOW_MS)
    batches.set_log_append_time(claimed, batches.read_header(claimed), NOW_MS)
    assert refusal(log, claimed) is ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == 2


def test_an_append_of_empty_damaged_too_large_or_several_batches_is_refused(log: Log) -> None:
    assert refusal(log, memoryview(bytearray())) is ErrorCode.INVALID_RECORD
    two = memoryview(bytearray(bytes(timed_batch()) + bytes(timed_batch())))
    assert refusal(log, two) is ErrorCode.INVALID_RECORD
    damaged = timed_batch()
    damaged[-1] ^= 1
    assert refusal(log, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, timed_batch(size=2_000_000)) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0 and read_all(log) == b""
    append_as_leader(log, two, 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)
    assert [header.base_offset for header in headers_of(log)] == [0, 1]


def test_a_refused_append_changes_nothing(log: Log) -> None:
    append(log, producer_id=5, epoch=0, sequence=0)
    state = log.producers.encode()
    assert (
        refusal(log, timed_batch(producer_id=5, epoch=0, sequence=7))
        is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert (log.log_end_offset, log.producers.encode()) == (1, state)


def test_a_duplicate_is_detected_before_anything_is_appended(log: Log) -> None:
    append(log, 1, 2, producer_id=5, epoch=0, sequence=0)
    append(log, 3)
    prepared = prepare_append(log, timed_batch(1, 2, producer_id=5, epoch=0, sequence=0), now_ms=NOW_MS)
    assert prepared.duplicate is not None
    result = log.append_prepared(prepared, 4, now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, result.is_duplicate) == (0, 1, True)
    assert log.log_end_offset == 3


def test_a_follower_writes_the_leaders_bytes_unchanged() -> None:
    disk = sim_disk()
    leader, follower = new_log(disk, "/a/flights-3"), new_log(disk, "/b/flights-3")
    for number in range(6):
        append(leader, NOW_MS, NOW_MS, leader_epoch=number // 2, producer_id=9, epoch=0, sequence=2 * number)
    data = read_all(leader)
    # A fetch may end inside a batch.
    position = 0
    while position < len(data):
        result = append_as_follower(follower, memoryview(data)[position : position + 250], now_ms=NOW_MS)
        assert result.first_offset == (position // len(data[: len(data) // 6])) * 2
        position = follower.size_bytes
    assert read_all(follower) == data
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    assert follower.producers.encode() == leader.producers.encode()
    empty = append_as_follower(follower, memoryview(b"\0" * 60), now_ms=NOW_MS)
    assert empty.last_offset < empty.first_offset == 12


def test_a_follower_refuses_damaged_or_overlapping_batches() -> None:
    disk = sim_disk()
    leader, follower = new_log(disk, "/a/flights-3"), new_log(disk, "/b/flights-3")
    append(leader)
    append(leader)
    data = bytearray(read_all(leader))
    append_as_follower(follower, memoryview(data), now_ms=NOW_MS)
    with pytest.raises(BrokerError) as raised:
        append_as_follower(follower, memoryview(data), now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    append(leader)
    data = bytearray(read_all(leader)[len(data) :])
    data[-1] ^= 1
    with pytest.raises(BrokerError) as raised:
        append_as_follower(follower, memoryview(data), now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 2


@pytest.mark.parametrize("policy", [("delete",), ("compact",), ("compact", "delete")])
def test_a_follower_takes_a_gap_only_where_compaction_may_have_left_it(policy: tuple[str, ...]) -> None:
    disk = sim_disk()
    leader = new_log(disk, "/a/flights-3")
    follower = new_log(disk, "/b/flights-3", cleanup_policy=policy)
    ends = []
    for _ in range(3):
        append(leader)
        ends.append(len(read_all(leader)))
    data = read_all(leader)
    append_as_follower(follower, memoryview(data[: ends[0]]), now_ms=NOW_MS)
    if "compact" in policy:
        append_as_follower(follower, memoryview(data[ends[1] :]), now_ms=NOW_MS)
        assert [header.base_offset for header in headers_of(follower)] == [0, 2]
        return
    with pytest.raises(BrokerError, match="begins at 2, the log ends at 1") as raised:
        append_as_follower(follower, memoryview(data[ends[1] :]), now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(BrokerError, match="begins at 2, the log ends at 1"):
        append_as_follower(follower, memoryview(data[ends[1] :]), now_ms=NOW_MS)
    assert read_all(follower) == data[: ends[0]]


@pytest.mark.parametrize("max_bytes", [1, 150, 250, 1000])
def test_a_reader_continues_behind_a_gap_at_the_end_of_a_segment(max_bytes: int) -> None:
    """A copy of a damaged segment may end early: the segments of the broker from which it was copied end
    elsewhere, and only their last batches survive every compaction."""
    disk = sim_disk()
    log = new_log(disk, cleanup_policy=("compact",))
    for number in range(6):
        if number == 4:
            log.roll(NOW_MS)
        append(log)
    first = log.segments[0]
    disk.cut(first.path, first.size // 2)
    first.indexes.remove()
    first.replaced(first.size // 2)
    for _ in range(2):
        offset, found = 0, []
        while offset < 6:
            read = log.read(offset, max_bytes, upper_offset=6)
            assert read.slice is not None
            headers = batches.whole_batches(memoryview(read.slice.read()))
            assert headers and headers[0].last_offset >= offset
            found += [header.base_offset for header in headers]
            offset = read.next_offset
        assert found == [0, 1, 4, 5]


def test_an_empty_follower_begins_with_the_batch_that_holds_its_leaders_log_start() -> None:
    disk = sim_disk()
    leader, follower = new_log(disk, "/a/flights-3"), new_log(disk, "/b/flights-3")
    for _ in range(3):
        append(leader, NOW_MS, NOW_MS)
    truncate_fully_and_start_at(follower, 3)
    data = leader.read(3, 1000, upper_offset=6).slice
    assert data is not None
    append_as_follower(follower, memoryview(data.read()), now_ms=NOW_MS)
    assert (follower.log_start_offset, follower.log_end_offset) == (3, 6)
    assert [header.base_offset for header in headers_of(follower)] == [2, 4]


@pytest.mark.parametrize("offset", range(12))
def test_a_log_truncated_at_any_offset_accepts_further_appends(offset: int) -> None:
    log = new_log(sim_disk(), segment_bytes=300, index_interval_bytes=0)
    for number in range(6):
        append(
            log, 100 + number, 100 + number, leader_epoch=number, producer_id=1, epoch=0, sequence=2 * number
        )
    before = headers_of(log)
    assert truncate_to(log, offset)
    end = offset // 2 * 2
    assert log.log_end_offset == end
    assert headers_of(log) == before[: end // 2]
    assert log.epochs.entries == [(number, 2 * number) for number in range(end // 2)]
    entry = log.producers.get(1)
    assert (entry.last_sequence if entry else -1) == end - 1
    assert append(log, 500, producer_id=1, epoch=0, sequence=end, leader_epoch=9) == end
    assert look_up_at_once(offset_for_timestamp(log, 106)) == TimestampOffset(end, 500, 9)
    assert [header.base_offset for header in headers_of(log)] == list(range(0, end + 1, 2))
    assert truncate_to(log, end + 1) is False


def test_a_log_may_restart_at_any_offset(log: Log) -> None:
    append(log, leader_epoch=3)
    truncate_fully_and_start_at(log, 1000)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (1000, 1000, [])
    assert append(log, leader_epoch=4) == 1000
    assert log.segments[0].base_offset == 1000


def test_deleting_records_drops_the_segments_before_the_new_log_start() -> None:
    disk = sim_disk()
    log = new_log(disk, segment_bytes=300)
    for number in range(10):
        append(log, leader_epoch=number // 4)
    advance_log_start(log, 7)
    assert log.log_start_offset == 7
    assert [segment.base_offset for segment in log.segments] == [6, 9]
    assert log.epochs.entries == [(1, 7), (2, 8)]
    with pytest.raises(BrokerError):
        log.read(6, 100, upper_offset=10)
    advance_log_start(log, 3)
    assert log.log_start_offset == 7
    with pytest.raises(BrokerError) as raised:
        advance_log_start(log, 11)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    advance_log_start(log, 10)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (10, 10, 0)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == [f"{10:020d}.log"]
    assert append(log) == 10


def test_the_end_offset_of_each_leader_epoch_is_found(log: Log) -> None:
    for epoch in (2, 2, 5, 7):
        append(log, leader_epoch=epoch)
    ends = {epoch: log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 2, 3, 5, 6, 7, 8)}
    assert ends == {
        -1: (-1, -1), 0: (0, 0), 2: (2, 2), 3: (2, 2), 5: (5, 3), 6: (5, 3), 7: (7, 4), 8: (-1, -1),
    }  # fmt: skip


def test_a_disk_failure_fails_the_log_and_is_reported_once() -> None:
    disk = sim_disk()
    log = new_log(disk)
    append(log)
    told: list[OSError] = []
    log.events = LogEvents(failed=lambda _, error: told.append(error))
    disk.fail("/data", only_writes=True)
    assert refusal(log, timed_batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.mend("/data")
    assert refusal(log, timed_batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(BrokerError):
        log.read(0, 100, upper_offset=1)
    assert len(told) == 1


def test_a_slice_can_be_sent_after_its_segment_was_deleted(tmp_path: Path) -> None:
    log = new_log(OsDisk(), str(tmp_path / "flights-3"), segment_bytes=100)
    append(log)
    append(log)
    append(log)
    read = log.read(0, 1000, upper_offset=3)
    advance_log_start(log, 3)
    log.release()
    assert read.slice is not None
    assert batches.split(read.slice.read())[0].base_offset == 0
