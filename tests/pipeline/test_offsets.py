"""Planning a read: from options and a cluster's offsets to exact ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.pipeline.offsets import DataLossError, OffsetRange, cut, plan
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.options import read_options
from holdfast_log.protocol.topic_partition import TopicPartition

ZERO, ONE = TopicPartition("flights", 0), TopicPartition("flights", 1)


@dataclass
class Cluster:
    """A cluster whose partitions hold [earliest, latest), with a timestamp for each offset."""

    held: dict[TopicPartition, tuple[int, int]]
    times_ms: dict[TopicPartition, list[int]] = field(default_factory=dict)

    def topics(self) -> Sequence[str]:
        return sorted({partition.topic for partition in self.held}, reverse=True)

    def partitions(self, topic: str) -> Sequence[int]:
        return [partition.partition for partition in self.held if partition.topic == topic]

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.held[partition][0] for partition in partitions}

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.held[partition][1] for partition in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition, wanted in times_ms.items():
            offsets = [offset for offset, at in enumerate(self.times_ms[partition]) if at >= wanted]
            found[partition] = offsets[0] if offsets else None
        return found


CLUSTER = Cluster({ZERO: (0, 100), ONE: (50, 70)})


def planned(cluster: Cluster = CLUSTER, **given: str) -> list[OffsetRange]:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", **given}
    if not {"subscribe", "assign", "subscribePattern"} & set(options):
        options["subscribe"] = "flights"
    return plan(read_options(options), cluster)


def test_by_default_all_records_are_read() -> None:
    assert planned() == [OffsetRange(ZERO, 0, 100), OffsetRange(ONE, 50, 70)]


def test_an_empty_partition_makes_no_task() -> None:
    assert planned(Cluster({ZERO: (7, 7), ONE: (0, 1)})) == [OffsetRange(ONE, 0, 1)]


def test_a_part_of_each_partition_can_be_read() -> None:
    ranges = planned(
        startingOffsets='{"flights": {"0": 10, "1": -2}}', endingOffsets='{"flights": {"0": 20, "1": -1}}'
    )

    assert ranges == [OffsetRange(ZERO, 10, 20), OffsetRange(ONE, 50, 70)]


def test_one_partition_can_be_assigned() -> None:
    assert planned(assign='{"flights": [1]}') == [OffsetRange(ONE, 50, 70)]


def test_topics_are_found_by_a_pattern_that_matches_the_whole_name() -> None:
    a, b = TopicPartition("log-a", 0), TopicPartition("log-b", 0)
    cluster = Cluster({b: (0, 1), a: (0, 2), TopicPartition("my-log-a", 0): (0, 3)})

    assert planned(cluster, subscribePattern="log-.") == [OffsetRange(a, 0, 2), OffsetRange(b, 0, 1)]


def test_a_time_starts_and_ends_a_read() -> None:
    cluster = Cluster({ZERO: (0, 4)}, {ZERO: [10, 20, 30, 40]})

    assert planned(cluster, startingTimestamp="15", endingTimestamp="40") == [OffsetRange(ZERO, 1, 3)]
    assert planned(cluster, endingTimestamp="99") == [OffsetRange(ZERO, 0, 4)]


def test_a_starting_time_after_the_last_record_is_an_error_by_default() -> None:
    cluster = Cluster({ZERO: (0, 1), ONE: (0, 2)}, {ZERO: [10], ONE: [10, 20]})

    with pytest.raises(OptionError, match=r"flights-0 has no record .* startingOffsetsByTimestampStrategy"):
        planned(cluster, startingTimestamp="15")
    assert planned(cluster, startingTimestamp="15", startingOffsetsByTimestampStrategy="latest") == [
        OffsetRange(ONE, 1, 2)
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "fligths"}, "there is no topic fligths"),
        ({"subscribePattern": "x.*"}, "no topic matches"),
        ({"assign": '{"flights": [2]}'}, "there is no partition flights-2"),
        ({"startingOffsets": '{"flights": {"0": 10}}'}, "offsets lack flights-1"),
        (
            {"assign": '{"flights": [0]}', "endingOffsets": '{"flights": {"0": 1, "1": 2}}'},
            "name flights-1, which the job does not read",
        ),
    ],
)
def test_options_that_do_not_fit_the_topic_are_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        planned(**options)


@pytest.mark.parametrize(
    "lost",
    [
        {"startingOffsets": '{"flights": {"0": 0, "1": 10}}'},
        {"endingOffsets": '{"flights": {"0": 101, "1": -1}}'},
    ],
)
def test_deleted_records_fail_the_read_by_default(lost: dict[str, str]) -> None:
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        planned(**lost)

    assert planned(**lost, failOnDataLoss="false") == [OffsetRange(ZERO, 0, 100), OffsetRange(ONE, 50, 70)]


def test_enough_partitions_are_not_split() -> None:
    assert len(planned(minPartitions="2")) == 2


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=8),
    least=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 300),
)
def test_splitting_covers_every_offset_within_both_limits(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    given_options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    if least is not None:
        given_options["minPartitions"] = str(least)
    if most is not None:
        given_options["maxRecordsPerPartition"] = str(most)
    ranges = [OffsetRange(TopicPartition("t", n), 5, 5 + size) for n, size in enumerate(sizes)]

    pieces = cut(ranges, read_options(given_options))

    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert all(len(piece) > 0 for piece in pieces)
    assert len(pieces) >= min(least or 1, sum(sizes))
    assert most is None or max(map(len, pieces)) <= most
