"""A consumer of topics and partitions that do not exist: reported once, and read once they exist."""

from __future__ import annotations

import logging

import pytest

from holdfast_log.clients.feedback.events import Event, TopicUnknown
from holdfast_log.protocol.errors import BrokerError, InvalidTopicError, UnknownTopicOrPartitionError
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.clients.groups.party import Party
from tests.clients.test_consumer import consumer_on, fill, read

RAISE = {"unknown.topics": "raise"}


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


def test_an_unknown_topic_is_raised_once_and_read_when_it_exists(cluster: FakeCluster) -> None:
    consumer = consumer_on(cluster, RAISE)
    consumer.add_topic("flihgts")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic flihgts does not exist: create it"):
        consumer.poll(60_000)
    assert consumer.poll(60_000) == []
    with pytest.raises(UnknownTopicOrPartitionError, match="flihgts"):
        raise consumer.last_error(TopicPartition("flihgts", 0)) or AssertionError
    fill(cluster.add_topic("flihgts")[0], 3)

    assert len(read(consumer, 3)) == 3


def test_an_unknown_partition_is_raised_once_and_read_when_it_exists(cluster: FakeCluster) -> None:
    consumer = consumer_on(cluster, RAISE)
    consumer.add_topic("flights", 7)
    with pytest.raises(
        UnknownTopicOrPartitionError, match=r"topic flights has no partition 7: its partitions are 0 to 0"
    ):
        consumer.poll(60_000)
    assert consumer.poll(10_000) == []
    assert isinstance(consumer.last_error(TopicPartition("flights", 7)), UnknownTopicOrPartitionError)
    cluster.topics["flights"] += [FakePartition(1) for _ in range(7)]
    fill(cluster.topics["flights"][7], 3)

    assert [record.partition for record in read(consumer, 3)] == [7, 7, 7]


def test_by_default_an_event_and_a_warning_report_it_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    consumer = consumer_on(cluster, on_event=events.append)
    consumer.add_topic("flihgts")
    consumer.add_topic("flights", 7)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert consumer.poll(1_000) == []

    told = [(event.topic, event.partition) for event in events if isinstance(event, TopicUnknown)]
    assert sorted(told) == [("flights", 7), ("flihgts", -1)]
    assert sum("flihgts does not exist" in record.getMessage() for record in caplog.records) == 1
    assert sum("no partition 7" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_of_a_group_reports_it_too(cluster: FakeCluster, protocol: str) -> None:
    party = Party(cluster, group_protocol=protocol, unknown_topics="raise")
    alone = party.join("alone", "flights", "flihgts")
    with pytest.raises(UnknownTopicOrPartitionError, match="flihgts"):
        for _ in range(100):
            alone.poll(1_000)
    fill(cluster.topics["flights"][0], 3)
    while len(alone.records) < 3:
        alone.poll(100)


def test_a_topic_that_a_broker_learns_of_late_is_no_error(cluster: FakeCluster) -> None:
    consumer = consumer_on(cluster, RAISE)
    consumer.add_topic("later")
    assert consumer.poll(1_000) == []
    fill(cluster.add_topic("later")[0], 3)

    assert len(read(consumer, 3)) == 3


@pytest.mark.parametrize("name", ["", ".", "a b", "ä", "x" * 250])
def test_an_invalid_name_is_raised_at_once(cluster: FakeCluster, name: str) -> None:
    with pytest.raises(InvalidTopicError, match="cannot be the name of a topic"):
        consumer_on(cluster).add_topic(name)


def test_a_partition_that_was_not_added_is_still_refused(cluster: FakeCluster) -> None:
    with pytest.raises(BrokerError, match=r"call add_topic\(\) first"):
        consumer_on(cluster).last_error(TopicPartition("flights", 0))


@pytest.mark.parametrize("allowed", [True, False])
def test_topics_are_created_only_if_that_is_allowed(cluster: FakeCluster, allowed: bool) -> None:
    consumer = consumer_on(cluster, {"allow.auto.create.topics": allowed})
    consumer.add_topic("later")
    consumer.poll(100)
    requests = [r for r in cluster.brokers[1].requests if isinstance(r, MetadataRequest)]

    assert {request.allow_auto_topic_creation for request in requests} == {allowed}
