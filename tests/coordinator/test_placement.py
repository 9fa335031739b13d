"""Placement: replicas on different brokers, leadership balanced, racks spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.placement import (
    PlacementError,
    ReplicaAssignment,
    Site,
    place,
    sharing_a_machine,
)


def sites(racks: Mapping[int, str | None]) -> dict[int, Site]:
    """Brokers on these racks, each on a machine of its own."""
    return {broker: Site(rack) for broker, rack in racks.items()}


def replicas(assignments: list[ReplicaAssignment]) -> list[tuple[int, ...]]:
    return [assignment.replicas for assignment in assignments]


def test_leaders_rotate_and_followers_shift_with_each_rotation() -> None:
    assert replicas(place(sites(dict.fromkeys([1, 2, 3])), 6, 2)) == [
        (1, 2),
        (2, 3),
        (3, 1),
        (1, 3),
        (2, 1),
        (3, 2),
    ]


def test_replicas_alternate_between_racks() -> None:
    placed = replicas(place(sites({1: "a", 2: "a", 3: "b", 4: "b"}), 4, 2))
    assert placed == [(1, 3), (3, 2), (2, 4), (4, 1)]


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    assert replicas(place(sites({1: "a", 2: "a", 3: None}), 1, 2)) == [(1, 2)]


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(PlacementError, match="3 replicas need as many brokers, but 2 are available"):
        place(sites({1: None, 2: None}), 1, 3)


def test_replicas_of_a_partition_never_share_a_machine() -> None:
    brokers = {1: Site(None, "m"), 1001: Site(None, "m"), 2: Site(None, "n"), 1002: Site(None, "n")}
    placed = replicas(place(brokers, 8, 2))
    assert [sharing_a_machine(each, brokers) for each in placed] == [None] * 8
    assert Counter(each[0] for each in placed) == dict.fromkeys(brokers, 2)
    with pytest.raises(PlacementError, match="3 replicas need as many machines, but 2 are available"):
        place(brokers, 1, 3)
    assert sharing_a_machine((2, 1, 1001), brokers) == (1, 1001)


def test_machines_are_kept_apart_within_one_rack_too() -> None:
    brokers = {
        1: Site("r", "m"), 1001: Site("r", "m"), 2: Site("r", "n"), 3: Site("s", "o"), 1003: Site("s", "o")
    }  # fmt: skip
    placed = replicas(place(brokers, 20, 3))
    assert [sharing_a_machine(each, brokers) for each in placed] == [None] * 20
    assert all({brokers[broker].rack for broker in each} == {"r", "s"} for each in placed)


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
    placed = replicas(place(sites(brokers), count, factor, start=start))
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
    all_at_once = place(sites(brokers), first + more, factor, start=3)
    assert place(sites(brokers), more, factor, start=3, first_partition=first) == all_at_once[first:]


@given(
    machines=st.dictionaries(
        st.integers(0, 30), st.sampled_from([None, "m", "n", "o"]), min_size=1, max_size=9
    ),
    racks=st.sampled_from([None, "a"]),
    start=st.integers(0, 99),
)
def test_as_many_replicas_as_machines_can_always_be_placed(
    machines: dict[int, str | None], racks: str | None, start: int
) -> None:
    brokers = {broker: Site(racks, machine) for broker, machine in machines.items()}
    count = len({broker if machine is None else machine for broker, machine in machines.items()})
    for each in replicas(place(brokers, 12, count, start=start)):
        assert len(each) == count
        assert sharing_a_machine(each, brokers) is None
