"""The judges of groups report every kind of violation, and none in a correct history."""

from __future__ import annotations

import pytest

from tests.models.world import World
from tests.sim.group_history import GroupHistory, Rewind
from tests.sim.history import History

AT = ("t", 0)


@pytest.fixture
def told() -> GroupHistory:
    return GroupHistory(History(World(1)))


def found(told: GroupHistory) -> list[str]:
    return [violation.split(": ", 1)[1] for violation in told.history.violations]


def test_members_of_successive_generations_have_no_violations(told: GroupHistory) -> None:
    told.owns("m0", "g", 1, [AT])
    told.began("m0", "g", 1, AT, -1)
    told.committed("m0", "g", 1, AT, 7)
    told.owns("m1", "g", 2, [AT])
    told.began("m1", "g", 2, AT, 9)  # m0 committed 9, but its answer was lost.
    told.committed("m1", "g", 2, AT, 12)
    told.check_end("g", told.acknowledged("g"), {AT: 12})
    assert found(told) == []


def test_two_owners_of_a_partition_in_one_generation_are_found(told: GroupHistory) -> None:
    told.owns("m0", "g", 3, [AT])
    told.owns("m1", "other", 3, [AT])
    told.owns("m1", "g", 3, [AT])
    assert found(told) == ["t-0 of g is both m0's and m1's in generation 3"]


def test_a_commit_unknown_to_the_next_generation_is_found(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.began("m1", "g", 2, AT, 5)
    assert found(told) == ["m1: generation 2 of g started at 5 of t-0, but generation 1 was at 7"]


def test_a_commit_of_an_older_generation_acknowledged_late_is_found(told: GroupHistory) -> None:
    told.began("m1", "g", 2, AT, 5)
    told.committed("m0", "g", 1, AT, 7)
    assert found(told) == ["m0: generation 2 of g started at 5 of t-0, but generation 1 was at 7"]


def test_a_commit_missing_at_the_end_is_found(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.check_end("g", told.acknowledged("g"), {})
    assert len(found(told)) == 1
    assert "at the end" in found(told)[0]


def test_a_commit_acknowledged_after_the_coordinator_was_asked_is_not_missing(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    before = told.acknowledged("g")
    told.committed("m0", "g", 1, AT, 9)
    told.check_end("g", before, {AT: 7})
    assert found(told) == []


def test_a_rewind_allows_a_start_at_its_offset_but_not_below_it(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.rewinds.append(Rewind("g", {AT: 3}, generation=2))
    told.began("m0", "g", 2, AT, 3)
    assert found(told) == []
    told.began("m0", "g", 2, AT, 2)
    assert len(found(told)) == 1


def test_a_rewind_of_an_earlier_generation_does_not_excuse_a_lost_commit(told: GroupHistory) -> None:
    told.rewinds.append(Rewind("g", {AT: 3}, generation=2))
    told.committed("m0", "g", 4, AT, 7)
    told.began("m0", "g", 5, AT, 3)
    assert len(found(told)) == 1
