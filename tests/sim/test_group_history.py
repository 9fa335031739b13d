"""The judges of groups find what they are there for, and nothing in what is as it should be."""

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


def test_members_follow_one_another(told: GroupHistory) -> None:
    told.owns("m0", "g", 1, [AT])
    told.began("m0", "g", 1, AT, -1)
    told.committed("m0", "g", 1, AT, 7)
    told.owns("m1", "g", 2, [AT])
    told.began("m1", "g", 2, AT, 9)  # A commit of m0's whose answer was lost.
    told.committed("m1", "g", 2, AT, 12)
    told.check_end("g", {AT: 12})
    assert found(told) == []


def test_two_own_a_partition_in_one_generation(told: GroupHistory) -> None:
    told.owns("m0", "g", 3, [AT])
    told.owns("m1", "other", 3, [AT])
    told.owns("m1", "g", 3, [AT])
    assert found(told) == ["t-0 of g is both m0's and m1's in generation 3"]


def test_a_commit_is_lost_to_the_next_generation(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.began("m1", "g", 2, AT, 5)
    assert found(told) == ["m1: generation 2 of g went on from 5 of t-0, where generation 1 was at 7"]


def test_a_commit_of_an_older_generation_is_acknowledged_late(told: GroupHistory) -> None:
    told.began("m1", "g", 2, AT, 5)
    told.committed("m0", "g", 1, AT, 7)
    assert found(told) == ["m0: generation 2 of g went on from 5 of t-0, where generation 1 was at 7"]


def test_a_commit_is_gone_in_the_end(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.check_end("g", {})
    assert len(found(told)) == 1
    assert "at the end" in found(told)[0]


def test_a_rewind_accounts_for_going_back_as_far_as_it_reaches(told: GroupHistory) -> None:
    told.committed("m0", "g", 1, AT, 7)
    told.rewinds.append(Rewind("g", {AT: 3}, generation=2))
    told.began("m0", "g", 2, AT, 3)
    assert found(told) == []
    told.began("m0", "g", 2, AT, 2)
    assert len(found(told)) == 1


def test_a_rewind_that_is_over_accounts_for_nothing(told: GroupHistory) -> None:
    told.rewinds.append(Rewind("g", {AT: 3}, generation=2))
    told.committed("m0", "g", 4, AT, 7)
    told.began("m0", "g", 5, AT, 3)
    assert len(found(told)) == 1
