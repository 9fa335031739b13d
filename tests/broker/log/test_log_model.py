"""A log against a model list: after any operations in any order, both give the same answers."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.retention import RetentionRule
from holdfast_log.broker.log.time_search import offset_for_timestamp
from holdfast_log.broker.log.timestamps import TimestampOffset
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.protocol import batches
from tests.models.batches import timed_batch
from tests.models.logs import (
    NOW_MS,
    append_as_leader,
    headers_of,
    look_up_at_once,
    new_log,
    restarted,
    sim_disk,
)
from tests.models.retention import retain

TIMESTAMPS = st.integers(0, 50)
APPENDED = st.lists(st.lists(TIMESTAMPS, min_size=1, max_size=4), min_size=1, max_size=12)


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches: (base offset, leader epoch, the records' timestamps)."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = sim_disk()
        self.log: Log
        self.model: list[tuple[int, int, tuple[int, ...]]] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequence = 0

    @initialize(
        segment_bytes=st.sampled_from([150, 400, 1000, 100_000]),
        interval=st.sampled_from([0, 100, 300, 4096]),
        index_bytes=st.sampled_from([24, 48, 10_000]),
        appended=APPENDED,
    )
    def create(self, segment_bytes: int, interval: int, index_bytes: int, appended: list[list[int]]) -> None:
        self.log = new_log(
            self.disk,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
        )
        self.append(appended, size=20, new_epoch=False)

    @rule(appended=APPENDED, size=st.integers(0, 150), new_epoch=st.booleans())
    def append(self, appended: list[list[int]], size: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        for timestamps in appended:
            records = timed_batch(*timestamps, size=size, producer_id=3, epoch=0, sequence=self.sequence)
            # What clients may not send, brokers may.
            fits = len(records) <= self.log.settings.segment_bytes
            origin = AppendOrigin.CLIENT if fits else AppendOrigin.COORDINATOR
            offset = append_as_leader(
                self.log, records, self.epoch, origin=origin, now_ms=NOW_MS
            ).first_offset
            assert offset == self.end
            self.sequence += len(timestamps)
            self.model.append((offset, self.epoch, tuple(timestamps)))
            self.end += len(timestamps)

    @rule()
    def roll(self) -> None:
        self.log.roll(0)

    @rule()
    def flush(self) -> None:
        flush_at_once(self.log)
        assert self.log.recovery_point == self.end

    @precondition(lambda self: self.end > self.start)
    @rule(removed=st.integers(0, 40), continues_epoch=st.booleans())
    def truncate(self, removed: int, continues_epoch: bool) -> None:
        """Truncate the log, as a follower does. With `continues_epoch` the leader never had the removed
        records: the next batches are of the same leader epoch as the last batch that is left."""
        offset = max(self.start, self.end - removed)
        truncate_to(self.log, offset)
        self.model = [entry for entry in self.model if entry[0] + len(entry[2]) <= offset]
        if offset < self.end:
            self.end = max(
                self.model[-1][0] + len(self.model[-1][2]) if self.model else 0,
                self.log.segments[0].base_offset,
            )
        self.start = min(self.start, self.end)
        if continues_epoch:
            self.epoch = self.model[-1][1] if self.model else 0
        # The producer continues at the end of the log, or of its remembered batches.
        entry = self.log.producers.get(3)
        self.sequence = entry.last_sequence + 1 if entry and entry.batches else 0

    @rule(removed=st.integers(1, 8))
    def delete_records(self, removed: int) -> None:
        offset = min(self.start + removed, self.end)
        advance_log_start(self.log, offset)
        self.start = offset

    @rule(now_ms=TIMESTAMPS, age_ms_max=st.integers(0, 20), withheld=st.sampled_from([0, 0, 5]))
    def retain_by_age(self, now_ms: int, age_ms_max: int, withheld: int) -> None:
        high_watermark = max(self.start, self.end - withheld)
        retain(self.log, RetentionRule(age_ms_max=age_ms_max), high_watermark, now_ms)
        before, self.start = self.start, self.log.log_start_offset
        assert before <= self.start <= max(before, high_watermark)
        for base, _, timestamps in self.model:
            if before <= base < self.start:
                assert now_ms - max(timestamps) > age_ms_max, "a record goes only once it is too old"
        first = self.log.segments[0]
        if first.size and first.next_offset <= high_watermark:
            latest_ms = max(
                max(timestamps)
                for base, _, timestamps in self.model
                if first.base_offset <= base < first.next_offset
            )
            assert now_ms - latest_ms <= age_ms_max, "a segment whose records are all too old goes"

    @rule(bytes_max=st.integers(0, 2000), withheld=st.sampled_from([0, 0, 5]))
    def retain_by_size(self, bytes_max: int, withheld: int) -> None:
        high_watermark = max(self.start, self.end - withheld)
        # Segments before the log start go whatever the limit.
        retain(self.log, RetentionRule(), high_watermark, 0)
        size = self.log.size_bytes
        retain(self.log, RetentionRule(bytes_max=bytes_max), high_watermark, 0)
        before, self.start = self.start, self.log.log_start_offset
        assert before <= self.start <= max(before, high_watermark)
        assert self.log.size_bytes >= min(size, bytes_max), "the log keeps what the limit allows"
        first = self.log.segments[0]
        if first.size and first.next_offset <= high_watermark:
            assert self.log.size_bytes - first.size < bytes_max, "the log keeps no more than the limit allows"

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        before = indexes_of(self.log, with_active=is_clean)
        self.log = restarted(self.disk, self.log, is_clean=is_clean)
        assert indexes_of(self.log, with_active=is_clean) == before

    @rule(max_bytes=st.integers(0, 1500), behind=st.integers(0, 15))
    def read_from_everywhere(self, max_bytes: int, behind: int) -> None:
        for offset in range(self.start, self.end + 1):
            self.read(offset, max_bytes, max(self.start, self.end - behind))

    def read(self, offset: int, max_bytes: int, upper_offset: int) -> None:
        read = self.log.read(offset, max_bytes, upper_offset=upper_offset)
        below = [
            base
            for base, _, timestamps in self.model
            if base + len(timestamps) > offset and base + len(timestamps) <= upper_offset
        ]
        if read.slice is None:
            assert not below
            return
        headers = batches.split(read.slice.read())
        got = [header.base_offset for header in headers]
        assert got == below[: len(got)]
        assert len(got) == 1 or len(read.slice) <= max_bytes
        assert read.next_offset == headers[-1].next_offset

    @rule(timestamp=TIMESTAMPS)
    def look_up(self, timestamp: int) -> None:
        expected = next(
            (
                TimestampOffset(base + delta, record_timestamp, epoch)
                for base, epoch, timestamps in self.model
                for delta, record_timestamp in enumerate(timestamps)
                if record_timestamp >= timestamp and base + delta >= self.start
            ),
            None,
        )
        assert look_up_at_once(offset_for_timestamp(self.log, timestamp)) == expected

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        expected = [
            (base, epoch) for base, epoch, timestamps in self.model if base + len(timestamps) > self.start
        ]
        assert [(header.base_offset, header.leader_epoch) for header in headers_of(self.log)] == expected

    @invariant()
    def it_knows_the_leader_epoch_of_every_batch(self) -> None:
        if not hasattr(self, "log"):
            return
        for base, epoch, timestamps in self.model:
            if base + len(timestamps) > self.start:
                assert self.log.epochs.epoch_at(max(base, self.start)) == epoch

    @invariant()
    def its_offset_indexes_lead_to_batches_at_the_interval_that_is_set(self) -> None:
        if not hasattr(self, "log"):
            return
        for segment in self.log.segments:
            index = segment.indexes.offsets
            entries = dict(index.pairs())
            indexed = last = 0
            for header in segment.headers(0):
                last = header.position
                if entries.pop(header.last_offset - segment.base_offset, None) == last:
                    indexed = last
                assert last - indexed <= self.log.settings.index_interval_bytes
            assert not entries, "an entry leads to no batch"
            if segment is not self.log.segments[-1]:
                assert indexed == last or index.is_full


def indexes_of(log: Log, *, with_active: bool) -> list[tuple[object, ...]]:
    """What the segments have, with the entries of their offset indexes. Those of the active segment may
    change when they are rebuilt: the last batch of a closed segment has an entry of its own, which stays if a
    truncation makes that segment active again."""
    active = log.segments.active
    return [
        (
            segment.base_offset,
            segment.size,
            segment.indexes.offsets.pairs() if with_active or segment is not active else (),
            segment.max_timestamp,
        )
        for segment in log.segments
    ]


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(
    max_examples=200, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
