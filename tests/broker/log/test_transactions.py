"""A log's transactions against a model: what is unstable, and which aborted transactions a reader is told
of."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast_log.broker.log.aborted_index import AbortedIndex
from holdfast_log.broker.log.aborted_search import aborted_between
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.least_offsets import RUN, LeastOffsets
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.transactions import AbortedEntry, Transactions
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.protocol.batches import attributes, read_header, write_header
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.disk import SimDisk
from tests.models.logs import NOW_MS, append_as_leader, new_log, read_all, reopen, restarted, sim_disk
from tests.models.transactional import transactional_batch

PRODUCERS = st.integers(0, 3)


class Event(NamedTuple):
    """A batch of the log: records of a transaction (`commits` is None), or a marker."""

    offset: int
    next_offset: int
    producer_id: int
    commits: bool | None


def history(events: list[Event]) -> tuple[dict[int, int], list[tuple[int, int]], list[AbortedEntry]]:
    """First offset of each open transaction by producer, (first offset, marker) of all that have ended, and
    those that were aborted."""
    begun: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    aborted: list[AbortedEntry] = []
    for offset, next_offset, producer_id, commits in events:
        if commits is None:
            begun.setdefault(producer_id, offset)
        elif producer_id in begun:
            first = begun.pop(producer_id)
            ended.append((first, offset))
            if not commits:
                stable = min(begun.values(), default=next_offset)
                aborted.append(AbortedEntry(producer_id, first, offset, stable))
    return begun, ended, aborted


class TransactionMachine(RuleBasedStateMachine):
    """The model is a list of events."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = sim_disk()
        self.log: Log
        self.events: list[Event] = []
        self.high_watermark = 0
        self.coordinator = 0

    @initialize(segment_bytes=st.sampled_from([100, 400, 100_000]))
    def create(self, segment_bytes: int) -> None:
        self.log = new_log(self.disk, segment_bytes=segment_bytes, index_interval_bytes=100)

    def take(self, batch: bytearray, producer_id: int, commits: bool | None) -> None:
        result = append_as_leader(
            self.log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS
        )
        self.events.append(Event(result.first_offset, result.last_offset + 1, producer_id, commits))

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer_id: int, count: int) -> None:
        self.take(
            transactional_batch(*[b"v"] * count, producer_id=producer_id, sequence=-1), producer_id, None
        )

    @rule(producer_id=PRODUCERS, commits=st.booleans())
    def end(self, producer_id: int, commits: bool) -> None:
        marker = EndMarker(commits, self.coordinator)
        self.take(end_marker_batch(producer_id, 0, marker, NOW_MS), producer_id, commits)

    @rule()
    def flush(self) -> None:
        flush_at_once(self.log)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(removed=st.integers(0, 12))
    def truncate(self, removed: int) -> None:
        offset = max(0, self.log.log_end_offset - removed)
        truncate_to(self.log, offset)
        self.events = [event for event in self.events if event.next_offset <= self.log.log_end_offset]
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.log = restarted(self.disk, self.log, is_clean=is_clean)

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        end = self.log.log_end_offset
        self.high_watermark = max(self.high_watermark, int(share * end))

    @invariant()
    def the_same_is_unstable(self) -> None:
        begun, ended, _ = history(self.events)
        unstable = [*begun.values(), *(first for first, marker in ended if marker >= self.high_watermark)]
        first = self.log.producers.transactions.first_unstable(self.high_watermark)
        assert first == min(unstable, default=None)
        assert self.log.producers.first_open_transaction == min(begun.values(), default=None)
        assert bool(self.log.unstable) == (first is not None)

    @invariant()
    def the_same_is_aborted(self) -> None:
        _, _, aborted = history(self.events)
        assert [entry for segment in self.log.segments for entry in segment.aborted.entries()] == aborted

    @invariant()
    def readers_are_told_of_what_they_read(self) -> None:
        _, _, aborted = history(self.events)
        end = self.log.log_end_offset
        for first, last in ((0, end), (end // 3, 2 * end // 3), (end // 2, end), (0, end // 2)):
            found, until = aborted_between(self.log, first, last)
            assert until == last
            expected = [each for each in aborted if each.last_offset >= first and each.first_offset < last]
            # Behind a marker with which the log was stable up to the range's end nothing is looked for.
            stable = next((n for n, each in enumerate(aborted) if each.last_stable_offset >= last), None)
            assert found == [each for each in expected if stable is None or each in aborted[: stable + 1]]
            assert {each for each in expected if each.last_stable_offset <= last} <= set(found)
            self._the_same_is_found_in_parts(first, last)

    def _the_same_is_found_in_parts(self, first: int, last: int) -> None:
        """A reader that learns of few transactions at a time reads on from where its read has ended."""
        while first < last:
            found, until = aborted_between(self.log, first, last, 1)
            assert first < until <= last, "it gets on"
            assert (found, until) == aborted_between(self.log, first, until)
            assert sum(each.last_offset < until for each in found) <= 1
            first = until

    @invariant()
    def a_follower_has_the_same(self) -> None:
        disk = sim_disk(1)
        follower = new_log(disk, segment_bytes=200, index_interval_bytes=100)
        if self.events:
            append_as_follower(follower, memoryview(bytearray(read_all(self.log))), now_ms=NOW_MS)
        _, _, aborted = history(self.events)
        assert [entry for segment in follower.segments for entry in segment.aborted.entries()] == aborted
        assert follower.producers.first_open_transaction == self.log.producers.first_open_transaction


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_ended_transactions_behind_one_that_stays_open_are_forgotten() -> None:
    transactions = Transactions()
    transactions.begin(0)
    for number in range(1, 10_000):
        transactions.begin(2 * number)
        transactions.end(2 * number, 2 * number + 1)
        assert transactions.first_unstable(2 * number + 1) == 0
    assert len(transactions.unstable) < 200


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    producers = ProducerStates(expiration_ms=1000, max_producers=3)
    for producer_id in range(4):
        producers.update(read_header(transactional_batch(producer_id=producer_id)), producer_id, 0)
    plain = transactional_batch(producer_id=9)
    header = read_header(plain)
    write_header(
        plain, attributes=attributes(0), record_count=1, last_offset_delta=0,
        base_timestamp=header.base_timestamp, max_timestamp=header.max_timestamp,
        producer_id=9, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    producers.update(read_header(plain), 4, 0)
    producers.forget_producers(5, None)
    producers.expire(10_000)
    assert {entry.producer_id for entry in producers.entries()} == {0, 1, 2, 3}
    assert producers.first_open_transaction == 0


def test_a_log_is_flushed_after_a_truncation_of_its_only_aborted_transaction() -> None:
    log = new_log(sim_disk())
    batch = transactional_batch(sequence=-1)
    append_as_leader(log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)
    marker = end_marker_batch(7, 0, EndMarker(is_commit=False, coordinator_epoch=0), NOW_MS)
    append_as_leader(log, memoryview(marker), 0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.segments[-1].aborted.write()
    truncate_to(log, 1)
    flush_at_once(log)
    assert log.recovery_point == log.log_end_offset == 1


def test_a_sequence_of_an_ended_transaction_is_no_repeated_attempt() -> None:
    """It would be acknowledged, and lost: the batch that was written may have been aborted."""
    producers = ProducerStates()

    def check(sequence: int, epoch: int = 0) -> int | ErrorCode | None:
        """The offset at which the batch is in the log; None if it is new."""
        try:
            found = producers.check([read_header(batch(sequence, epoch))])
        except BrokerError as error:
            return error.code
        return None if found is None else found.first_offset

    def batch(sequence: int, epoch: int = 0) -> bytearray:
        return transactional_batch(producer_id=1, epoch=epoch, sequence=sequence)

    def end(offset: int, epoch: int = 0) -> None:
        marker = end_marker_batch(1, epoch, EndMarker(is_commit=False, coordinator_epoch=0), NOW_MS)
        producers.update(read_header(marker), offset, NOW_MS, marker)

    producers.update(read_header(batch(0)), 0, NOW_MS)
    producers.update(read_header(batch(1)), 1, NOW_MS)
    assert [check(sequence) for sequence in range(3)] == [0, 1, None]
    end(2)
    assert [check(sequence) for sequence in range(3)] == [ErrorCode.UNKNOWN_PRODUCER_ID] * 2 + [None]
    producers.update(read_header(batch(2)), 3, NOW_MS)
    expected = [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.UNKNOWN_PRODUCER_ID, 3, None]
    assert [check(sequence) for sequence in range(4)] == expected
    producers.restore(producers.encode(), 4)
    assert [check(sequence) for sequence in range(4)] == expected
    assert check(0, epoch=1) is None


def test_recovery_rebuilds_an_index_that_was_lost_or_is_behind() -> None:
    disk = sim_disk()
    log = new_log(disk, segment_bytes=200)

    def take(batch: bytearray) -> None:
        append_as_leader(log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)

    for number in range(6):
        take(transactional_batch(producer_id=number % 2, sequence=-1))
        if number > 2:
            take(end_marker_batch(number % 2, 0, EndMarker(is_commit=number == 4), NOW_MS))
    expected = {segment.base_offset: segment.aborted.entries() for segment in log.segments}
    assert sum(map(len, expected.values())) == 2
    disk.kill_process()
    for segment in log.segments:
        disk.remove(segment.aborted.path)
    log = reopen(disk, log, is_clean=False)
    assert {segment.base_offset: segment.aborted.entries() for segment in log.segments} == expected


def aborted_meanwhile(disk: SimDisk, count: int) -> Log:
    """A log with so many aborted transactions of one batch, all while the one at offset 0 was open, which was
    aborted at last."""
    log = new_log(disk)

    def take(batch: bytearray) -> None:
        append_as_leader(log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)

    take(transactional_batch(producer_id=0, sequence=-1))
    for _ in range(count):
        take(transactional_batch(producer_id=1, sequence=-1))
        take(end_marker_batch(1, 0, EndMarker(is_commit=False), NOW_MS))
    take(end_marker_batch(0, 0, EndMarker(is_commit=False), NOW_MS))
    return log


def entries_looked_at(log: Log, first: int, end: int) -> int:
    """How many entries of the index a look-up reads. It has to find what is in the range."""
    (segment,) = log.segments
    index, looked = segment.aborted, 0
    expected = [each for each in index.entries() if each.last_offset >= first and each.first_offset < end]
    read = AbortedIndex._read

    def counted(self: AbortedIndex, number: int, count: int) -> list[AbortedEntry]:
        nonlocal looked
        looked += count
        return read(self, number, count)

    with patch.object(AbortedIndex, "_read", counted):
        found, until = aborted_between(log, first, end)
    assert (found, until) == (expected, end)
    return looked


def a_look_up_costs_what_it_finds(count: int) -> None:
    disk = sim_disk()
    log = aborted_meanwhile(disk, count)
    for _ in range(2):
        for first in (1, count, 2 * count - 20):
            assert entries_looked_at(log, first, first + 20) <= 3 * RUN + 2 * count.bit_length()
        log = restarted(disk, log, is_clean=True)
        aborted_between(log, 1, 21)  # It reads the whole index once.


def test_behind_a_long_transaction_a_look_up_costs_what_it_finds() -> None:
    a_look_up_costs_what_it_finds(20 * RUN)


class LooksCounted(array):  # type: ignore[type-arg]
    """Counts how often a member is looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def test_rows_of_runs_are_passed_over_at_once() -> None:
    least, count = LeastOffsets(), 3 * RUN * RUN + RUN
    for number in range(count):
        least.appended(number, 10 * number)
    assert least.passed(0, 10 * count) == 0
    least._runs = looked = LooksCounted("q", least._runs)
    assert least.passed(RUN * RUN, 1) == count, "nothing began before 1 but the first entry"
    assert looked.looks == 1, "a row costs no look at its runs"
    least.cut(RUN * RUN + RUN + 5)
    assert least.passed(RUN, 1) == RUN * RUN + RUN
