"""Shrinks a failing seed: leaves out parts of its plan, as long as the same rule is still violated.

Leaving out a part changes the timing of everything else, so a failure can vanish even when that part did not
cause it. Each smaller plan is therefore tried with several lucks, and kept if it fails with one of them. A
*luck* is a second seed: it changes the random values of a run and leaves the plan as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.sim.mutation import mutated
from tests.sim.mutations import by_name
from tests.sim.parts import abbreviated, between, faults, surroundings, without
from tests.sim.plan import SHAPES, Plan
from tests.sim.scenario import Verdict, plan_of, run_plan

RUNS_MAX = 300
_LUCKS = range(4)
_SHARES = (0.1, 0.4, 0.7)
_BEFORE_S = 1.0
_AFTER_S = 0.5


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed run of a seed: without some parts of its plan, with only a part of its faulty phase, with
    another luck, or with a known bug put back. `from_s` and `until_s` are seconds since the faulty phase of
    the seed's plan began."""

    seed: int
    shape: str = "three"
    left_out: tuple[str, ...] = ()
    from_s: float = 0.0
    until_s: float = math.inf
    luck: int = 0
    bug: str | None = None

    def plan(self) -> Plan:
        """The plan of this variant. Raises ValueError if the seed's plan lacks a part that is to be left
        out."""
        plan = without(plan_of(self.seed, SHAPES[self.shape]), self.left_out)
        return between(plan, self.from_s, self.until_s)

    def run(self, *, keep_lines: int | None = 0) -> Verdict:
        if self.bug is None:
            return run_plan(self.plan(), self.seed, self.luck, keep_lines=keep_lines)
        with mutated(by_name(self.bug)):
            return run_plan(self.plan(), self.seed, self.luck, keep_lines=keep_lines)

    def command(self) -> str:
        """The shell command that runs this variant again."""
        words = ["scripts/simulate.sh"]
        if self.shape != "three":
            words += ["--shape", self.shape]
        words += ["--replay", str(self.seed)]
        if self.luck:
            words += ["--luck", str(self.luck)]
        if self.bug is not None:
            words += ["--bug", self.bug]
        if self.from_s:
            words += ["--from", f"{self.from_s:g}"]
        if self.until_s < math.inf:
            words += ["--until", f"{self.until_s:g}"]
        if self.left_out:
            words += ["--without", *abbreviated(self.left_out)]
        return " ".join(words)


def rule(violation: str) -> str:
    """The violation's text without names, numbers and values: the same text for every violation of one
    rule."""
    line = re.sub(r"^\d+\.\d+ s: ", "", violation.strip().splitlines()[-1])
    line = re.sub(r"\b[a-z_]+-\d+\b", "PARTITION", re.split(r"[{\[]", line)[0])
    return re.sub(r"\b[a-z]*\d[\w.]*", "N", line).strip()


def shrink(failing: Variant, verdict: Verdict, runs_max: int = RUNS_MAX) -> Variant:
    """The smallest variant found within `runs_max` runs that violates the rule of the verdict's first
    violation.

    `verdict` is the verdict on `failing`.
    """
    return _Shrinking(failing, rule(verdict.violations[0]), runs_max).smallest()


class _Shrinking:
    """The smallest variant so far, and how many runs are left."""

    def __init__(self, failing: Variant, rule_violated: str, runs_max: int) -> None:
        self._best = failing
        self._rule = rule_violated
        self._runs = runs_max

    def smallest(self) -> Variant:
        while True:
            before = self._best
            self._leave_out(faults)
            self._leave_out(surroundings)
            self._shorten()
            if self._best == before or self._runs <= 0:
                return self._best

    def _leave_out(self, names: Callable[[Plan], Sequence[str]]) -> None:
        """Leave out as many of the parts with these names as possible: try all of them first, then each half,
        then smaller groups."""
        size = len(names(self._best.plan()))
        while size:
            left = list(names(self._best.plan()))
            # Try the last parts first: the failure seldom needs faults that begin late.
            while left:
                chunk, left = left[-size:], left[:-size]
                there = set(names(self._best.plan()))  # Leaving out a topic also leaves out its owners.
                fewer = (*self._best.left_out, *(name for name in chunk if name in there))
                if fewer != self._best.left_out:
                    self._try(replace(self._best, left_out=fewer))
            size //= 2

    def _shorten(self) -> None:
        """Make the faulty phase end earlier, then make it begin later."""
        best, plan = self._best, self._best.plan()
        times_s = [best.from_s + strike.at_s for strike in plan.strikes]
        first_s = min(times_s, default=best.from_s) - _BEFORE_S
        last_s = max(times_s, default=best.from_s) + _AFTER_S
        until_s = best.from_s + plan.faulty_s
        for share in _SHARES:
            end_s = round(last_s + share * (until_s - last_s), 1)
            if last_s <= end_s < until_s - 0.1 and self._try(replace(best, until_s=end_s)):
                break
        best = self._best
        for share in _SHARES:
            begin_s = round(first_s - share * (first_s - best.from_s), 1)
            if best.from_s + 0.1 < begin_s <= first_s and self._try(replace(best, from_s=begin_s)):
                break

    def _try(self, smaller: Variant) -> bool:
        """Whether a smaller variant fails with some luck. If so, keep it as the smallest one found."""
        for luck in sorted(_LUCKS, key=lambda each: each != smaller.luck):
            if self._runs <= 0:
                return False
            self._runs -= 1
            lucky = replace(smaller, luck=luck)
            if any(rule(violation) == self._rule for violation in lucky.run().violations):
                self._best = lucky
                return True
        return False
