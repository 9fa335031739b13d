"""Patterns that select partitions, in the syntax of Kafka's GetOffsetShell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import click

from holdfast_log.clients.tools.topic_pattern import topic_pattern

_PATTERN = re.compile(r"([^:,]*)(?::(?:(\d+)|(\d*)-(\d*)))?")


@dataclass(frozen=True, slots=True)
class PartitionPattern:
    """Selects topics whose whole name matches (all with None), and partitions in [`first`, `end`)."""

    topic: re.Pattern[str] | None = None
    first: int = 0
    end: int | None = None

    def matches(self, topic: str, partition: int) -> bool:
        """Whether the pattern selects this partition."""
        is_in_range = self.first <= partition and (self.end is None or partition < self.end)
        return is_in_range and (self.topic is None or self.topic.fullmatch(topic) is not None)


def parse_patterns(text: str) -> list[PartitionPattern]:
    """Parse patterns separated by commas: `topic`, `topic:3`, `topic:2-5` (without 5), `topic:2-` and so on.

    The topic is a regular expression; an empty one selects all topics. Raises click.UsageError.
    """
    return [_pattern(item.strip()) for item in text.split(",")]


def parse_partitions(text: str) -> list[int]:
    """Parse partition numbers separated by commas. Raises click.UsageError."""
    try:
        numbers = [int(item) for item in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--partitions {text}: expected numbers separated by commas") from None
    if min(numbers) < 0:
        raise click.UsageError(f"--partitions {text}: partitions count from 0")
    return numbers


def matches_any(patterns: Iterable[PartitionPattern], topic: str, partition: int) -> bool:
    """Whether one of the patterns selects this partition."""
    return any(pattern.matches(topic, partition) for pattern in patterns)


def _pattern(text: str) -> PartitionPattern:
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise click.UsageError(
            f"--topic-partitions {text!r}: give topic, topic:3, topic:2-5 (without 5), topic:2- or topic:-5"
        )
    name, number, first, end = found.groups()
    topic = topic_pattern(name, "--topic-partitions") if name else None
    if number is not None:
        return PartitionPattern(topic, int(number), int(number) + 1)
    return PartitionPattern(topic, int(first or 0), int(end) if end else None)
