"""One log per partition: which histories violate it, and which only look as if they did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.checker.calls import (
    Action,
    AppendCall,
    CallHistory,
    DeletedLog,
    Outcome,
    OwnershipCall,
    ReadCall,
    StoredRecords,
)
from holdfast_log.checker.logs import log_violations
from holdfast_log.checker.verdict import judge

T = ("log", 0)


def append(values: str, offset: int, asked_s: float, answered_s: float | None = None) -> AppendCall:
    """An acknowledged append of one value for each letter."""
    end_s = asked_s + 0.5 if answered_s is None else answered_s
    return AppendCall("anna", *T, tuple(values), asked_s, end_s, Outcome.DONE, offset)


def unknown(values: str, asked_s: float) -> AppendCall:
    return replace(append(values, 0, asked_s), outcome=Outcome.UNKNOWN, offset=-1)


def refused(values: str, next_offset: int, asked_s: float) -> AppendCall:
    return replace(
        append(values, 0, asked_s),
        outcome=Outcome.REFUSED,
        offset=-1,
        expected_offset=0,
        next_offset=next_offset,
    )


def read(records: list[tuple[int, str]], answered_s: float = 99.0) -> ReadCall:
    return ReadCall("reader", *T, answered_s - 1.0, answered_s, tuple(records))


def rules(stored: str, *calls: AppendCall | ReadCall | OwnershipCall) -> list[str]:
    """The names of the rules that a history with this log violates; each letter is a record."""
    history = CallHistory(stored=[StoredRecords(*T, tuple(enumerate(stored)))])
    for call in calls:
        history.add(call)
    return [text.partition(":")[0] for text in log_violations(history)]


A, B = append("a", 0, 0.0), append("b", 1, 1.0)


def test_a_log_with_exactly_what_was_acknowledged_is_right() -> None:
    assert rules("abcd", A, B, append("cd", 2, 2.0), read([(0, "a"), (1, "b")]), read([(1, "b")])) == []


@pytest.mark.parametrize("stored", ["a", ""])
def test_an_acknowledged_append_that_is_not_in_the_log_is_lost(stored: str) -> None:
    assert "lost or misplaced" in rules(stored, A, B)


def test_a_partition_whose_stored_records_are_missing_is_not_judged_but_named() -> None:
    verdict = judge(CallHistory(appends=[A]))

    assert not verdict.violations and not verdict.holds
    assert "the stored records of log-0" in verdict.missing


def test_an_append_acknowledged_at_another_offset_is_misplaced() -> None:
    assert rules("ba", replace(A, asked_s=0.0, answered_s=9.0), replace(B, answered_s=9.0)) == [
        "lost or misplaced",
        "lost or misplaced",
    ]


def test_an_append_without_an_answer_may_be_in_the_log_or_not() -> None:
    assert rules("ab", A, unknown("b", 1.0)) == []
    assert rules("a", A, unknown("b", 1.0)) == []


def test_a_value_that_is_in_the_log_twice_is_doubled() -> None:
    assert rules("aba", A, B) == ["doubled"]


def test_a_value_that_no_client_wrote_is_foreign() -> None:
    assert rules("abx", A, B) == ["foreign"]


def test_a_refused_append_must_not_be_in_the_log() -> None:
    assert rules("ab", A, refused("b", 1, 1.0)) == ["not refused"]
    assert rules("a", A, refused("b", 1, 1.0)) == []


def test_a_conditional_append_at_another_offset_is_stale() -> None:
    assert rules("ab", A, replace(B, expected_offset=0)) == ["stale"]
    assert rules("ab", A, replace(unknown("b", 1.0), expected_offset=0)) == ["stale"]
    assert rules("ab", A, replace(unknown("b", 1.0), expected_offset=1)) == []


@pytest.mark.parametrize("stored", ["ab", "bxc"])
def test_a_conditional_append_that_is_in_the_log_in_parts_is_torn(stored: str) -> None:
    others = [append(letter, stored.index(letter), 0.0, 9.0) for letter in stored if letter in "ax"]
    torn = unknown("bc", 0.0)

    assert rules(stored, torn, *others) == ["torn"]


def test_an_append_before_one_that_was_answered_earlier_is_out_of_order() -> None:
    assert rules("ba", append("a", 1, 0.0, 1.0), append("b", 0, 1.1, 2.0)) == ["out of order"]
    assert rules("ba", append("a", 1, 0.0, 1.2), append("b", 0, 1.1, 2.0)) == []


def test_a_refusal_that_names_an_end_before_an_acknowledged_append_is_out_of_order() -> None:
    assert rules("ab", A, B, refused("c", 1, 2.0)) == ["out of order"]
    assert rules("ab", A, B, refused("c", 2, 2.0)) == []


def test_an_append_before_the_end_that_a_refusal_named_is_out_of_order() -> None:
    assert rules("ab", A, refused("c", 2, 2.0), append("b", 1, 3.0)) == ["out of order"]
    assert rules("ab", A, refused("c", 2, 2.0), append("b", 1, 2.2)) == []


def test_an_append_without_an_answer_that_was_asked_late_cannot_be_early_in_the_log() -> None:
    assert rules("ba", append("a", 1, 0.0, 1.0), unknown("b", 1.1)) == ["out of order"]


@pytest.mark.parametrize(
    "records",
    [[(0, "b")], [(0, "a"), (2, "c")], [(1, "b"), (0, "a")], [(3, "d")]],
    ids=["another value", "a gap", "backwards", "not in the log"],
)
def test_a_reader_that_did_not_see_a_part_of_the_log_has_misread(records: list[tuple[int, str]]) -> None:
    assert rules("abc", A, B, append("c", 2, 2.0), read(records)) == ["misread"]


def test_a_record_that_was_read_before_a_client_asked_to_append_it_is_misread() -> None:
    assert rules("ab", A, B, read([(1, "b")], answered_s=0.9)) == ["misread"]
    assert rules("ab", A, B, read([(1, "b")], answered_s=1.1)) == []


def granted(epoch: int, fence_offset: int) -> OwnershipCall:
    return OwnershipCall(
        f"client-{epoch}", "log-0", Action.CLAIM, 0.0, 99.0, Outcome.DONE, epoch, fence_offset=fence_offset
    )


def test_records_of_exclusive_producers_are_in_the_order_of_their_epochs() -> None:
    first, second = replace(A, grant=1, answered_s=9.0), replace(B, grant=2, answered_s=9.0)

    assert rules("ab", first, second) == []
    assert rules("ab", replace(first, grant=3), second) == ["fenced"]


def test_a_record_at_or_behind_the_fence_of_a_later_epoch_is_stale() -> None:
    late = replace(B, grant=1)

    assert rules("ab", replace(A, grant=1), late, granted(1, 0), granted(2, 1)) == ["fenced"]
    assert rules("ab", replace(A, grant=1), late, granted(1, 0), granted(2, 2)) == []


def test_a_record_before_its_own_epochs_fence_was_written_too_early() -> None:
    assert rules("ab", A, replace(B, grant=2), granted(2, 2)) == ["fenced"]


def attempt(call: AppendCall, expected_offset: int = -1) -> AppendCall:
    return replace(call, append_id="payment", expected_offset=expected_offset)


def test_a_repeated_append_with_an_id_is_one_append() -> None:
    first, again = attempt(append("b", 1, 1.0), 1), attempt(append("b", 1, 5.0), 2)
    refusal = attempt(replace(refused("b", 2, 6.0), expected_offset=7))

    assert rules("abc", A, first, append("c", 2, 2.0), again) == []
    assert rules("abc", A, first, append("c", 2, 2.0), refusal) == []


def test_a_repeated_append_that_is_appended_again_is_doubled() -> None:
    first, again = attempt(append("b", 1, 1.0), 1), attempt(append("b", 2, 5.0), 2)

    assert rules("abb", A, first, again) == ["doubled"]


def test_an_append_that_no_attempt_expected_there_is_stale() -> None:
    assert rules("ab", A, attempt(append("b", 1, 1.0), 0), attempt(append("b", 1, 2.0), 2)) == ["stale"] * 2


def in_line(call: AppendCall, place: int) -> AppendCall:
    return replace(call, line="anna/1", in_line=place)


def test_nothing_is_appended_behind_a_refused_append_of_its_line() -> None:
    refusal = in_line(refused("x", 1, 1.0), 0)
    behind = replace(in_line(append("b", 1, 1.0), 1), expected_offset=1)

    assert rules("ab", A, refusal, behind) == ["behind a refused one"]
    assert rules("ab", A, refusal, replace(unknown("b", 1.0), line="anna/1", in_line=1)) == [
        "behind a refused one"
    ]


def test_an_append_before_a_refused_one_or_of_another_line_is_right() -> None:
    refusal = in_line(refused("x", 2, 1.0), 1)

    assert rules("ab", A, in_line(append("b", 1, 1.0), 0), refusal) == []
    assert (
        rules("ab", A, replace(refusal, line="anna/2", next_offset=1), in_line(append("b", 1, 1.0), 2)) == []
    )


def test_a_record_of_a_deleted_topic_is_foreign_in_the_new_one() -> None:
    old = replace(append("b", 0, 1.0), topic="log@1")
    history = CallHistory(stored=[StoredRecords("log@2", 0, ((0, "b"),))], appends=[old])
    history.deleted.append(DeletedLog("log@1", 0))

    verdict = judge(history)

    assert [text.partition(":")[0] for text in verdict.violations] == ["foreign"]
    assert not [what for what in verdict.missing if "log@1" in what]


def test_no_record_of_a_stranger_is_within_a_grant() -> None:
    owned = [replace(append(value, offset, float(offset)), grant=7) for offset, value in ((0, "a"), (2, "c"))]
    stranger, later = append("b", 1, 1.0), append("d", 3, 3.0)

    assert rules("abcd", *owned, stranger, later) == ["within a grant"]
    assert rules("abcd", *owned, replace(stranger, grant=7), later) == []
    assert rules("abcd", owned[0], stranger, replace(owned[1], grant=8), later) == []
