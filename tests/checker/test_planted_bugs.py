"""The checker finds known bugs in real brokers: those that it finds within seconds, one after the other on
one cluster, by default one for each part of the load and its faults. `HOLDFAST_ALL_COMBINATIONS=1` has all of
them, and `scripts/check-history.sh --planted-bugs` those that take longer, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.checker.cluster import checked_cluster
from holdfast_log.checker.faults import BrokerFault
from holdfast_log.checker.parts import RECIPES, LoadPart
from tests.checker.planted_bugs import PLANTED, PlantedBug, hunt
from tests.checker.planting import Planting
from tests.covering import ALL
from tests.sim.mutations import by_name

SECONDS = 120.0
"""Longest hunt for one bug: a hunt takes a second or two, but the machine may be busy."""
LONG_SESSIONS = {"zookeeper.session.timeout.ms": "60000"}
"""None of these faults lets a session end, and on a busy machine none does."""
SLOW_FAULTS = (BrokerFault.RESTART, BrokerFault.CUT_ZOOKEEPER)


def is_quick(bug: PlantedBug) -> bool:
    return not bug.from_start and not set(bug.faults) & set(SLOW_FAULTS)


def chosen() -> list[PlantedBug]:
    """The quick bugs, or the first of those that the same clients and faults show."""
    quick = [bug for bug in PLANTED if is_quick(bug)]
    first = {(tuple(bug.parts), tuple(bug.faults)): bug for bug in reversed(quick)}
    return quick if ALL else [bug for bug in quick if bug in first.values()]


@pytest.mark.timeout(1800)
def test_known_bugs_in_real_brokers_are_found_and_nothing_is_found_without_them(tmp_path: Path) -> None:
    planting = Planting(tmp_path / "planting")
    healthy = PlantedBug("", tuple(LoadPart), rules=[""])
    with checked_cluster(tmp_path / "cluster", planting.python_arguments, LONG_SESSIONS) as cluster:
        hunts = [(bug, hunt(cluster, planting, bug, SECONDS)) for bug in chosen()]
        nothing = hunt(cluster, planting, healthy, seconds=0.0)

    assert not [(bug.name, ended) for bug, ended in hunts if not ended.found(bug)]
    assert not nothing.violations and not nothing.troubles


def test_every_part_of_the_load_that_shows_a_quick_bug_shows_one_of_those_that_are_planted() -> None:
    quick = {part for bug in PLANTED if is_quick(bug) for part in bug.parts}

    assert len(chosen()) >= 10
    assert {part for bug in chosen() for part in bug.parts} == quick


def test_each_planted_bug_is_a_known_one_and_every_part_of_the_load_shows_some() -> None:
    names = [bug.name for bug in PLANTED]

    assert len(names) == len(set(names))
    for name in names:
        assert by_name(name).name == name
    unused = set(RECIPES) - {part for bug in PLANTED for part in bug.parts}
    assert unused == {LoadPart.EXCLUSIVE, LoadPart.REGISTER}
