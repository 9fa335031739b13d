"""Plans for the placement of replicas: balanced, on different racks, and with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.clients.tools.replica_plan import NotEnoughBrokers, plan
from holdfast_log.protocol.topic_partition import TopicPartition


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


@given(
    partitions=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    replicas=st.integers(1, 3),
    brokers=st.sets(st.integers(0, 9), min_size=3, max_size=6),
)
def test_every_plan_is_complete_and_balanced(partitions: list[int], replicas: int, brokers: set[int]) -> None:
    here = current(*[tuple((first + step) % 6 for step in range(replicas)) for first in partitions])
    planned = plan(here, dict.fromkeys(sorted(brokers)))
    assert list(planned) == list(here)
    for target in planned.values():
        assert len(set(target)) == len(target) == replicas
        assert set(target) <= brokers
    loads = Counter(broker for target in planned.values() for broker in target)
    assert max(loads.values()) <= -(-len(here) * replicas // len(brokers)) + 1
