"""The offsets of micro-batches: admission, new and lost partitions, waiting, and what Spark stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.clients.errors import UnreachableError
from holdfast_log.pipeline.offsets import DataLossError, OffsetRange, PartitionsGoneError
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.options import LookupRetries, stream_options
from holdfast_log.pipeline.repeated_lookup import RepeatedLookup
from holdfast_log.pipeline.stream import (
    IDLE_WAIT_S,
    BatchLimits,
    Positions,
    StreamOffsets,
    from_json,
    share,
    to_json,
)
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

ZERO, ONE, TWO = (TopicPartition("flights", number) for number in range(3))
ANY = BatchLimits()


@dataclass
class Cluster:
    """Partitions that hold [earliest, latest), and a clock that only sleeping moves."""

    held: dict[TopicPartition, tuple[int, int]]
    now_s: float = 100.0
    looks: int = 0
    stale: list[dict[TopicPartition, int]] = field(default_factory=list)
    """Ends that the next look-ups answer instead, as a new leader may."""
    errors: list[Exception] = field(default_factory=list)
    deleted: set[TopicPartition] = field(default_factory=set)
    """Partitions that disappear after the next look-up of partitions, before that of offsets."""

    def topics(self) -> Sequence[str]:
        return sorted({partition.topic for partition in self.held})

    def partitions(self, topic: str) -> Sequence[int]:
        return [partition.partition for partition in self.held if partition.topic == topic]

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._check(partitions)
        return {partition: self.held[partition][0] for partition in partitions}

    def _check(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in self.deleted:
            self.held.pop(partition, None)
        if gone := [partition for partition in partitions if partition not in self.held]:
            raise PartitionsGoneError(gone)

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.looks += 1
        if self.errors:
            raise self.errors.pop(0)
        self._check(partitions)
        stale = self.stale.pop(0) if self.stale else {}
        return {partition: stale.get(partition, self.held[partition][1]) for partition in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        return dict.fromkeys(times_ms, 7)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def stream(cluster: Cluster, **given: str) -> StreamOffsets:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", **given}
    if not {"assign", "subscribePattern"} & set(options):
        options["subscribe"] = "flights"
    return StreamOffsets(stream_options(options), cluster, cluster.clock, cluster.sleep)


def test_a_new_query_begins_at_the_end_unless_told_otherwise() -> None:
    cluster = Cluster({ZERO: (5, 10), ONE: (0, 3)})

    assert stream(cluster).initial() == {ZERO: 10, ONE: 3}
    assert stream(cluster, startingOffsets="earliest").initial() == {ZERO: 5, ONE: 0}
    by_partition = stream(cluster, startingOffsets='{"flights": {"0": -2, "1": -1}}')
    assert by_partition.initial() == {ZERO: 5, ONE: 3}
    assert stream(cluster, startingTimestamp="1000").initial() == {ZERO: 7, ONE: 7}


def test_a_topic_that_does_not_exist_is_an_error_but_a_pattern_may_match_later() -> None:
    with pytest.raises(OptionError, match="there is no topic flights"):
        stream(Cluster({})).initial()
    cluster = Cluster({})
    offsets = stream(cluster, subscribePattern="fl.*")
    assert offsets.initial() == {}

    cluster.held[ZERO] = (0, 4)

    assert offsets.latest({}, ANY) == {ZERO: 4}
    assert offsets.ranges({}, {ZERO: 4}) == [OffsetRange(ZERO, 0, 4)]


def test_a_batch_reads_all_that_is_there() -> None:
    offsets = stream(Cluster({ZERO: (0, 10), ONE: (0, 3)}))

    end = offsets.latest({ZERO: 4, ONE: 3}, ANY)

    assert end == {ZERO: 10, ONE: 3}
    assert offsets.ranges({ZERO: 4, ONE: 3}, end) == [OffsetRange(ZERO, 4, 10)]


def test_a_topic_that_is_deleted_between_two_look_ups_fails_the_query_at_once() -> None:
    cluster = Cluster({ZERO: (0, 10), ONE: (0, 3)}, deleted={ONE})
    offsets = stream(cluster)

    with pytest.raises(DataLossError, match="flights-1 no longer exists: the topic was deleted"):
        offsets.latest({ZERO: 4, ONE: 3}, ANY)

    assert cluster.now_s == 100.0, "without a wait"


def test_a_query_may_continue_without_a_topic_that_is_deleted_between_two_look_ups() -> None:
    cluster = Cluster({ZERO: (0, 10), ONE: (0, 3)}, deleted={ONE})
    offsets = stream(cluster, failOnDataLoss="false")

    assert offsets.latest({ZERO: 4, ONE: 3}, ANY) == {ZERO: 10}

    cluster.deleted = {ZERO}
    assert offsets.ranges({ZERO: 4}, {ZERO: 10}) == []


def test_new_partitions_are_read_from_their_beginning() -> None:
    cluster = Cluster({ZERO: (0, 10)})
    offsets = stream(cluster)
    cluster.held[ONE] = (0, 2)

    end = offsets.latest({ZERO: 10}, ANY)

    assert end == {ZERO: 10, ONE: 2}
    assert offsets.ranges({ZERO: 10}, end) == [OffsetRange(ONE, 0, 2)]


def test_records_deleted_before_a_new_partition_was_read_are_not_missed_silently() -> None:
    cluster = Cluster({ZERO: (0, 10), ONE: (5, 8)})

    with pytest.raises(DataLossError, match="failOnDataLoss"):
        stream(cluster).ranges({ZERO: 10}, {ZERO: 10, ONE: 8})
    kept = stream(cluster, failOnDataLoss="false").ranges({ZERO: 10}, {ZERO: 10, ONE: 8})
    assert kept == [OffsetRange(ONE, 5, 8)]


def test_a_batch_is_limited_in_proportion_to_what_each_partition_has() -> None:
    offsets = stream(Cluster({ZERO: (0, 100), ONE: (0, 300)}))

    assert offsets.latest({ZERO: 0, ONE: 0}, BatchLimits(at_most=40)) == {ZERO: 10, ONE: 30}
    assert offsets.newest == {ZERO: 100, ONE: 300}


def test_a_batch_waits_for_enough_records_but_not_longer_than_the_delay() -> None:
    cluster = Cluster({ZERO: (0, 10)})
    offsets = stream(cluster, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    enough = BatchLimits(at_least=5)
    assert offsets.latest({ZERO: 9}, enough) == {ZERO: 10}, "the first batch is never delayed"
    cluster.held[ZERO] = (0, 12)

    assert offsets.latest({ZERO: 10}, enough) == {ZERO: 10}
    cluster.held[ZERO] = (0, 15)
    assert offsets.latest({ZERO: 10}, enough) == {ZERO: 15}

    cluster.held[ZERO] = (0, 16)
    cluster.now_s += 10
    assert offsets.latest({ZERO: 15}, enough) == {ZERO: 16}


def test_an_idle_query_sleeps_and_looks_a_few_times_a_second() -> None:
    cluster = Cluster({ZERO: (0, 10)})
    offsets = stream(cluster)

    for _ in range(10):
        assert offsets.latest({ZERO: 10}, ANY) == {ZERO: 10}

    assert cluster.now_s >= 100 + 10 * IDLE_WAIT_S
    assert cluster.looks <= 70


def test_records_that_arrive_while_a_query_is_idle_end_the_wait() -> None:
    cluster = Cluster({ZERO: (0, 11)}, stale=[{ZERO: 10}, {ZERO: 10}])

    assert stream(cluster).latest({ZERO: 10}, ANY) == {ZERO: 11}
    assert cluster.now_s < 100.2


def test_available_now_reads_what_was_there_at_its_start_and_then_ends_without_waiting() -> None:
    cluster = Cluster({ZERO: (0, 10)})
    offsets = stream(cluster)
    offsets.freeze()
    cluster.held |= {ZERO: (0, 50), ONE: (0, 9)}

    assert offsets.latest({ZERO: 0}, BatchLimits(at_most=6)) == {ZERO: 6}
    assert offsets.latest({ZERO: 6}, BatchLimits(at_most=6)) == {ZERO: 10}
    assert offsets.latest({ZERO: 10}, BatchLimits(at_least=5)) == {ZERO: 10}
    assert cluster.now_s == 100


def test_a_new_leader_that_does_not_know_yet_what_is_committed_is_asked_again() -> None:
    cluster = Cluster({ZERO: (0, 12)}, stale=[{ZERO: 8}, {ZERO: 8}])

    assert stream(cluster).latest({ZERO: 10}, ANY) == {ZERO: 12}


def test_a_partition_that_became_shorter_fails_the_query_unless_loss_is_allowed() -> None:
    cluster = Cluster({ZERO: (0, 4)})

    with pytest.raises(DataLossError, match="flights-0 ends at 4, but the query has read up to 10"):
        stream(cluster).latest({ZERO: 10}, ANY)
    lenient = stream(cluster, failOnDataLoss="false")
    assert lenient.latest({ZERO: 10}, ANY) == {ZERO: 4}
    assert lenient.ranges({ZERO: 10}, {ZERO: 4}) == []


def test_a_partition_that_is_gone_fails_the_query_unless_loss_is_allowed() -> None:
    cluster = Cluster({ZERO: (0, 12)})

    with pytest.raises(DataLossError, match="has read flights-1 before"):
        stream(cluster).latest({ZERO: 10, ONE: 3}, ANY)
    assert stream(cluster, failOnDataLoss="false").latest({ZERO: 10, ONE: 3}, ANY) == {ZERO: 12}


def test_a_large_batch_is_divided_into_the_requested_number_of_tasks() -> None:
    offsets = stream(Cluster({ZERO: (0, 100)}), minPartitions="4")

    ranges = offsets.ranges({ZERO: 0}, {ZERO: 100})

    assert [(found.start, found.end) for found in ranges] == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_a_refused_look_up_is_repeated_and_an_unanswered_one_is_not() -> None:
    refusal = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "try again")
    cluster = Cluster({ZERO: (0, 3)}, errors=[refusal, refusal])
    lookup = RepeatedLookup(cluster, LookupRetries(2, 10), cluster.sleep)

    assert lookup.latest([ZERO]) == {ZERO: 3}
    assert cluster.now_s == pytest.approx(100.02)
    cluster.errors = [refusal, refusal, refusal]
    with pytest.raises(type(refusal)):
        lookup.latest([ZERO])
    cluster.looks, cluster.errors = 0, [UnreachableError("127.0.0.1:1: refused")] * 2
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        lookup.latest([ZERO])
    assert cluster.looks == 1


@given(
    backlogs=st.lists(st.integers(0, 1000), min_size=1, max_size=8),
    at_most=st.integers(1, 3000),
)
def test_shares_add_up_to_the_limit_and_exceed_no_backlog(backlogs: list[int], at_most: int) -> None:
    given_backlogs = {TopicPartition("t", number): size for number, size in enumerate(backlogs)}

    shares = share(given_backlogs, at_most)

    assert sum(shares.values()) == min(at_most, sum(backlogs))
    assert all(0 <= shares[partition] <= size for partition, size in given_backlogs.items())


def test_one_record_beside_millions_is_not_postponed() -> None:
    assert share({ZERO: 1, ONE: 10**6, TWO: 10**6}, 100)[ZERO] == 1


def test_offsets_are_stored_as_sparks_kafka_source_stores_them_and_in_one_order() -> None:
    positions: Positions = {TopicPartition("b", 10): 5, TopicPartition("b", 2): 4, TopicPartition("a", 0): 3}

    stored = to_json(positions)

    assert str(stored) == "{'a': {'0': 3}, 'b': {'2': 4, '10': 5}}"
    assert from_json(stored) == positions


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"endingtimestamp": "5"}, "endingTimestamp is for batch reads"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger=5 is larger"),
        ({"maxTriggerDelay": "soon"}, "a duration such as"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' is not allowed"),
    ],
)
def test_options_that_a_streaming_query_cannot_have_are_refused(
    given_options: dict[str, str], expected: str
) -> None:
    with pytest.raises(OptionError) as raised:
        stream(Cluster({}), **given_options)

    assert expected in str(raised.value)
