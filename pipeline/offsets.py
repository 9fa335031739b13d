"""Turns the options of a read into exact offsets, once, on the driver, before any task runs.

Pure except for queries to a `Lookup`. Every task later reads exactly [start, end), also when Spark repeats
it, so two runs over the same ranges see the same records.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast_log.pipeline.boundaries import EARLIEST, LATEST, Boundary, Offsets, Timestamps
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.options import ReadOptions, TopicSelection
from holdfast_log.protocol.topic_partition import TopicPartition


class DataLossError(Exception):
    """Requested records no longer exist. With failOnDataLoss=false the job reads the remaining ones."""


class PartitionsGoneError(DataLossError):
    """Partitions to read were deleted with their topic."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        super().__init__(
            f"{', '.join(map(str, self.partitions))} no longer exists: the topic was deleted. To continue "
            "without it, set failOnDataLoss to false."
        )

    def __reduce__(self) -> tuple[type[PartitionsGoneError], tuple[Sequence[TopicPartition]]]:
        return PartitionsGoneError, (self.partitions,)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition: from offset `start` up to, and not including, `end`."""

    partition: TopicPartition
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


class Lookup(Protocol):
    """Look-ups in the cluster while a read is planned. Each asks the cluster again."""

    def topics(self) -> Sequence[str]:
        """The names of all topics."""
        ...

    def partitions(self, topic: str) -> Sequence[int]:
        """The partitions of a topic; empty if the topic does not exist."""
        ...

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition."""
        ...

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last committed record of each partition."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The offset of each partition's first record at or after its time; None if it has none."""
        ...


def plan(options: ReadOptions, lookup: Lookup) -> list[OffsetRange]:
    """The ranges that the Spark partitions read, ordered by topic and partition. No range is empty.

    Raises `OptionError` if the options do not fit the topics, `DataLossError` if requested records are gone.
    """
    partitions = partitions_of(options.topics, lookup)
    earliest, latest = lookup.earliest(partitions), lookup.latest(partitions)
    starts = starts_of(options, partitions, earliest, latest, lookup)
    ends = _ends(options, partitions, latest, lookup)
    ranges = [
        checked(OffsetRange(partition, starts[partition], ends[partition]), earliest, latest, options)
        for partition in partitions
    ]
    return cut([found for found in ranges if found.start < found.end], options)


def cut(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[OffsetRange]:
    """`ranges`, split as minPartitions and maxRecordsPerPartition require."""
    wanted = options.min_partitions or 0
    most = options.max_records_per_partition
    total = sum(len(found) for found in ranges)
    pieces: list[OffsetRange] = []
    for found in ranges:
        size = len(found)
        count = -(-size // most) if most else 1
        if wanted > len(ranges):
            count = max(count, -(-size * wanted // total))
        count = min(count, size)
        bounds = [found.start + size * index // count for index in range(count + 1)]
        pieces += [OffsetRange(found.partition, low, high) for low, high in itertools.pairwise(bounds)]
    return pieces


def partitions_of(topics: TopicSelection, lookup: Lookup, *, must_exist: bool = True) -> list[TopicPartition]:
    """The partitions that a selection names, in order. Raises `OptionError` for one that must exist."""
    if topics.partitions:
        known = {topic: lookup.partitions(topic) for topic in {found.topic for found in topics.partitions}}
        for wanted in topics.partitions:
            if must_exist and wanted.partition not in known[wanted.topic]:
                raise OptionError(f"there is no partition {wanted}")
        return [wanted for wanted in topics.partitions if wanted.partition in known[wanted.topic]]
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        names = [topic for topic in sorted(lookup.topics()) if pattern.fullmatch(topic)]
        if must_exist and not names:
            raise OptionError(f"no topic matches subscribePattern={topics.pattern!r}")
    else:
        names = sorted(topics.names)
    found = []
    for topic in names:
        numbers = lookup.partitions(topic)
        if must_exist and not numbers:
            raise OptionError(f"there is no topic {topic}")
        found += [TopicPartition(topic, number) for number in sorted(numbers)]
    return found


def starts_of(
    options: ReadOptions,
    partitions: Sequence[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    lookup: Lookup,
) -> dict[TopicPartition, int]:
    """The offset at which the options let each partition begin. Raises `OptionError`."""
    boundary = options.start
    _must_fit(boundary, partitions, "starting")
    match boundary:
        case Offsets():
            asked = _asked(boundary, partitions)
            named = {EARLIEST: earliest, LATEST: latest}
            return {
                partition: named[offset][partition] if offset in named else offset
                for partition, offset in asked.items()
            }
        case Timestamps():
            found = lookup.at_times(_times(boundary, partitions))
            missing = [partition for partition in partitions if found.get(partition) is None]
            if missing and options.without_match == "error":
                raise OptionError(
                    f"{missing[0]} has no record at or after its starting timestamp; with "
                    "startingOffsetsByTimestampStrategy=latest such a partition is skipped"
                )
            return _or_else(found, latest)


def _ends(
    options: ReadOptions,
    partitions: Sequence[TopicPartition],
    latest: Mapping[TopicPartition, int],
    lookup: Lookup,
) -> dict[TopicPartition, int]:
    boundary = options.end
    _must_fit(boundary, partitions, "ending")
    match boundary:
        case Offsets():
            asked = _asked(boundary, partitions)
            return {
                partition: latest[partition] if offset == LATEST else offset
                for partition, offset in asked.items()
            }
        case Timestamps():
            return _or_else(lookup.at_times(_times(boundary, partitions)), latest)


def _or_else(
    found: Mapping[TopicPartition, int | None], default: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    chosen = {}
    for partition, fallback in default.items():
        offset = found.get(partition)
        chosen[partition] = fallback if offset is None else offset
    return chosen


def _must_fit(boundary: Boundary, partitions: Sequence[TopicPartition], which: str) -> None:
    """Check that a boundary names exactly the partitions that are read. Raises OptionError otherwise."""
    match boundary:
        case Offsets(default=None, partitions=named) | Timestamps(default_ms=None, partitions_ms=named):
            missing = [str(partition) for partition in partitions if partition not in named]
            if missing:
                raise OptionError(f"the {which} offsets lack {', '.join(missing)}")
            superfluous = [str(partition) for partition in sorted(set(named) - set(partitions))]
            if superfluous:
                raise OptionError(
                    f"the {which} offsets name {', '.join(superfluous)}, which the job does not read"
                )


def _asked(boundary: Offsets, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    if boundary.default is not None:
        return dict.fromkeys(partitions, boundary.default)
    return {partition: boundary.partitions[partition] for partition in partitions}


def _times(boundary: Timestamps, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    if boundary.default_ms is not None:
        return dict.fromkeys(partitions, boundary.default_ms)
    return {partition: boundary.partitions_ms[partition] for partition in partitions}


def checked(
    found: OffsetRange,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    options: ReadOptions,
) -> OffsetRange:
    """The part of a range that still exists. Raises `DataLossError` if that is less, and may not be."""
    low, high = earliest[found.partition], latest[found.partition]
    if low <= found.start and found.end <= high:
        return found
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{found} was requested, but the partition has [{low}, {high}). Retention may have deleted "
            "records, or the topic was recreated. To read the remaining records, set failOnDataLoss to false."
        )
    return OffsetRange(found.partition, max(found.start, low), min(found.end, high))
