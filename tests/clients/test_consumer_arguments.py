"""Calls of a consumer as users of other clients write them: they work, or are refused with what to write."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.fetching.offsets import OffsetAndTimestamp
from holdfast_log.clients.groups.committed_offsets import OffsetFetch
from holdfast_log.clients.message import ConsumerRecord, OffsetAndMetadata
from holdfast_log.protocol.errors import UnknownTopicOrPartitionError
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_consumer import fill, read

FLIGHTS = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
RECORD = ConsumerRecord("flights", 0, 5, 1, None, b"v")


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    for partition in cluster.add_topic("flights", 2):
        fill(partition, 20)
    return cluster


def consumer_on(cluster: FakeCluster, group: str | None = "readers", **more: Any) -> Consumer:
    given = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", **more}
    if group is not None:
        given["group.id"] = group
    return Consumer(given, network=cluster.network(), rng=random.Random(1))


def reader_on(cluster: FakeCluster) -> Consumer:
    """A member of a group that has read all records."""
    consumer = consumer_on(cluster, **{"enable.auto.commit": False})
    consumer.add_topic("flights")
    read(consumer, 40)
    return consumer


def offset_of(consumer: Consumer, partition: TopicPartition = FLIGHTS) -> int | None:
    committed = consumer.committed([partition])[partition]
    return None if committed is None else committed.offset


class TestCommitting:
    @pytest.mark.parametrize(
        "commit",
        [
            lambda consumer: consumer.commit({FLIGHTS: 5}),
            lambda consumer: consumer.commit(offsets={FLIGHTS: 5}),
            lambda consumer: consumer.commit({("flights", 0): 5}),
            lambda consumer: consumer.commit({FLIGHTS: OffsetAndMetadata(5, "note")}),
            lambda consumer: consumer.commit({FLIGHTS: OffsetAndTimestamp(5, 1_000, 0)}),
        ],
    )
    def test_offsets_are_taken_in_these_shapes(
        self, cluster: FakeCluster, commit: Callable[[Consumer], None]
    ) -> None:
        consumer = reader_on(cluster)
        commit(consumer)

        assert offset_of(consumer) == 5 and offset_of(consumer, OTHER) is None

    @pytest.mark.parametrize(
        ("commit", "why"),
        [
            (lambda c: c.commit([FLIGHTS]), r"not list .*: write commit\(\) for all .* or commit\(offsets="),
            (lambda c: c.commit(FLIGHTS), r"write commit\('flights', 0\), or commit\(offsets="),
            (lambda c: c.commit(RECORD), r"write commit\(offsets=\{TopicPartition\('flights', 0\): 6\}\)"),
            (lambda c: c.commit(5), r"not int 5: write commit\(\) for all"),
            (lambda c: c.commit("flights", "0"), "partition must be the number of a partition"),
            (lambda c: c.commit({"flights": 5}), "keys are each a TopicPartition, not str 'flights'"),
            (lambda c: c.commit({FLIGHTS: -1}), "the offset of the next record is committed"),
            (lambda c: c.commit({FLIGHTS: "5"}), r"values are each an offset \(int\) or an .*, not str '5'"),
            (lambda c: c.commit({FLIGHTS: 5.0}), r"not float 5\.0"),
            (lambda c: c.commit({FLIGHTS: None}), "not None"),
            (lambda c: c.commit({FLIGHTS: RECORD}), r"write record\.offset \+ 1"),
            (lambda c: c.commit({FLIGHTS: 5}, offsets={FLIGHTS: 6}), "a dict of offsets alone"),
            (lambda c: c.commit("flights", offsets={FLIGHTS: 6}), "but not both"),
            (lambda c: c.commit(partition=0), "needs the topic of the partition too"),
            (
                lambda c: c.commit(offsets=[(FLIGHTS, 5)]),
                r"a dict, as in \{TopicPartition\('topic', 0\): 5\}",
            ),
        ],
    )
    def test_what_would_commit_nothing_is_refused(
        self, cluster: FakeCluster, commit: Callable[[Any], None], why: str
    ) -> None:
        consumer = reader_on(cluster)
        with pytest.raises((TypeError, ValueError), match=why):
            commit(consumer)

        assert offset_of(consumer) is None
        consumer.commit()
        assert offset_of(consumer) == 20

    @pytest.mark.parametrize("place", [("no-such-topic",), ("flights", 7), ("no-such-topic", 0)])
    def test_a_topic_that_is_not_read_is_named(self, cluster: FakeCluster, place: tuple[Any, ...]) -> None:
        consumer = reader_on(cluster)

        with pytest.raises(UnknownTopicOrPartitionError, match="this consumer does not read"):
            consumer.commit(*place)

    def test_a_topic_of_which_nothing_was_read_yet_commits_nothing(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster)
        consumer.add_topic("flights")

        consumer.commit("flights")

        assert offset_of(consumer) is None


class TestCommitted:
    @pytest.mark.parametrize(
        "partitions", [FLIGHTS, "flights", [FLIGHTS, "flights"], 5, None, [("flights",)]]
    )
    def test_what_are_no_partitions_is_refused_and_the_next_poll_reads(
        self, cluster: FakeCluster, partitions: Any
    ) -> None:
        consumer = consumer_on(cluster)
        consumer.add_topic("flights")

        with pytest.raises(TypeError, match=r"write \[?TopicPartition\("):
            consumer.committed(partitions)

        assert len(read(consumer, 40)) == 40

    def test_a_request_that_cannot_be_made_fails_its_call_only(
        self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        consumer = reader_on(cluster)
        with monkeypatch.context() as patched:
            patched.setattr(OffsetFetch, "request", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                consumer.committed([FLIGHTS])
            assert consumer.poll(100) == []

        assert offset_of(consumer) is None


class TestSeeking:
    def test_what_offsets_for_times_and_committed_return_are_places(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster, group=None)
        consumer.add_topic("flights", 0)
        found: Any = consumer.offsets_for_times({FLIGHTS: 7_000})[FLIGHTS]
        consumer.seek(FLIGHTS, found)
        assert consumer.position(FLIGHTS) == 7
        stored: Any = OffsetAndMetadata(9)
        consumer.seek(FLIGHTS, stored)

        assert read(consumer, 1)[0].offset == 9

    @pytest.mark.parametrize(
        ("place", "why"),
        [
            ("5", "not str '5'"),
            (5.0, r"not float 5\.0"),
            (None, r"seek_to_end\(partition\) is meant"),
            (-1, r"write seek_to_end\(partition\)"),
            (-2, r"write seek_to_beginning\(partition\)"),
            (True, "not bool True"),
            (RECORD, r"record\.offset \+ 1 goes on behind it"),
            ((1, 2), r"not tuple \(1, 2\)"),
            (2**63, "not int"),
        ],
    )
    def test_what_is_no_offset_is_refused_and_the_position_is_kept(
        self, cluster: FakeCluster, place: Any, why: str
    ) -> None:
        consumer = consumer_on(cluster, group=None)
        consumer.add_topic("flights", 0)
        consumer.poll(100, 3)

        with pytest.raises((TypeError, ValueError), match=why):
            consumer.seek(FLIGHTS, place)

        assert [record.offset for record in read(consumer, 17)] == list(range(3, 20))

    @pytest.mark.parametrize("group", [None, "readers"])
    @pytest.mark.parametrize(
        ("seek", "first"),
        [
            (lambda consumer: consumer.seek(FLIGHTS, 15), 15),
            (lambda consumer: consumer.seek_to_beginning(FLIGHTS), 0),
            (lambda consumer: consumer.seek_to_end(FLIGHTS), 20),
        ],
        ids=["offset", "beginning", "end"],
    )
    def test_a_topic_can_be_positioned_before_the_first_poll(
        self, cluster: FakeCluster, group: str | None, seek: Callable[[Consumer], None], first: int
    ) -> None:
        if group is not None:
            with reader_on(cluster) as before:
                before.commit({FLIGHTS: 3, OTHER: 3})
        consumer = consumer_on(cluster, group)
        consumer.add_topic("flights")
        seek(consumer)
        records = read(consumer, 20 - first)
        while not any(record.partition == 1 for record in records):
            records += consumer.poll(100)

        assert [record.offset for record in records if record.partition == 0] == list(range(first, 20))
        assert {record.offset for record in records if record.partition == 1} == set(
            range(0 if group is None else 3, 20)
        )

    def test_a_partition_that_the_topic_does_not_have_is_reported(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster, group=None, **{"unknown.topics": "raise"})
        consumer.add_topic("flights")
        consumer.seek(TopicPartition("flights", 9), 5)
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
            for _ in range(100):
                consumer.poll(1_000)
        with pytest.raises(UnknownTopicOrPartitionError, match="does not read flights-8"):
            consumer.seek(TopicPartition("flights", 8), 5)

    def test_a_partition_that_the_group_assigns_to_another_member_is_reported_once(
        self, cluster: FakeCluster
    ) -> None:
        consumer = consumer_on(cluster)
        consumer.add_topic("flights")
        consumer.seek(TopicPartition("flights", 9), 5)
        with pytest.raises(
            UnknownTopicOrPartitionError, match=r"seek\(\) has no effect on flights-9: group readers"
        ):
            read(consumer, 40)

        assert len(read(consumer, 40)) == 40
        with pytest.raises(UnknownTopicOrPartitionError, match="the group has not assigned it"):
            consumer.seek(TopicPartition("flights", 9), 5)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.poll(1.0), r"times are in ms: write 1000 for 1\.0 s"),
        (lambda c: c.poll(-1), "None stands for no limit of its own|from 0 to 2147483647"),
        (lambda c: c.add_topic(["flights"]), r"call add_topic\(\) for each topic"),
        (lambda c: c.add_topic(FLIGHTS), r"write add_topic\('flights', 0\)"),
        (lambda c: c.pause([FLIGHTS]), r"a TopicPartition, not list .*write TopicPartition\('topic', 0\)"),
        (lambda c: c.end_offsets(FLIGHTS), r"write \[TopicPartition\('topic', 0\), \.\.\.\]"),
        (lambda c: c.offsets_for_times({FLIGHTS: 1.5}), r"write int\(1\.5 \* 1000\) if it is in seconds"),
        (lambda c: c.offsets_for_times([FLIGHTS]), r"write \{TopicPartition\('topic', 0\): 1700000000000\}"),
    ],
)
def test_other_calls_are_answered_with_the_right_spelling(
    cluster: FakeCluster, call: Callable[[Any], Any], why: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        call(consumer_on(cluster))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("subscribe", r"add_topic\(topic\), once for each topic"),
        ("consume", r"poll\(timeout_ms, max_records\)"),
        ("commit_async", r"write commit\(\)"),
    ],
)
def test_a_method_of_other_clients_is_answered_with_the_right_spelling(
    cluster: FakeCluster, name: str, instead: str
) -> None:
    consumer = consumer_on(cluster)
    with pytest.raises(AttributeError, match=f"Consumer has no {name}: .*{instead}"):
        getattr(consumer, name)

    assert not hasattr(consumer, "nonsense")


def test_an_address_in_place_of_the_properties_is_answered_with_the_right_spelling() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Consumer("localhost:9092")
