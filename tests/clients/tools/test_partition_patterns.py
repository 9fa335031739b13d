"""Patterns that select partitions, and points in time for offsets."""

from __future__ import annotations

import click
import pytest

from holdfast_log.clients.tools.get_offsets import chosen, point_in_time
from holdfast_log.clients.tools.partition_patterns import matches_any, parse_partitions, parse_patterns

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
def test_a_pattern_selects_its_partitions(text: str, expected: list[tuple[str, int]]) -> None:
    assert [each for each in THERE if matches_any(parse_patterns(text), *each)] == expected


@pytest.mark.parametrize("text", ["a:x", "a:1-2-3", "a:1:2", "["])
def test_a_malformed_pattern_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_patterns(text)


@pytest.mark.parametrize("text", ["", "x", "1,", "-1"])
def test_malformed_partition_numbers_are_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--partitions"):
        parse_partitions(text)


def test_a_topic_and_partition_numbers_form_a_pattern() -> None:
    patterns = chosen(None, "a", "1,3")
    assert [each for each in THERE if matches_any(patterns, *each)] == [("a", 1), ("a", 3)]


def test_patterns_and_topic_options_exclude_each_other() -> None:
    with pytest.raises(click.UsageError, match="--topic-partitions excludes --topic"):
        chosen("a:1", "a", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("earliest", -2), ("-1", -1), ("max-timestamp", -3), ("1700000000000", 1700000000000)],
)
def test_a_point_in_time_is_parsed(text: str, expected: int) -> None:
    assert point_in_time(text) == expected


@pytest.mark.parametrize("text", ["-4", "now", "", "1.5"])
def test_a_malformed_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--time"):
        point_in_time(text)
