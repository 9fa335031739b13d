"""Which combinations of parameters the tests run: those that cover every pair of values, or all.

A test with three parameters or more that starts processes for each combination takes minutes, and most of its
combinations go the same ways. By default the tests run so few that each value of a parameter meets each value
of every other parameter once. `HOLDFAST_ALL_COMBINATIONS=1`, which scripts/test-campaigns.sh sets, runs all.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

ALL = os.environ.get("HOLDFAST_ALL_COMBINATIONS", "0") not in ("", "0")


def combinations(*parameters: Sequence[Hashable], every: bool = ALL) -> list[tuple[Hashable, ...]]:
    """The combinations to run, in the order in which nested loops give them. Each parameter has the list of
    its values."""
    found = list(itertools.product(*parameters))
    return found if every else _covering(found)


def _covering(candidates: Sequence[tuple[Hashable, ...]]) -> list[tuple[Hashable, ...]]:
    """So few of the candidates that every pair of values is in one of them: always the one with most new
    pairs, of several the one whose values were chosen least often."""
    missing = {pair for candidate in candidates for pair in _pairs(candidate)}
    uses: Counter[tuple[int, Hashable]] = Counter()
    chosen = set()

    def gain(candidate: tuple[Hashable, ...]) -> tuple[int, int]:
        new = sum(pair in missing for pair in _pairs(candidate))
        return new, -sum(uses[value] for value in enumerate(candidate))

    while missing:
        best = max(candidates, key=gain)
        chosen.add(best)
        missing.difference_update(_pairs(best))
        uses.update(enumerate(best))
    return [candidate for candidate in candidates if candidate in chosen]


def _pairs(candidate: tuple[Hashable, ...]) -> Iterator[tuple[tuple[int, Hashable], ...]]:
    """The pairs of values in a combination, each value with the number of its parameter."""
    yield from itertools.combinations(enumerate(candidate), min(2, len(candidate)))
