"""Compaction against a model: the list of all records ever written, and the rules of the Kafka design
§4.8."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.inspection import Inspection
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.retention import RetentionRule
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.compression import Compression
from holdfast_log.protocol.records import BatchBuilder
from tests.models.compaction import StoredRecord, compact, records_of
from tests.models.logs import NOW_MS, append_as_leader, new_log, read_all, restarted, sim_disk
from tests.models.retention import retain

RETENTION_MS = 100
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
RECORDS = st.lists(
    st.tuples(st.one_of(KEYS, KEYS, KEYS, st.none()), st.sampled_from([b"1", b"2", None])),
    min_size=1, max_size=4,
)  # fmt: skip
SMALL = CleanerSettings(dedupe_buffer_size_bytes=24 * 3, io_buffer_size_bytes=200)


@dataclass
class Tombstone:
    """When a tombstone may disappear, in ms: unknown until a pass covers it."""

    expires_ms: int | None = None


class CompactionMachine(RuleBasedStateMachine):
    """`written` has every record that is in the log's history, whether compaction has removed it or not."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = sim_disk()
        self.log: Log
        self.written: list[StoredRecord] = []
        self.written_ms: dict[int, int] = {}
        self.present: set[int] = set()
        self.tombstones: dict[int, Tombstone] = {}
        self.start = 0
        self.now_ms = NOW_MS
        self.disk.now_ms = lambda: self.now_ms
        self.epoch = 0
        self.sequences = {0: 0, 1: 0}
        self.has_lost_compacted = False
        """Whether a truncation has removed records that had superseded others. A copy of the log then lacks
        the last batches of producers that the log itself still remembers."""
        self.epochs_seen: list[tuple[int, int]] = []

    @initialize(segment_bytes=st.sampled_from([250, 600]), append_time=st.booleans())
    def create(self, segment_bytes: int, append_time: bool) -> None:
        self.log = new_log(
            self.disk,
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            cleanup_policy=("compact",),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=RETENTION_MS,
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
        )

    @rule(
        batches=st.lists(RECORDS, min_size=1, max_size=5),
        producer=st.sampled_from([None, 0, 1]),
        codec=st.sampled_from([Compression.NONE] * 3 + [Compression.GZIP, Compression.ZSTD]),
    )
    def produce(
        self, batches: list[list[tuple[bytes | None, bytes | None]]], producer: int | None, codec: Compression
    ) -> None:
        for rows in batches:
            builder = BatchBuilder(codec)
            for number, (key, value) in enumerate(rows):
                builder.append(self.now_ms + number, key, value)
            if producer is None:
                data = builder.build()
            else:
                sequence = self.sequences[producer]
                data = builder.build(producer_id=producer, producer_epoch=0, base_sequence=sequence)
                self.sequences[producer] += len(rows)
            # Records without keys were written while the topic was not compacted.
            self.set_policy("compact" if all(key is not None for key, _ in rows) else "delete")
            offset = append_as_leader(self.log, memoryview(data), self.epoch, now_ms=self.now_ms).first_offset
            self.set_policy("compact")
            for number, (key, value) in enumerate(rows):
                is_append_time = self.log.settings.uses_log_append_time
                timestamp = self.now_ms if is_append_time else self.now_ms + number
                record = StoredRecord(offset + number, key, value, timestamp)
                self.written.append(record)
                self.written_ms[record.offset] = self.now_ms
                self.present.add(record.offset)
                if key is not None and value is None:
                    self.tombstones[record.offset] = Tombstone()
            self.now_ms += 1

    def set_policy(self, policy: str) -> None:
        self.log.settings = replace(self.log.settings, cleanup_policy=(policy,))
        for segment in self.log.segments:
            segment.is_dense = self.log.is_dense(segment)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    @rule(passed_ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(batches=st.lists(RECORDS, min_size=1, max_size=5), passed_ms=st.sampled_from([0, RETENTION_MS]))
    def produce_and_clean(
        self, batches: list[list[tuple[bytes | None, bytes | None]]], passed_ms: int
    ) -> None:
        self.produce(batches, None, Compression.NONE)
        self.now_ms += passed_ms
        self.clean(is_small=False, withheld=0, rolls=True)

    @rule(is_small=st.booleans(), withheld=st.sampled_from([0, 0, 3, 10]), rolls=st.booleans())
    def clean(self, is_small: bool, withheld: int, rolls: bool) -> None:
        if rolls:
            self.log.roll(self.now_ms)
        flush_at_once(self.log)
        committed = max(0, self.log.log_end_offset - withheld)
        head = min(
            [each.base_offset for each in self.log.segments if each.next_offset > committed]
            + [self.log.segments.active.base_offset]
        )
        cleaning = compact(
            self.log, self.disk, self.now_ms, committed_offset=committed, settings=SMALL if is_small else None
        )
        if cleaning is None:
            return
        assert cleaning.end_offset <= head
        self.check_records(cleaned=(cleaning.end_offset, self.now_ms))
        for offset, tombstone in self.tombstones.items():
            if tombstone.expires_ms is None and offset < cleaning.end_offset:
                tombstone.expires_ms = self.now_ms + RETENTION_MS
        self.check_files()
        self.check_copy()

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        sequences = self.last_sequences(self.log)
        epochs = self.log.epochs.entries
        removed = {
            producer
            for producer in sequences
            if (entry := self.log.producers.get(producer)) and entry.batches[-1].last_offset < self.start
        }
        self.log = restarted(self.disk, self.log, is_clean=is_clean)
        kept = self.last_sequences(self.log)
        # Recovery reads from the log start on: it forgets a producer all of whose records were deleted.
        forgotten = sequences.keys() - kept.keys()
        assert forgotten <= removed
        assert kept == {each: last for each, last in sequences.items() if each not in forgotten}
        self.sequences |= dict.fromkeys(forgotten, 0)
        assert self.log.epochs.entries == epochs or self.log.epochs.entries[-1:] != epochs[-1:]
        self.check_records()

    @precondition(lambda self: self.written)
    @rule(removed=st.integers(1, 8))
    def delete_records(self, removed: int) -> None:
        self.start = min(self.start + removed, self.log.log_end_offset)
        advance_log_start(self.log, self.start, now_ms=self.now_ms)
        self.check_records()

    @rule(age_ms_max=st.sampled_from([0, 5, RETENTION_MS]))
    def expire(self, age_ms_max: int) -> None:
        """Remove old records, as cleanup.policy=compact,delete does."""
        retain(self.log, RetentionRule(age_ms_max=age_ms_max), self.log.log_end_offset, self.now_ms)
        before, self.start = self.start, self.log.log_start_offset
        assert before <= self.start
        for record in self.written:
            if before <= record.offset < self.start and record.offset in self.present:
                # A timestamp that has not come yet, perhaps of a neighbour, makes the file's age count.
                since_ms = min(record.timestamp, self.written_ms[record.offset])
                assert self.now_ms - since_ms > age_ms_max, "a record goes only once it is too old"
        self.check_records()

    @rule(bytes_max=st.sampled_from([300, 900]))
    def shorten(self, bytes_max: int) -> None:
        """Remove the oldest records beyond a size, as cleanup.policy=compact,delete does."""
        retain(self.log, RetentionRule(), self.log.log_end_offset, self.now_ms)
        size = self.log.size_bytes
        retain(self.log, RetentionRule(bytes_max=bytes_max), self.log.log_end_offset, self.now_ms)
        self.start = self.log.log_start_offset
        assert self.log.size_bytes >= min(size, bytes_max)
        self.check_records()

    @precondition(lambda self: self.written)
    @rule(removed=st.integers(0, 12))
    def truncate(self, removed: int) -> None:
        """Truncate as after an unclean election, which may remove committed and compacted records."""
        offset = max(self.start, self.log.log_end_offset - removed)
        self.has_lost_compacted |= offset < self.log.cleaned_offset
        truncate_to(self.log, offset, now_ms=self.now_ms)
        end = self.log.log_end_offset
        self.written = [record for record in self.written if record.offset < end]
        self.present = {each for each in self.present if each < end}
        self.tombstones = {each: state for each, state in self.tombstones.items() if each < end}
        self.start = min(self.start, end)
        # Records that were superseded only by truncated ones may be gone: the model forgets them.
        stored = {record.offset for record in records_of(self.log)}
        self.written = [record for record in self.written if record.offset in stored]
        self.present = stored
        entries = {producer: self.log.producers.get(producer) for producer in self.sequences}
        for producer, entry in entries.items():
            self.sequences[producer] = 0 if entry is None else entry.last_sequence + 1

    # What must hold.

    def check_records(self, cleaned: tuple[int, int] | None = None) -> None:
        """`cleaned` is the offset up to which a pass has just compacted the log, and its time."""
        stored = records_of(self.log)
        offsets = [record.offset for record in stored]
        assert offsets == sorted(set(offsets)), "compaction never changes the order"
        written = {record.offset: record for record in self.written if record.offset >= self.start}
        for record in stored:
            assert record == written.get(record.offset), "a record never changes, and none comes from nowhere"
        stored_now = set(offsets)
        gone = {each for each in self.present if each >= self.start} - stored_now
        assert stored_now <= self.present, "a record that was removed never comes back"
        last = {record.key: record.offset for record in written.values() if record.key is not None}
        end, now_ms = cleaned or (0, self.now_ms)
        for offset in gone:
            record = written[offset]
            assert offset < end, "only a pass removes records, and only below its end"
            assert record.key is not None
            if last[record.key] == offset:
                expires_ms = self.tombstones[offset].expires_ms
                assert record.value is None, "the last record of a key stays"
                is_expired = expires_ms is not None and expires_ms <= now_ms
                assert is_expired, "a tombstone stays for delete.retention.ms"
        for key, offset in last.items():
            if offset not in stored_now:
                rest = [each.offset for each in stored if each.key == key]
                assert not rest, "when a tombstone disappears, all earlier records of its key have"
        if cleaned is not None:
            kept = [record.key for record in stored if record.offset < end and record.key is not None]
            assert len(kept) == len(set(kept)), "a pass leaves one record of each key"
        self.present = stored_now

    def check_files(self) -> None:
        """The scrubber finds nothing wrong, and every offset can be read."""
        log = self.log
        for number, segment in enumerate(log.segments[:-1]):
            inspection = Inspection(
                self.disk, segment.path, segment.base_offset, segment.size,
                log.segments[number + 1].base_offset, segment.is_dense, log.epochs.entries,
                log.log_start_offset, log.settings.index_interval_bytes,
                segment.indexes.offsets.path, segment.indexes.times.path,
            )  # fmt: skip
            inspection.advance(1 << 30)
            assert inspection.damage is None and inspection.are_indexes_sound
        for offset in range(log.log_start_offset, log.log_end_offset):
            read = log.read(offset, 1, upper_offset=log.log_end_offset)
            assert read.slice is not None and read.next_offset > offset
            (header,) = split(read.slice.read())
            assert header.last_offset >= offset

    def check_copy(self) -> None:
        """A replica that copies the log learns the same epochs and sequences."""
        log = self.log
        if log.log_start_offset > 0 or self.has_lost_compacted:
            return
        copy = new_log(sim_disk(), "/data/copy-0", cleanup_policy=("compact",))
        append_as_follower(copy, memoryview(bytearray(read_all(log))), now_ms=self.now_ms)
        assert copy.log_end_offset == log.log_end_offset
        assert self.last_sequences(copy) == self.last_sequences(log)
        for epoch in range(self.epoch + 1):
            assert copy.end_offset_for_epoch(epoch)[1] in (-1, log.end_offset_for_epoch(epoch)[1])

    def last_sequences(self, log: Log) -> dict[int, int]:
        entries = {producer: log.producers.get(producer) for producer in self.sequences}
        return {
            producer: entry.last_sequence for producer, entry in entries.items() if entry and entry.batches
        }


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
