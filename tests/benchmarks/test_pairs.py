"""Two ways are compared in turns, and the comparison says how sure it is."""

from __future__ import annotations

import random

import pytest

from benchmarks.pairs import in_turns, median_ratio


def test_the_two_take_turns_so_that_a_drift_weighs_on_both_alike() -> None:
    clock = iter([1.0, 2.0, 3.0, 4.0])
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return next(clock)

    assert in_turns(lambda: run("first"), lambda: run("second")) == (5.0, 5.0)
    assert order == ["first", "second", "second", "first"]


def test_the_median_lies_within_its_interval() -> None:
    ratio = median_ratio([1.0, 0.9, 1.1, 0.8, 1.2, 5.0, 0.1])

    assert (ratio.median, ratio.rounds) == (1.0, 7)
    assert (ratio.low, ratio.high) == (0.1, 5.0), "seven ratios are just enough for 95 %, and for no less"


def test_a_few_wild_rounds_among_many_move_the_interval_little() -> None:
    ratio = median_ratio([0.99, 1.0, 1.01] * 12 + [0.2, 7.0, 0.3, 9.0])

    assert 0.99 <= ratio.low <= 1.0 <= ratio.high <= 1.01


def test_the_interval_holds_the_true_median_nineteen_times_of_twenty() -> None:
    chance = random.Random(17)
    held = 0
    for _ in range(2000):
        ratio = median_ratio([chance.lognormvariate(0.0, 0.3) for _ in range(20)])
        held += ratio.low <= 1.0 <= ratio.high

    assert held >= 0.94 * 2000


def test_of_nothing_there_is_no_median() -> None:
    with pytest.raises(ValueError, match="no ratio"):
        median_ratio([])
