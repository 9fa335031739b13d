"""Placement: replicas on different brokers, leadership balanced, racks spread."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.placement import PlacementError, ReplicaAssignment, place


def replicas(assignments: list[ReplicaAssignment]) -> list[tuple[int, ...]]:
    return [assignment.replicas for assignment in assignments]


def test_leaders_rotate_and_followers_shift_with_each_rotation() -> None:
    assert replicas(place(dict.fromkeys([1, 2, 3]), 6, 2)) == [(1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2)]


def test_replicas_alternate_between_racks() -> None:
    placed = replicas(place({1: "a", 2: "a", 3: "b", 4: "b"}, 4, 2))
    assert placed == [(1, 3), (3, 2), (2, 4), (4, 1)]


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    assert replicas(place({1: "a", 2: "a", 3: None}, 1, 2)) == [(1, 2)]


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(PlacementError, match="3 replicas need as many brokers, but 2 are available"):
        place({1: None, 2: None}, 1, 3)


def test_an_assignment_lists_added_and_removed_replicas_during_a_reassignment() -> None:
    moving = ReplicaAssignment((1, 2, 3)).reassigned_to((3, 4))
    assert moving == ReplicaAssignment((3, 4, 1, 2), adding=(4,), removing=(1, 2))
    assert (moving.target, moving.original) == ((3, 4), (3, 1, 2))
    assert moving.is_reassigning
    assert not ReplicaAssignment((1,)).is_reassigning


BROKERS = st.dictionaries(st.integers(0, 50), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)


@given(brokers=BROKERS, count=st.integers(1, 60), factor=st.integers(1, 9), start=st.integers(0, 99))
def test_placement_is_balanced_in_any_cluster(
    brokers: dict[int, str | None], count: int, factor: int, start: int
) -> None:
    factor = min(factor, len(brokers))
    placed = replicas(place(brokers, count, factor, start=start))
    assert len(placed) == count
    for each in placed:
        assert len(each) == len(set(each)) == factor
        assert set(each) <= set(brokers)
    leaders = Counter(each[0] for each in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1
    if None not in brokers.values():
        racks = len(set(brokers.values()))
        for each in placed:
            assert len({brokers[broker] for broker in each}) == min(racks, factor)


@given(brokers=BROKERS, first=st.integers(0, 40), more=st.integers(1, 20))
def test_partitions_added_later_are_placed_as_if_created_at_first(
    brokers: dict[int, str | None], first: int, more: int
) -> None:
    factor = min(2, len(brokers))
    all_at_once = place(brokers, first + more, factor, start=3)
    assert place(brokers, more, factor, start=3, first_partition=first) == all_at_once[first:]
