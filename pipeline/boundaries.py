"""Where a read of topics begins and ends: by offsets or by timestamps, for all partitions or each its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from holdfast_log.clients.settings import Settings
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.protocol.topic_partition import TopicPartition

EARLIEST = -2
LATEST = -1
"""Offsets -2 (`EARLIEST`, the first record) and -1 (`LATEST`, the partition's end) in JSON, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """A boundary given as an offset for each partition: a number, `EARLIEST` or `LATEST`.

    `default` is for partitions that `partitions` does not name; with None, it must name all of them.
    """

    default: int | None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timestamps:
    """A boundary given as a time: the first record with that timestamp or a later one.

    `default_ms` is for partitions that `partitions_ms` does not name; with None, it must name all of them.
    """

    default_ms: int | None
    partitions_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


Boundary = Offsets | Timestamps


def only_one(settings: Settings, *names: str) -> str | None:
    """The one of these options that is given; None without. Raises `OptionError` for more than one."""
    chosen = [name for name in names if settings[name] is not None]
    if len(chosen) > 1:
        raise OptionError(f"{' and '.join(chosen)} contradict each other: give only one of them")
    return chosen[0] if chosen else None


def start_of(settings: Settings, default: int) -> Boundary:
    """Where a read begins: what the one given of the three options says, else `default`. Raises
    `OptionError` for more than one of them, or an offset that is not allowed."""
    chosen = only_one(settings, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    return _boundary(settings, chosen, default)


def end_of(settings: Settings) -> Boundary:
    """Where a read ends: what the one given of the three options says, else each partition's end. Raises
    `OptionError` as `start_of` does."""
    chosen = only_one(settings, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    boundary = _boundary(settings, chosen, LATEST)
    if isinstance(boundary, Offsets) and EARLIEST in boundary.partitions.values():
        raise OptionError("endingOffsets cannot be earliest (-2): it would read nothing")
    return boundary


_NAMED = {"earliest": EARLIEST, "latest": LATEST}


def _boundary(settings: Settings, chosen: str | None, default: int) -> Boundary:
    if chosen is None:
        return Offsets(default=default)
    if settings[chosen] in _NAMED:
        return Offsets(default=_NAMED[settings[chosen]])
    if chosen.endswith("Timestamp") and not chosen.endswith("ByTimestamp"):
        return Timestamps(default_ms=settings[chosen])
    numbers = _numbers(chosen, settings[chosen])
    if chosen.endswith("ByTimestamp"):
        return Timestamps(default_ms=None, partitions_ms=numbers)
    return Offsets(default=None, partitions=numbers)


def _numbers(option: str, text: str) -> dict[TopicPartition, int]:
    lowest = 0 if option.endswith("ByTimestamp") else EARLIEST
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in json.loads(text).items():
        for partition, number in partitions.items() if isinstance(partitions, dict) else [("", None)]:
            if not (partition.isdecimal() and is_number(number) and number >= lowest):
                expected = '{"topic": {"0": 23, "1": 42}}'
                raise OptionError(f"{option}={text!r} is not allowed: expected {expected}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def is_number(value: Any) -> TypeGuard[int]:
    """Whether a value from JSON is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)
