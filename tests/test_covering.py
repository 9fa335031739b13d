"""A covering part of a matrix has every pair of values, and far fewer combinations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.covering import combinations

CLIENTS, CODECS, MODES = range(5), "abcde", (False, True)


def pairs(rows: Sequence[tuple[object, ...]]) -> set[tuple[object, ...]]:
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


@pytest.mark.parametrize(
    ("parameters", "at_most"),
    [
        ((CLIENTS, CODECS, MODES), 26),
        ((CODECS, MODES, MODES, MODES), 14),
        ((MODES, MODES), 4),
        ((CODECS,), 5),
    ],
)
def test_every_pair_of_values_is_in_a_combination(parameters: tuple[list[int], ...], at_most: int) -> None:
    chosen = combinations(*parameters, every=False)
    everything = list(itertools.product(*parameters))
    assert pairs(chosen) == pairs(everything)
    assert {value for row in chosen for value in enumerate(row)} == {
        value for row in everything for value in enumerate(row)
    }
    assert len(chosen) <= at_most
    assert chosen == [row for row in everything if row in chosen], "in the order of all combinations"


def test_all_combinations_can_be_asked_for() -> None:
    assert combinations(CODECS, MODES, every=True) == list(itertools.product(CODECS, MODES))
