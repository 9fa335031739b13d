"""Appending rows at fixed offsets: attempts that are killed, overlap, or meet records of other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.pipeline.jobs import append
from holdfast_log.pipeline.jobs.append import AppendCounts, ForeignRecordsError, OutRow, append_rows
from holdfast_log.protocol.errors import OffsetMismatchError

ROWS = [OutRow(b"k", b"%d" % number) for number in range(10)]
BEFORE = OutRow(None, b"before")


class KilledError(BaseException):
    """The attempt ends here."""


@dataclass
class Answer:
    error: Exception | None

    def result(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class Log:
    """A partition. `before_append` runs before each append is judged, as another writer may."""

    held: list[OutRow] = field(default_factory=list)
    before_append: Callable[[], None] = lambda: None
    appends: int = 0

    def end(self) -> int:
        return len(self.held)

    def record_at(self, offset: int) -> OutRow:
        return self.held[offset]

    def append(self, offset: int, rows: Sequence[OutRow]) -> Answer:
        self.before_append()
        self.appends += 1
        if len(self.held) != offset:
            return Answer(OffsetMismatchError(next_offset=len(self.held)))
        self.held += rows
        return Answer(None)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "CHUNK_ROWS", 3)


def test_rows_are_appended_behind_what_was_there() -> None:
    log = Log([BEFORE, BEFORE])

    assert append_rows(ROWS, log, 2) == AppendCounts(10, 0)
    assert log.held == [BEFORE, BEFORE, *ROWS]


def test_a_second_attempt_appends_nothing() -> None:
    log = Log([BEFORE, *ROWS])

    assert append_rows(ROWS, log, 1) == AppendCounts(0, 10)
    assert log.appends == 0


@given(st.integers(0, 12))
def test_an_attempt_that_is_killed_anywhere_is_completed_by_the_next(dies_at: int) -> None:
    log = Log([BEFORE])

    def die() -> None:
        if log.appends == dies_at:
            raise KilledError

    log.before_append = die
    try:
        append_rows(ROWS, log, 1)
    except KilledError:
        log.before_append = lambda: None
        append_rows(ROWS, log, 1)

    assert log.held == [BEFORE, *ROWS]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_two_attempts_at_once_write_each_row_once(steps: list[int]) -> None:
    log = Log([BEFORE])
    numbers = iter(steps)

    def other_attempt() -> None:
        written = len(log.held) - 1
        log.held += ROWS[written : written + next(numbers, 0)]

    log.before_append = other_attempt
    done = append_rows(ROWS, log, 1)

    assert log.held == [BEFORE, *ROWS]
    assert done.appended + done.present == 10


@pytest.mark.parametrize(
    ("there", "is_the_row"),
    [
        (OutRow(b"k", b"v", (("h", b"1"),), 7), True),
        (OutRow(b"k", b"v", (("h", b"1"),), None), True),  # The broker has set the time.
        (OutRow(b"k", b"v", (("h", b"1"),), 8), False),
        (OutRow(b"k", b"v", (("h", b"2"),), 7), False),
        (OutRow(b"k", b"v", (), 7), False),
    ],
)
def test_headers_and_the_time_that_a_row_gives_belong_to_the_comparison(
    there: OutRow, is_the_row: bool
) -> None:
    row = OutRow(b"k", b"v", (("h", b"1"),), 7)

    if is_the_row:
        assert append_rows([row], Log([there]), 0) == AppendCounts(0, 1)
        return
    with pytest.raises(ForeignRecordsError):
        append_rows([row], Log([there]), 0)


def test_a_row_without_a_time_is_the_record_whatever_its_time_is() -> None:
    assert append_rows([OutRow(b"k", b"v")], Log([OutRow(b"k", b"v", (), 7)]), 0).present == 1


def test_a_record_of_another_program_before_the_first_append_is_noticed() -> None:
    log = Log([BEFORE, BEFORE])

    with pytest.raises(ForeignRecordsError, match="the record at offset 1 is not row 0 of this job"):
        append_rows(ROWS, log, 1)


def test_a_record_of_another_program_in_between_is_noticed_and_nothing_is_written_behind_it() -> None:
    log = Log([])
    log.before_append = lambda: log.held.append(BEFORE) if log.appends == 2 else None

    with pytest.raises(ForeignRecordsError, match="the record at offset 6"):
        append_rows(ROWS, log, 0)

    assert log.held[6:] == [BEFORE]


def test_records_of_another_program_behind_the_rows_are_noticed() -> None:
    with pytest.raises(ForeignRecordsError, match="the log ends at 12, but the rows end at 10"):
        append_rows(ROWS, Log([*ROWS, BEFORE, BEFORE]), 0)


def test_a_log_that_is_shorter_than_planned_is_refused() -> None:
    with pytest.raises(ForeignRecordsError, match="the log ends at 0, before offset 4"):
        append_rows(ROWS, Log([]), 4)
