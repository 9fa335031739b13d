"""Which partitions patterns mean."""

from __future__ import annotations

import click
import pytest

from clients.tools.get_offsets import chosen, point_in_time
from clients.tools.partition_patterns import matches_any, parse_partitions, parse_patterns

THERE = [(topic, partition) for topic in ("a", "ab", "b") for partition in range(4)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", 0), ("a", 1), ("a", 2), ("a", 3)]),
        ("a:1", [("a", 1)]),
        ("a:1-3", [("a", 1), ("a", 2)]),
        ("a:2-", [("a", 2), ("a", 3)]),
        ("a:-2", [("a", 0), ("a", 1)]),
        (":3", [("a", 3), ("ab", 3), ("b", 3)]),
        ("a.*:0", [("a", 0), ("ab", 0)]),
        ("a:0, b:1", [("a", 0), ("b", 1)]),
    ],
)
def test_a_pattern_means(text: str, expected: list[tuple[str, int]]) -> None:
    assert [each for each in THERE if matches_any(parse_patterns(text), *each)] == expected


@pytest.mark.parametrize("text", ["a:x", "a:1-2-3", "a:1:2", "["])
def test_a_pattern_that_makes_no_sense(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_patterns(text)


@pytest.mark.parametrize("text", ["", "x", "1,", "-1"])
def test_numbers_that_make_no_sense(text: str) -> None:
    with pytest.raises(click.UsageError, match="--partitions"):
        parse_partitions(text)


def test_a_topic_and_its_partitions_are_a_pattern() -> None:
    patterns = chosen(None, "a", "1,3")
    assert [each for each in THERE if matches_any(patterns, *each)] == [("a", 1), ("a", 3)]


def test_two_ways_of_choosing_do_not_mix() -> None:
    with pytest.raises(click.UsageError, match="--topic-partitions excludes --topic"):
        chosen("a:1", "a", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("earliest", -2), ("-1", -1), ("max-timestamp", -3), ("1700000000000", 1700000000000)],
)
def test_points_in_time(text: str, expected: int) -> None:
    assert point_in_time(text) == expected


@pytest.mark.parametrize("text", ["-4", "now", "", "1.5"])
def test_points_in_time_that_make_no_sense(text: str) -> None:
    with pytest.raises(click.UsageError, match="--time"):
        point_in_time(text)
