"""Failing seeds are shrunk: the plan gets smaller, the same rule is violated, and the printed command repeats
the failure."""

from __future__ import annotations

import pytest

from tests.sim import parts
from tests.sim.account import account
from tests.sim.campaign import variant
from tests.sim.mutations import by_name, hunt
from tests.sim.scenario import plan_of, run_plan
from tests.sim.shrink import Variant, rule, shrink

SEEDS = range(1, 41)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_part_of_a_plan_can_be_left_out(seed: int) -> None:
    plan = plan_of(seed)
    names = [*parts.faults(plan), *parts.surroundings(plan)]
    for name in names:
        fewer = parts.without(plan, [name])
        assert name not in [*parts.faults(fewer), *parts.surroundings(fewer)]
    nothing = parts.without(plan, names)
    assert [*parts.faults(nothing), *parts.surroundings(nothing)] == []
    assert (len(nothing.topics), len(nothing.consumers), len(nothing.producers)) == (1, 1, 0)


def test_a_part_that_the_plan_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="the plan has no fault99, p9"):
        parts.without(plan_of(1), ["p9", "fault99"])


def test_a_run_of_a_plan_without_its_parts_has_no_violation() -> None:
    plan = plan_of(1)
    nothing = parts.without(plan, [*parts.faults(plan), *parts.surroundings(plan)])
    assert run_plan(nothing, 1, keep_lines=0).holds


def test_a_part_of_the_faulty_phase_keeps_its_faults_and_their_numbers() -> None:
    plan = plan_of(1)
    first, last = plan.strikes[1], plan.strikes[-2]
    middle = parts.between(plan, first.at_s, last.at_s)
    assert middle.faulty_s == last.at_s - first.at_s
    assert [strike.number for strike in middle.strikes] == [strike.number for strike in plan.strikes[1:-2]]
    assert middle.strikes[0].at_s == 0.0
    assert parts.between(plan, 0.0, float("inf")) == plan


def test_names_of_consecutive_faults_are_abbreviated() -> None:
    names = ["fault1", "fault2", "fault3", "fault7", "p0", "loose"]
    assert parts.abbreviated(names) == ["fault1-3", "fault7", "p0", "loose"]
    assert parts.in_full(parts.abbreviated(names)) == names


def test_another_luck_changes_the_events_of_the_same_plan() -> None:
    plan = plan_of(1)
    assert run_plan(plan, 1, luck=1, keep_lines=0).digest != run_plan(plan, 1, keep_lines=0).digest


@pytest.mark.parametrize(
    "one, other",
    [
        (
            "15.6857 s: batch 18 of p0 for t-2 was refused with OUT_OF_ORDER_SEQUENCE_NUMBER",
            "7.1 s: batch 2 of p1 for loose-0 was refused with OUT_OF_ORDER_SEQUENCE_NUMBER",
        ),
        ("the cluster did not heal: {'t': 1}, {}", "the cluster did not heal: {'t': 2, 'moving': 3}, {}"),
        ("b1 at 3.2 s: Traceback\n  File x, line 7\nKeyError: 5", "b2 at 4.0 s: Traceback\nKeyError: 17"),
    ],
)
def test_violations_of_one_rule_are_recognized(one: str, other: str) -> None:
    assert rule(one) == rule(other)


def test_violations_of_different_rules_are_distinguished() -> None:
    violations = ["t-0 lost batch 1 of p0 for t-0", "t-0 has a record of batch 1 of p0 for t-0 2 times"]
    assert len({rule(violation) for violation in violations}) == 2


@pytest.fixture(scope="module")
def failing() -> Variant:
    """A seed that fails because of a known bug."""
    found = hunt(by_name("dedupe-lost"), first_seed=1, seeds=60)
    assert found is not None
    return Variant(found[0], bug="dedupe-lost")


@pytest.mark.timeout(900)
def test_a_failing_seed_is_shrunk_and_described(failing: Variant) -> None:
    verdict = failing.run()
    smallest = shrink(failing, verdict, runs_max=25)
    told_again = smallest.run(keep_lines=None)
    before, after = failing.plan(), smallest.plan()
    assert len(after.strikes) < len(before.strikes)
    assert rule(verdict.violations[0]) in map(rule, told_again.violations)
    assert "This was violated:" in list(account(after, told_again))
    words = smallest.command().split()
    again = variant(words[1:])
    assert again.plan() == after
    assert again.luck == smallest.luck


def test_a_seed_that_cannot_be_shrunk_further_is_returned_unchanged(failing: Variant) -> None:
    assert shrink(failing, failing.run(), runs_max=0) == failing
