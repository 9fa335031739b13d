"""Transactions on lists: each anomaly is found and named, and histories without one are clean."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from holdfast_log.checker.calls import (
    CallHistory,
    ListRead,
    Outcome,
    StoredList,
    TransactionCall,
    from_lines,
    to_line,
)
from holdfast_log.checker.lists import list_violations
from holdfast_log.checker.verdict import judge

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN


def call(
    client: str,
    reads: Sequence[tuple[str, Sequence[str]]] = (),
    appends: Sequence[tuple[str, str]] = (),
    outcome: Outcome = DONE,
) -> TransactionCall:
    """A transaction that read whole lists, given with their elements, and appended to lists."""
    read = tuple(ListRead(name, len(seen), tuple(seen)) for name, seen in reads)
    return TransactionCall(client, 0.0, 1.0, outcome, read, tuple(appends))


def first_words(lists: dict[str, list[str]], *calls: TransactionCall) -> list[str]:
    return [violation.partition(":")[0] for violation in list_violations(calls, lists)]


A1 = call("a", appends=[("x", "1"), ("y", "2")])
B1 = call("b", [("x", ["1"]), ("y", ["2"])], [("x", "3"), ("y", "4")])


def test_transactions_in_one_order_are_clean() -> None:
    assert not first_words({"x": ["1", "3"], "y": ["2", "4"]}, A1, B1)


def test_writes_in_different_orders_are_g0() -> None:
    b1 = call("b", appends=[("x", "3"), ("y", "4")])
    assert first_words({"x": ["1", "3"], "y": ["4", "2"]}, A1, b1) == ["G0"]


def test_information_that_flows_in_a_circle_is_g1c() -> None:
    a, b = call("a", [("y", ["2"])], [("x", "1")]), call("b", [("x", ["1"])], [("y", "2")])
    assert first_words({"x": ["1"], "y": ["2"]}, a, b) == ["G1c"]


def test_a_lost_update_is_g_single() -> None:
    a, b = call("a", [("x", [])], [("x", "1")]), call("b", [("x", [])], [("x", "2")])
    assert first_words({"x": ["1", "2"]}, a, b) == ["G-single"]


def test_a_skewed_read_is_g_single() -> None:
    reader = call("r", [("x", ["1"]), ("y", [])], [("z", "9")])
    assert first_words({"x": ["1"], "y": ["2"], "z": ["9"]}, A1, reader) == ["G-single"]


def test_two_anti_dependencies_are_g2() -> None:
    a, b = call("a", [("y", [])], [("x", "1")]), call("b", [("x", [])], [("y", "2")])
    assert first_words({"x": ["1"], "y": ["2"]}, a, b) == ["G2"]


def test_a_cycle_of_three_is_found() -> None:
    calls = [call(client, appends=[(one, f"{client}1"), (two, f"{client}2")]) for client, one, two in
             (("a", "x", "z"), ("b", "x", "y"), ("c", "y", "z"))]  # fmt: skip
    lists = {"x": ["a1", "b1"], "y": ["b2", "c1"], "z": ["c2", "a2"]}
    assert first_words(lists, *calls) == ["G0"]


def test_elements_of_aborted_transactions_are_aborted_reads() -> None:
    aborted = call("a", appends=[("x", "1")], outcome=REFUSED)
    assert first_words({"x": ["1"]}, aborted) == ["aborted read"]
    assert "aborted read" in first_words({"x": []}, aborted, call("r", [("x", ["1"])], [("y", "0")]))


def test_a_read_between_elements_of_one_transaction_is_intermediate() -> None:
    both = call("a", appends=[("x", "1"), ("x", "2")])
    assert "intermediate read" in first_words({"x": ["1", "2"]}, both, call("r", [("x", ["1"])]))


@pytest.mark.parametrize(
    ("outcome", "expected"), [(DONE, "lost"), (UNKNOWN, "torn"), (REFUSED, "aborted read")]
)
def test_half_a_transaction_is_lost_or_torn(outcome: Outcome, expected: str) -> None:
    half = call("a", appends=[("x", "1"), ("y", "2")], outcome=outcome)
    assert first_words({"x": ["1"], "y": []}, half) == [expected]


def test_an_unknown_transaction_is_there_or_not() -> None:
    unknown = call("a", appends=[("x", "1"), ("y", "2")], outcome=UNKNOWN)
    assert not first_words({"x": [], "y": []}, unknown)
    assert not first_words({"x": ["1"], "y": ["2"]}, unknown)


def test_doubled_foreign_and_reordered_elements_are_found() -> None:
    assert first_words({"x": ["1", "1"], "y": ["2"]}, A1) == ["doubled"]
    assert first_words({"x": ["1", "?"], "y": ["2"]}, A1) == ["foreign"]
    more = call("b", appends=[("x", "3")])
    reader = call("r", [("x", ["3", "1"])])
    assert "incompatible order" in first_words({"x": ["1", "3"], "y": ["2"]}, A1, more, reader)


def test_random_serial_histories_are_clean_and_mutated_ones_are_not() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        lists: dict[str, list[str]] = {name: [] for name in "xyz"}
        calls = []
        for number in range(40):
            names = rng.sample("xyz", rng.randint(1, 3))
            reads = [(name, list(lists[name])) for name in names]
            appends = [(name, f"{number}{name}") for name in names]
            outcome = rng.choice([DONE, DONE, UNKNOWN, REFUSED])
            calls.append(call(f"c{number % 3}", reads, appends, outcome))
            for name, element in (
                appends if outcome is DONE or (outcome is UNKNOWN and rng.random() < 0.5) else ()
            ):
                lists[name].append(element)
        assert not first_words(lists, *calls)
        name = rng.choice("xyz")
        at = rng.randrange(len(lists[name]) - 1)
        lists[name][at], lists[name][at + 1] = lists[name][at + 1], lists[name][at]
        assert first_words(lists, *calls)


def test_a_history_of_lists_is_kept_in_a_file_and_judged() -> None:
    stored = [StoredList("x", ("1", "3")), StoredList("y", ("4", "2"))]
    b1 = call("b", [("x", ["1"])], [("x", "3"), ("y", "4")])
    history = from_lines(map(to_line, [A1, b1, *stored]))
    assert history.transactions == [A1, b1]
    assert history.lists == stored
    verdict = judge(history)
    assert [violation.partition(":")[0] for violation in verdict.violations] == ["G0"]
    assert not verdict.missing
    assert judge(CallHistory(transactions=[call("a")])).missing
