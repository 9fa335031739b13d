"""Plans for the placement of replicas: balanced, on different racks, and with few moves."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.clients.tools.replica_plan import NotEnoughBrokers, plan
from holdfast_log.coordinator.placement import Site, place
from holdfast_log.protocol.topic_partition import TopicPartition

Plan: TypeAlias = Mapping[TopicPartition, Sequence[int]]


def current(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def test_a_balanced_placement_stays_unchanged() -> None:
    here = current((1, 2), (2, 3), (3, 1))
    assert plan(here, {1: None, 2: None, 3: None}) == here


def test_a_new_broker_gets_its_fair_share() -> None:
    planned = plan(current((1,), (2,), (1,), (2,), (1,), (2,)), {1: None, 2: None, 3: None})
    assert Counter(replicas[0] for replicas in planned.values()) == {1: 2, 2: 2, 3: 2}


def test_a_broker_that_is_not_listed_is_emptied() -> None:
    planned = plan(current((1, 2), (2, 1)), {2: None, 3: None})
    assert all(sorted(replicas) == [2, 3] for replicas in planned.values())
    assert sorted(replicas[0] for replicas in planned.values()) == [2, 3]


def test_replicas_go_to_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    planned = plan(current((9, 8), (9, 8), (9, 8), (9, 8)), racks)
    assert all(racks[one] != racks[other] for one, other in planned.values())


def test_too_few_brokers_are_an_error() -> None:
    with pytest.raises(NotEnoughBrokers, match="t-0 has 2 replicas, and 1 brokers are listed"):
        plan(current((1, 2)), {1: None})


def test_the_only_leader_of_a_partition_stays() -> None:
    here = current((1, 2, 3), (2, 3, 1), (3, 1, 2))
    planned = plan(here, {1: None, 2: None, 3: None})
    assert planned == here


@pytest.mark.parametrize("topics", [1, 3])
def test_after_a_broker_was_added_all_hold_and_lead_the_same_number(topics: int) -> None:
    three = {1: None, 2: None, 3: None}
    here = {
        TopicPartition(f"t{topic}", number): assignment.replicas
        for topic in range(topics)
        for number, assignment in enumerate(place(dict.fromkeys(three, Site()), 12, 3))
    }
    planned = plan(here, {**three, 4: None})
    assert held(planned) == dict.fromkeys((1, 2, 3, 4), 9 * topics)
    assert led(planned) == dict.fromkeys((1, 2, 3, 4), 3 * topics)
    assert copies(here, planned) == 9 * topics
    for topic in range(topics):
        part = {partition: each for partition, each in planned.items() if partition.topic == f"t{topic}"}
        assert held(part) == dict.fromkeys((1, 2, 3, 4), 9), "each topic is balanced too"


def test_racks_are_kept_even_where_brokers_then_hold_different_numbers() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    planned = plan(current((1, 3), (2, 3), (1, 3), (2, 3)), racks)
    assert held(planned) == {1: 2, 2: 2, 3: 4}
    assert led(planned)[3] in (1, 2)


def test_a_partition_whose_replicas_share_a_rack_is_spread() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    here = current((1, 2), (2, 1), (3, 4), (4, 3))
    planned = plan(here, racks)
    assert all(racks[one] != racks[other] for one, other in planned.values())
    assert held(planned) == dict.fromkeys(racks, 2)
    assert copies(here, planned) == 4


def held(planned: Plan) -> Counter[int]:
    return Counter(broker for replicas in planned.values() for broker in replicas)


def led(planned: Plan) -> Counter[int]:
    return Counter(replicas[0] for replicas in planned.values())


def copies(before: Plan, after: Plan) -> int:
    return sum(len(set(after[partition]) - set(before[partition])) for partition in before)


def lacking_racks(planned: Plan, racks: Mapping[int, str | None]) -> int:
    """How many more racks the partitions could be on."""
    names = {broker: broker if rack is None else rack for broker, rack in racks.items()}
    possible = len(set(names.values()))
    return sum(
        min(len(replicas), possible) - len({names[broker] for broker in replicas})
        for replicas in planned.values()
    )


def spread(loads: Counter[int], brokers: Iterable[int]) -> int:
    return max(loads[broker] for broker in brokers) - min(loads[broker] for broker in brokers)


def squares(loads: Counter[int]) -> int:
    return sum(load**2 for load in loads.values())


@given(
    count=st.integers(1, 24),
    factor=st.integers(1, 3),
    old=st.sets(st.integers(0, 9), min_size=3, max_size=6),
    listed=st.sets(st.integers(0, 9), min_size=3, max_size=6),
    topics=st.integers(1, 3),
    shuffle=st.randoms(use_true_random=False),
)
def test_every_plan_is_complete_and_balanced(
    count: int, factor: int, old: set[int], listed: set[int], topics: int, shuffle: Random
) -> None:
    here = {
        TopicPartition(f"t{number % topics}", number): tuple(shuffle.sample(sorted(old), factor))
        for number in range(count)
    }
    planned = plan(here, dict.fromkeys(sorted(listed)))
    assert list(planned) == list(here)
    for target in planned.values():
        assert len(set(target)) == len(target) == factor
        assert set(target) <= listed
    assert spread(held(planned), listed) <= 1
    assert spread(led(planned), listed) <= 1
    # No plan needs fewer copies: what is on brokers that are not listed, or above the fair share, must go.
    before = held(here)
    fair, rest = divmod(count * factor, len(listed))
    orphans = sum(before[broker] for broker in before if broker not in listed)
    above = sum(max(0, before[broker] - fair - (rest > 0)) for broker in listed)
    below = sum(max(0, fair - before[broker]) for broker in listed)
    if len(listed) > factor and count == 1:
        assert copies(here, planned) == orphans
    assert copies(here, planned) >= max(orphans + above, below)


@given(
    here=st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=2, unique=True), min_size=1, max_size=4),
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=3, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_no_plan_is_better(here: list[list[int]], racks: list[str | None]) -> None:
    placed = current(*map(tuple, here))
    listed = dict(enumerate(racks))

    def rank(candidate: Plan) -> tuple[int, int, int]:
        return lacking_racks(candidate, listed), squares(held(candidate)), copies(placed, candidate)

    every = itertools.product(itertools.combinations(listed, 2), repeat=len(here))
    best = min(rank(dict(zip(placed, replicas, strict=True))) for replicas in every)
    planned = plan(placed, listed)
    assert rank(planned) == best
    orders = itertools.product(*planned.values())
    assert squares(led(planned)) == min(squares(Counter(leaders)) for leaders in orders)


@given(
    here=st.lists(st.permutations(range(5)), min_size=1, max_size=12),
    racks=st.lists(st.sampled_from(["a", "b"]), min_size=4, max_size=5),
)
@settings(deadline=None)
def test_with_more_replicas_than_racks_every_rack_has_one(here: list[list[int]], racks: list[str]) -> None:
    placed = current(*(tuple(replicas[:3]) for replicas in here))
    planned = plan(placed, dict(enumerate(racks)))
    assert lacking_racks(planned, dict(enumerate(racks))) == 0
