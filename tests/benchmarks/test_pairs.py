"""Two loads are compared in turns, and the result has a confidence interval."""

from __future__ import annotations

import random

import pytest

from benchmarks.pairs import in_turns, median_ratio


def test_two_loads_alternate_so_that_a_drift_affects_both_alike() -> None:
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
    assert (ratio.low, ratio.high) == (0.1, 5.0), "seven ratios are too few to leave one out"


def test_outliers_among_many_rounds_hardly_move_the_interval() -> None:
    ratio = median_ratio([0.99, 1.0, 1.01] * 12 + [0.2, 7.0, 0.3, 9.0])

    assert 0.99 <= ratio.low <= 1.0 <= ratio.high <= 1.01


def test_the_interval_contains_the_true_median_in_95_percent_of_trials() -> None:
    chance = random.Random(17)
    held = 0
    for _ in range(2000):
        ratio = median_ratio([chance.lognormvariate(0.0, 0.3) for _ in range(20)])
        held += ratio.low <= 1.0 <= ratio.high

    assert held >= 0.94 * 2000


def test_the_median_of_no_ratios_is_an_error() -> None:
    with pytest.raises(ValueError, match="no ratio"):
        median_ratio([])
