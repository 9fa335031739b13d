"""The assignors of consumer groups (KIP-848)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.assignors import assign_round_robin
from holdfast_log.coordinator.groups.consumer_assignors import (
    ASSIGNORS,
    assign_in_ranges,
    assign_uniformly,
    load_assignors,
)
from holdfast_log.protocol.topic_partition import TopicPartition

MEMBERS = st.dictionaries(
    st.sampled_from("abcdef"), st.frozensets(st.sampled_from(["t", "u", "v"])), min_size=1
)
COUNTS = st.dictionaries(st.sampled_from(["t", "u", "v"]), st.integers(1, 7))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=MEMBERS, counts=COUNTS, before=MEMBERS)
@settings(max_examples=50, deadline=None)
def test_every_partition_goes_to_one_of_its_subscribers(
    name: str,
    subscriptions: dict[str, frozenset[str]],
    counts: dict[str, int],
    before: dict[str, frozenset[str]],
) -> None:
    owned = ASSIGNORS[name](before, counts, {})
    shares = ASSIGNORS[name](subscriptions, counts, owned)
    assert set(shares) == set(subscriptions)
    for member, share in shares.items():
        assert {partition.topic for partition in share} <= subscriptions[member]
    given_out = sorted(partition for share in shares.values() for partition in share)
    read = frozenset().union(*subscriptions.values())
    assert given_out == sorted(
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if topic in read
        for number in range(count)
    )


def test_uniform_splits_evenly_and_moves_little() -> None:
    counts = {"t": 5, "u": 4}
    two = dict.fromkeys(("a", "b"), frozenset(counts))
    before = assign_uniformly(two, counts, {})
    assert sorted(map(len, before.values())) == [4, 5]
    three = dict.fromkeys(("a", "b", "c"), frozenset(counts))
    after = assign_uniformly(three, counts, before)
    assert [len(share) for share in after.values()] == [3, 3, 3]
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])


def test_uniform_gives_more_of_one_topic_to_whom_has_nothing_of_the_other() -> None:
    shares = assign_uniformly({"a": ["t", "u"], "b": ["u"]}, {"t": 3, "u": 3}, {})
    assert {member: len(share) for member, share in shares.items()} == {"a": 3, "b": 3}


def test_range_brings_equal_partitions_of_topics_together() -> None:
    shares = assign_in_ranges({"b": ["t", "u"], "a": ["t", "u"]}, {"t": 4, "u": 4}, {})
    assert [partition.partition for partition in shares["a"]] == [0, 1, 0, 1]
    assert [partition.partition for partition in shares["b"]] == [2, 3, 2, 3]


def test_assignors_of_ones_own_are_loaded_by_name() -> None:
    name = f"{assign_round_robin.__module__}:assign_round_robin"
    loaded = load_assignors(["range", name])
    assert list(loaded) == ["range", "assign_round_robin"]
    assert loaded["assign_round_robin"] is assign_round_robin  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "at least one"),
        (["sticky"], "expected uniform, range or module:function"),
        (["no.such.module:f"], "cannot be loaded"),
        (["json:nothing"], "cannot be loaded"),
        (["json:__name__"], "not a function"),
    ],
)
def test_a_wrong_name_is_refused(names: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load_assignors(names)
