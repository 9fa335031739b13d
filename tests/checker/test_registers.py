"""The key-value register is linearizable: which histories violate it, and which only look as if they did."""

from __future__ import annotations

from holdfast_log.checker.calls import ABSENT, CallHistory, KeyCall, Outcome, StoredRecords
from holdfast_log.checker.registers import register_violations

T = ("register", 0)


def put(version: int, expected: int, asked_s: float, answered_s: float, key: str = "k") -> KeyCall:
    return KeyCall(
        "anna", *T, key, True, asked_s, answered_s, Outcome.DONE, version, expected, f"put-{version}"
    )


def lost_put(value: str, expected: int, asked_s: float) -> KeyCall:
    return KeyCall("anna", *T, "k", True, asked_s, asked_s + 1.0, Outcome.UNKNOWN, ABSENT, expected, value)


def get(version: int, asked_s: float, answered_s: float, key: str = "k") -> KeyCall:
    return KeyCall("ben", *T, key, False, asked_s, answered_s, Outcome.DONE, version)


def rules(*calls: KeyCall, stored: dict[int, str] | None = None) -> list[str]:
    """The names of the violated rules."""
    history = CallHistory(keys=list(calls))
    history.stored.append(StoredRecords(*T, tuple((stored or {}).items())))
    return [text.partition(":")[0] for text in register_violations(history)]


FIRST, SECOND = put(3, ABSENT, 0.0, 1.0), put(7, 3, 2.0, 3.0)


def test_puts_and_gets_in_order_are_linearizable() -> None:
    assert rules(get(ABSENT, -2.0, -1.0), FIRST, get(3, 1.1, 1.9), SECOND, get(7, 3.1, 4.0)) == []


def test_a_get_that_misses_a_put_answered_before_is_out_of_order() -> None:
    assert rules(FIRST, SECOND, get(3, 3.1, 4.0)) == ["out of order"]
    assert rules(FIRST, get(ABSENT, 1.1, 4.0)) == ["out of order"]


def test_a_get_that_overlaps_a_put_may_see_either_version() -> None:
    assert rules(FIRST, SECOND, get(3, 2.9, 4.0)) == []
    assert rules(FIRST, SECOND, get(7, 1.5, 2.1)) == []


def test_a_get_that_sees_less_than_an_earlier_get_is_out_of_order_although_the_put_overlaps_both() -> None:
    slow = put(7, 3, 2.0, 9.0)

    assert rules(FIRST, slow, get(7, 3.0, 4.0), get(3, 5.0, 6.0)) == ["out of order"]
    assert rules(FIRST, slow, get(3, 3.0, 4.0), get(7, 5.0, 6.0)) == []


def test_a_get_of_a_put_that_was_not_asked_yet_is_out_of_order() -> None:
    assert rules(FIRST, get(7, 1.1, 1.9), SECOND) == ["out of order"]


def test_a_put_before_one_that_was_answered_earlier_is_out_of_order() -> None:
    assert "out of order" in rules(put(7, 3, 0.0, 1.0), put(3, ABSENT, 2.0, 3.0))


def test_a_put_that_did_not_find_the_version_it_expected_has_lost_an_update() -> None:
    assert rules(FIRST, put(7, ABSENT, 2.0, 3.0)) == ["lost update"]


def test_keys_are_judged_one_by_one() -> None:
    assert rules(FIRST, put(5, ABSENT, 2.0, 3.0, "other"), get(3, 4.0, 5.0), get(5, 4.0, 5.0, "other")) == []


def test_a_version_that_no_put_made_is_invented() -> None:
    assert rules(FIRST, get(4, 1.1, 2.0)) == ["invented"]


def test_a_put_without_an_answer_counts_only_if_the_log_has_it() -> None:
    lost = lost_put("x", 3, 2.0)

    assert rules(FIRST, lost, get(3, 4.0, 5.0)) == []
    assert rules(FIRST, lost, get(5, 4.0, 5.0)) == ["invented"]
    assert rules(FIRST, lost, get(3, 4.0, 5.0), get(5, 6.0, 7.0), stored={5: "x"}) == []
    assert rules(FIRST, lost, get(5, 4.0, 5.0), get(3, 6.0, 7.0), stored={5: "x"}) == ["out of order"]
    assert rules(FIRST, get(5, 1.1, 1.9), lost, stored={5: "x"}) == ["out of order"]
