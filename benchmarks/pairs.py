"""Compares two loads on a machine that does other work too.

The other work changes from second to second, so runs alternate: first, second, second, first.
A drift over the four runs affects both alike. The result of many such rounds is the median of their ratios,
with the confidence interval of the true median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of ratios, with the 95 % confidence interval of the true median."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def in_turns(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Run first, second, second, first. Returns the sum of the results of each."""
    before = first()
    between = second() + second()
    return before + first(), between


def median_ratio(ratios: Sequence[float]) -> Ratio:
    """The median with its interval, by order statistics, which assume no distribution of the ratios.

    With too few ratios for 95 %, the interval spans all of them. Raises ValueError for none.
    """
    if not ratios:
        raise ValueError("there are no ratios")
    ordered = sorted(ratios)
    cut = _outside(len(ordered))
    return Ratio(statistics.median(ordered), ordered[cut], ordered[-1 - cut], len(ordered))


def _outside(count: int) -> int:
    """Number of ratios that the interval leaves out on either side: the most for which the true median lies
    beyond one end with a probability of at most 2.5 %."""
    cut = 0
    chance = 1 / 2**count
    while cut < (count - 1) // 2:
        chance += math.comb(count, cut + 1) / 2**count
        if chance > (1 - CONFIDENCE) / 2:
            break
        cut += 1
    return cut
