"""Each row is in the log once, whichever attempts run and wherever they stop."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.pipeline.sink.chunks import RowColumns, SinkRow
from holdfast_log.pipeline.sink.line import LogShrankError, RowsDifferError, WrittenRowsGoneError
from tests.pipeline.sink.in_memory import IDENTITY, Attempt, MemoryLog

PREFIX = IDENTITY.prefix


def rows_of(*values: str) -> list[SinkRow]:
    return [(None, value.encode(), ()) for value in values]


def test_rows_are_cut_into_chunks_and_written_in_order() -> None:
    log = MemoryLog()

    attempt = Attempt(log, rows_of("a", "b", "c", "d", "e"))
    attempt.run()

    assert [len(batch.rows) for batch in log.batches] == [2, 2, 1]
    assert log.rows_of(PREFIX) == rows_of("a", "b", "c", "d", "e")
    assert (attempt.line.counts.rows, attempt.line.counts.chunks, attempt.line.end_offset) == (5, 3, 5)


def test_a_second_attempt_writes_nothing_again() -> None:
    log = MemoryLog()
    Attempt(log, rows_of("a", "b", "c")).run()

    second = Attempt(log, rows_of("a", "b", "c"))
    second.run()

    assert log.rows_of(PREFIX) == rows_of("a", "b", "c")
    assert (second.line.counts.rows, second.line.counts.rows_found) == (0, 3)
    assert second.line.counts.repeats == 2


def test_an_attempt_completes_what_an_earlier_one_began_in_another_order() -> None:
    log = MemoryLog()
    first = Attempt(log, rows_of("a", "b", "a", "c", "d"))
    while len(log.batches) < 1:
        first.step()

    second = Attempt(log, rows_of("d", "a", "c", "b", "a"))
    second.run()

    assert Counter(log.rows_of(PREFIX)) == Counter(rows_of("a", "b", "a", "c", "d"))
    assert second.line.counts.reorders == 1


def test_a_zombie_that_wakes_after_its_successor_has_finished_writes_nothing() -> None:
    log = MemoryLog()
    zombie = Attempt(log, rows_of("a", "b", "c", "d"))
    while len(log.batches) < 1:
        zombie.step()
    Attempt(log, rows_of("a", "b", "c", "d")).run()
    after = list(log.batches)

    zombie.run()

    assert log.batches == after
    assert zombie.line.counts.conflicts + zombie.line.counts.repeats > 0


@pytest.mark.parametrize("says_reach", [True, False])
def test_a_chunk_whose_id_the_broker_has_forgotten_is_found_by_reading_back(says_reach: bool) -> None:
    log = MemoryLog(ids_max=2, says_reach=says_reach)
    Attempt(log, rows_of("a")).run()
    for number in range(5):
        log.append(rows_of("other"), number.to_bytes(16))

    second = Attempt(log, rows_of("a"))
    second.run()

    assert log.rows_of(PREFIX) == rows_of("a")
    assert second.line.counts.scans > 0


def test_other_writers_cost_a_conflict_and_no_scan_where_the_broker_remembers_all_ids() -> None:
    log = MemoryLog()
    log.append(rows_of("first"), b"0" * 16)
    attempt = Attempt(log, rows_of("a", "b", "c"))
    while not log.rows_of(PREFIX):
        attempt.step()
    log.append(rows_of("other"))
    attempt.run()

    assert log.rows_of(PREFIX) == rows_of("a", "b", "c")
    assert attempt.line.counts.conflicts == 2
    assert attempt.line.counts.scans == 0


def test_rows_that_a_retry_did_not_receive_are_reported() -> None:
    log = MemoryLog()
    Attempt(log, rows_of("a", "b", "c", "d")).run()

    for rows in (rows_of("a", "b", "c", "e"), rows_of("a", "b")):
        with pytest.raises(RowsDifferError, match="did not receive"):
            Attempt(log, rows).run()


def test_a_chunk_that_retention_has_deleted_is_reported() -> None:
    log = MemoryLog()
    first = Attempt(log, rows_of("a", "b", "c"))
    while len(log.batches) < 1:
        first.step()
    second = Attempt(log, rows_of("a", "b", "c"))
    while second.line.counts.chunks == 0 and second.line.next_step() is None:
        second.step()
    second.line.repeated(0)

    with pytest.raises(WrittenRowsGoneError, match="Retention"):
        second.line.scanned([], 1)


def test_a_log_that_has_lost_acknowledged_records_is_reported() -> None:
    log = MemoryLog()
    attempt = Attempt(log, rows_of("a", "b", "c"))
    while len(log.batches) < 1:
        attempt.step()
    attempt.line.finish()

    with pytest.raises(LogShrankError, match="unclean election"):
        attempt.line.mismatched(0)


def test_rows_are_compared_with_their_keys_and_headers() -> None:
    rows: list[SinkRow] = [(b"k", None, (("h", b"1"), ("n", None))), (None, b"v", ())]
    log = MemoryLog()
    Attempt(log, rows).run()

    second = Attempt(log, rows)
    second.run()

    assert second.line.counts.rows_found == 2
    assert second.line.counts.reorders == 0


_MOVES = st.lists(
    st.tuples(
        st.integers(0, 3),  # which of the attempts that live
        st.sampled_from(["step"] * 12 + ["lost", "crash", "new", "new", "other"]),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.sampled_from("abcd"), max_size=9),
    moves=_MOVES,
    is_shuffled=st.booleans(),
    data=st.data(),
    ids_max=st.sampled_from([1, 2, 3, 1000]),
    says_reach=st.booleans(),
    compares_rows=st.booleans(),
    before=st.integers(0, 3),
)
def test_each_row_is_written_exactly_once(
    values: list[str],
    moves: list[tuple[int, str]],
    is_shuffled: bool,
    data: st.DataObject,
    ids_max: int,
    says_reach: bool,
    compares_rows: bool,
    before: int,
) -> None:
    log = MemoryLog(ids_max, says_reach, compares_rows)
    for number in range(before):
        log.append(rows_of("before"), None if number % 2 else number.to_bytes(16))
    start = log.end
    wanted = rows_of(*values)

    def attempt() -> Attempt:
        order = data.draw(st.permutations(wanted)) if is_shuffled else wanted
        return Attempt(log, list(order), start, rows_max=data.draw(st.integers(1, 3)) if is_shuffled else 2)

    living = [attempt()]
    for which, move in moves:
        chosen = living[which % len(living)]
        match move:
            case "step" | "lost":
                chosen.step(loses_answer=move == "lost")
            case "crash" if len(living) > 1:
                living.remove(chosen)
            case "new":
                living.append(attempt())
            case "other":
                log.append(rows_of("other", "other"), len(log.batches).to_bytes(16) if which % 2 else None)
        written = Counter(log.rows_of(PREFIX))
        assert written <= Counter(wanted)
        for each in living:
            if each.is_done:
                assert written == Counter(wanted)
    attempt().run()
    found = log.rows_of(PREFIX)
    assert Counter(found) == Counter(wanted)
    if not is_shuffled:
        assert found == wanted
    for zombie in living:
        zombie.run()
    assert log.rows_of(PREFIX) == found


def test_buffers_cut_at_the_same_rows_whatever_parts_they_are_given() -> None:
    from holdfast_log.pipeline.sink.chunks import RowBuffer

    rows = [(None, bytes(size), ()) for size in (10, 50, 20, 200, 5, 5, 5, 70)]

    def cuts(part: int) -> list[int]:
        buffer, sizes = RowBuffer(100, 3), []
        for start in range(0, len(rows), part):
            buffer.add(RowColumns.of(rows[start : start + part]))
            while buffer.is_full:
                sizes.append(len(buffer.cut()))
        while len(buffer):
            sizes.append(len(buffer.cut()))
        return sizes

    assert cuts(1) == cuts(3) == cuts(8)
