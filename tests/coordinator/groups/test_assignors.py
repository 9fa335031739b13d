"""The guarantees common to all assignment strategies, and those of each."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.clients.config import CONSUMER_ROWS
from holdfast_log.coordinator.groups.assignors import (
    ASSIGNORS,
    MemberAssignments,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from holdfast_log.protocol.assignment import AssignmentStrategy
from holdfast_log.protocol.topic_partition import TopicPartition

MEMBERS = st.lists(st.sampled_from([f"m{n}" for n in range(9)]), min_size=1, unique=True)
PARTITIONS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 12))


def every(partitions: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)}


def sizes(assignment: MemberAssignments) -> list[int]:
    return [len(share) for share in assignment.values()]


def test_every_strategy_that_clients_may_name_has_an_assignor_and_no_other() -> None:
    """Clients and brokers take the names from one place, so neither can have one that the other lacks."""
    (setting,) = [row for row in CONSUMER_ROWS if row.name == "group.remote.assignor"]
    assert set(ASSIGNORS) == set(AssignmentStrategy)
    assert all(strategy in setting.doc for strategy in AssignmentStrategy)


@pytest.mark.parametrize("strategy", ASSIGNORS)
@given(members=MEMBERS, partitions=PARTITIONS, former=MEMBERS)
def test_every_partition_has_exactly_one_owner(
    strategy: str, members: list[str], partitions: dict[str, int], former: list[str]
) -> None:
    owned = assign_round_robin(former, partitions, {})
    assignment = ASSIGNORS[strategy](members, partitions, owned)
    assert list(assignment) == members
    owners = Counter(partition for share in assignment.values() for partition in share)
    assert set(owners) == every(partitions)
    assert all(count == 1 for count in owners.values())


@given(members=MEMBERS, partitions=PARTITIONS)
def test_range_assigns_consecutive_partitions(members: list[str], partitions: dict[str, int]) -> None:
    for share in assign_range(members, partitions, {}).values():
        for topic in partitions:
            numbers = [partition.partition for partition in share if partition.topic == topic]
            assert numbers == list(range(min(numbers, default=0), min(numbers, default=0) + len(numbers)))


def test_range_assigns_equal_partition_numbers_to_one_member() -> None:
    assignment = assign_range(["m1", "m2"], {"left": 4, "right": 4}, {})
    assert {(p.topic, p.partition) for p in assignment["m1"]} == {
        ("left", 0),
        ("left", 1),
        ("right", 0),
        ("right", 1),
    }


@given(members=MEMBERS, partitions=PARTITIONS, former=MEMBERS)
def test_round_robin_and_sticky_assign_evenly(
    members: list[str], partitions: dict[str, int], former: list[str]
) -> None:
    owned = assign_range(former, partitions, {})
    for assignment in (
        assign_round_robin(members, partitions, owned),
        assign_sticky(members, partitions, owned),
    ):
        assert max(sizes(assignment)) - min(sizes(assignment)) <= 1


@given(members=MEMBERS, partitions=PARTITIONS)
def test_sticky_moves_nothing_when_nothing_changes(members: list[str], partitions: dict[str, int]) -> None:
    before = assign_sticky(members, partitions, {})
    assert assign_sticky(members, partitions, before) == before


@given(members=MEMBERS, partitions=PARTITIONS, data=st.data())
def test_sticky_moves_only_the_partitions_of_a_lost_member(
    members: list[str], partitions: dict[str, int], data: st.DataObject
) -> None:
    before = assign_sticky(members, partitions, {})
    lost = data.draw(st.sampled_from(members))
    remaining = [member for member in members if member != lost]
    if not remaining:
        return
    after = assign_sticky(remaining, partitions, before)
    for member in remaining:
        assert set(before[member]) <= set(after[member])


@given(members=MEMBERS, partitions=PARTITIONS)
def test_sticky_moves_a_fair_share_to_a_new_member_and_nothing_else(
    members: list[str], partitions: dict[str, int]
) -> None:
    before = assign_sticky(members, partitions, {})
    after = assign_sticky([*members, "newcomer"], partitions, before)
    for member in members:
        assert set(after[member]) <= set(before[member])


def test_sticky_assigns_a_partition_claimed_by_two_members_only_once() -> None:
    both = (TopicPartition("a", 0), TopicPartition("a", 1))
    assignment = assign_sticky(["m1", "m2"], {"a": 2}, {"m1": both, "m2": both})
    assert sorted(sizes(assignment)) == [1, 1]
