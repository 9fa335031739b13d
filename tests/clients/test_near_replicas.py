"""A consumer with a rack reads from followers there, and from leaders where that fails (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.clients.test_consumer import FLIGHTS, fill, read, reader_on

LEADER, FOLLOWER, OTHER = 1, 2, 3
FAR, NEAR = "far", "near"
COUNT = 50


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(brokers=3)
    for broker in cluster.brokers.values():
        broker.rack = FAR
    cluster.brokers[FOLLOWER].rack = NEAR
    for partition in cluster.add_topic("flights", 1):
        partition.followers[FOLLOWER] = None
        fill(partition, COUNT)
    return cluster


def flights(cluster: FakeCluster) -> FakePartition:
    return cluster.topics["flights"][0]


def near_reader(cluster: FakeCluster, **properties: Any) -> Consumer:
    # Small answers, so that there are several.
    small = {"max.partition.fetch.bytes": 200, "fetch.max.wait.ms": 100}
    return reader_on(cluster, {"client.rack": NEAR, **small, **properties}, partition=0)


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def racks_told(cluster: FakeCluster, node: int) -> list[str]:
    """The rack in each fetch that a broker got."""
    return [each.rack_id for each in cluster.brokers[node].requests if isinstance(each, FetchRequest)]


def settled(cluster: FakeCluster, **properties: Any) -> Consumer:
    """A consumer that reads from the follower, and has read everything."""
    consumer = near_reader(cluster, **properties)
    assert offsets(read(consumer, COUNT)) == list(range(COUNT))
    assert racks_told(cluster, LEADER) == [NEAR]
    return consumer


def reads_on_at_the_leader(cluster: FakeCluster, consumer: Consumer) -> None:
    """The consumer gets new records from the leader, soon, and does not ask it for another follower."""
    fill(flights(cluster), COUNT)
    began_ms = cluster.time_ms
    assert offsets(read(consumer, COUNT)) == list(range(COUNT, 2 * COUNT))
    assert cluster.time_ms - began_ms < 5_000, "the leader counts a dead follower as in sync for longer"
    told = racks_told(cluster, LEADER)
    assert told == [NEAR] + [""] * (len(told) - 1)


def test_a_consumer_reads_from_the_follower_in_its_rack(cluster: FakeCluster) -> None:
    consumer = settled(cluster)
    assert len(racks_told(cluster, FOLLOWER)) > 2
    assert racks_told(cluster, OTHER) == []
    assert consumer.feedback().fetch_errors == 0


@pytest.mark.parametrize("rack", ["", FAR, "elsewhere"])
def test_a_consumer_in_another_rack_reads_from_the_leader(cluster: FakeCluster, rack: str) -> None:
    consumer = near_reader(cluster, **{"client.rack": rack})
    assert offsets(read(consumer, COUNT)) == list(range(COUNT))
    assert set(racks_told(cluster, LEADER)) == {rack}
    assert racks_told(cluster, FOLLOWER) == []


def test_after_a_while_the_leader_is_asked_again(cluster: FakeCluster) -> None:
    consumer = settled(cluster, **{"metadata.max.age.ms": 1_000})
    for _ in range(30):
        consumer.poll(100)
    told = racks_told(cluster, LEADER)
    assert 3 <= len(told) <= 4
    assert set(told) == {NEAR}
    fill(flights(cluster), 10)
    assert offsets(read(consumer, 10)) == list(range(COUNT, COUNT + 10))
    assert consumer.feedback().fetch_errors == 0


def test_no_record_comes_twice_while_a_fetch_to_the_follower_waits(cluster: FakeCluster) -> None:
    consumer = settled(cluster, **{"metadata.max.age.ms": 1_000, "fetch.max.wait.ms": 3_000})
    consumer.poll(2_500)  # The choice of the follower has ended, and its answer is awaited.
    fill(flights(cluster), 10)
    assert offsets(read(consumer, 10)) == list(range(COUNT, COUNT + 10))
    consumer.poll(5_000)
    assert consumer.feedback().fetch_errors == 0


def dies(cluster: FakeCluster) -> None:
    cluster.stop_broker(FOLLOWER)


def follows_no_more(cluster: FakeCluster) -> None:
    del flights(cluster).followers[FOLLOWER]


def refuses(cluster: FakeCluster) -> None:
    cluster.fail_next("Fetch", ErrorCode.UNKNOWN_LEADER_EPOCH, broker=FOLLOWER)


def is_behind(cluster: FakeCluster) -> None:
    flights(cluster).followers[FOLLOWER] = COUNT - 10


@pytest.mark.parametrize("fails", [dies, follows_no_more, refuses, is_behind])
def test_a_consumer_whose_follower_fails_goes_on_at_the_leader(
    cluster: FakeCluster, fails: Callable[[FakeCluster], None]
) -> None:
    consumer = settled(cluster)
    fails(cluster)
    reads_on_at_the_leader(cluster, consumer)


def test_an_offset_that_the_leader_does_not_have_either_is_reset(cluster: FakeCluster) -> None:
    consumer = settled(cluster)
    consumer.seek(FLIGHTS, 1_000_000)
    assert offsets(read(consumer, COUNT)) == list(range(COUNT))


def test_a_follower_that_is_not_in_the_metadata_is_not_asked(cluster: FakeCluster) -> None:
    cluster.stop_broker(FOLLOWER)
    consumer = near_reader(cluster)
    assert offsets(read(consumer, COUNT)) == list(range(COUNT))
    told = racks_told(cluster, LEADER)
    assert told == [NEAR] + [""] * (len(told) - 1)


def test_a_consumer_comes_back_to_its_follower(cluster: FakeCluster) -> None:
    consumer = settled(cluster)
    dies(cluster)
    reads_on_at_the_leader(cluster, consumer)
    cluster.start_broker(FOLLOWER)
    asked = len(racks_told(cluster, FOLLOWER))
    for _ in range(40):
        consumer.poll(1_000)
    assert len(racks_told(cluster, FOLLOWER)) > asked
    fill(flights(cluster), 10)
    assert offsets(read(consumer, 10)) == list(range(2 * COUNT, 2 * COUNT + 10))


def test_when_the_follower_becomes_the_leader_nothing_is_lost(cluster: FakeCluster) -> None:
    consumer = settled(cluster)
    flights(cluster).followers = {LEADER: None}
    cluster.move_leader("flights", 0, FOLLOWER)
    fill(flights(cluster), COUNT)
    assert offsets(read(consumer, COUNT)) == list(range(COUNT, 2 * COUNT))
