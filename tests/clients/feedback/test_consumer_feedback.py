"""The counters and events of consumers and the admin client, against brokers in memory."""

from __future__ import annotations

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.clients.feedback.events import (
    CommitFailed,
    Event,
    LeaderMoved,
    PositionReset,
    RebalanceBegan,
    RebalanceEnded,
)
from holdfast_log.protocol.errors import ErrorCode, OffsetOutOfRangeError
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import FLIGHTS, fill, read, reader_on


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    for partition in cluster.add_topic("flights", 2):
        fill(partition, 100)
    return cluster


@pytest.fixture(params=["classic", "consumer", "managed"])
def party(request: pytest.FixtureRequest, cluster: FakeCluster) -> Party:
    return Party(cluster, group_protocol=request.param, partition_assignment_strategy="range")


class TestReading:
    def test_records_count_when_they_are_handed_out(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, partition=0)
        before = consumer.feedback()
        records = consumer.poll(1000, 30)
        partly = consumer.feedback()
        records += read(consumer, 70)
        after = consumer.feedback()

        assert (before.records, before.lag) == (0, {FLIGHTS: None})
        assert (partly.records, partly.lag) == (30, {FLIGHTS: 70})
        assert (after.records, after.lag) == (100, {FLIGHTS: 0}) and len(records) == 100
        assert after.bytes == sum(len(batch) for batch in cluster.topics["flights"][0].batches)
        assert after.fetches == after.connection.apis["Fetch"].responses > 0
        assert partly.buffered_bytes > after.buffered_bytes == 0
        assert (after.fetch_errors, after.rebalances, after.commits) == (0, 0, 0)

    def test_records_of_poll_batches_count(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster)
        taken = 0
        while taken < 200:
            taken += sum(len(batch) for batch in consumer.poll_batches(1000))

        assert consumer.feedback().records == 200
        assert consumer.feedback().lag == {FLIGHTS: 0, TopicPartition("flights", 1): 0}

    def test_fetches_that_fail_are_counted(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, partition=0)
        cluster.brokers[1].fail_next(FetchRequest, ErrorCode.KAFKA_STORAGE_ERROR)
        cluster.brokers[1].fail_next(FetchRequest, "cut")
        read(consumer, 100)

        seen = consumer.feedback()
        assert seen.fetch_errors == 2
        assert (seen.connection.connections_lost, seen.connection.apis["Fetch"].failures) == (1, 1)

    def test_a_reset_position_is_reported_with_its_offset(self, cluster: FakeCluster) -> None:
        told: list[Event] = []
        consumer = reader_on(cluster, on_event=told.append, partition=0)
        consumer.seek(FLIGHTS, 5000)
        read(consumer, 100)

        (reset,) = [event for event in told if isinstance(event, PositionReset)]
        assert (reset.topic, reset.partition, reset.offset) == ("flights", 0, 5000)
        assert isinstance(reset.error, OffsetOutOfRangeError)

    def test_a_change_of_leader_is_reported(self, cluster: FakeCluster) -> None:
        told: list[Event] = []
        consumer = reader_on(cluster, on_event=told.append, partition=0)
        read(consumer, 100)
        partition = cluster.topics["flights"][0]
        partition.leader, partition.leader_epoch = 2, 1
        fill(partition, 10)
        read(consumer, 10)

        moves = [event for event in told if isinstance(event, LeaderMoved)]
        assert moves == [LeaderMoved("flights", 0, leader=2, leader_epoch=1, leader_before=1)]


class TestGroups:
    def rebalances(self, member: Member) -> list[Event]:
        return [event for event in member.events if isinstance(event, RebalanceBegan | RebalanceEnded)]

    def test_the_beginning_and_the_end_of_a_rebalance_are_reported(self, party: Party) -> None:
        (first,) = party.settled("first")
        joining = self.rebalances(first)
        party.settled("second")
        sharing = self.rebalances(first)[len(joining) :]

        assert isinstance(joining[0], RebalanceBegan) and joining[0].group == "g"
        ended = joining[-1]
        assert isinstance(ended, RebalanceEnded)
        assert [partition.partition for partition in sorted(ended.partitions)] == [0, 1]
        assert isinstance(sharing[0], RebalanceBegan)
        assert isinstance(sharing[-1], RebalanceEnded) and len(sharing[-1].partitions) == 1
        assert sharing[-1].generation == first.generation > ended.generation
        kinds = [type(event) for event in joining + sharing]
        assert kinds == [RebalanceBegan, RebalanceEnded] * (len(kinds) // 2)
        seen = first.consumer.feedback()
        ends = [event for event in joining + sharing if isinstance(event, RebalanceEnded)]
        assert (seen.rebalances, seen.rebalance_ms) == (len(ends), sum(event.took_ms for event in ends))

    def test_commits_are_counted(self, party: Party) -> None:
        (member,) = party.settled("alone", enable_auto_commit=False, run_ms=100)
        before = member.consumer.feedback()
        member.consumer.commit()
        after = member.consumer.feedback()

        assert (before.commits, before.records) == (0, 200)
        assert (after.commits, after.commits_failed) == (1, 0)

    def test_a_failed_automatic_commit_is_reported(self, cluster: FakeCluster, party: Party) -> None:
        (member,) = party.settled("alone")
        for broker in cluster.brokers.values():
            broker.fail_next(OffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        party.run(3000)

        failed = [event for event in member.events if isinstance(event, CommitFailed)]
        assert [event.group for event in failed] == ["g"]
        assert len(failed[0].partitions) == 2
        assert failed[0].error is not None and not isinstance(failed[0].error, CommitFailedError)
        assert member.consumer.feedback().commits_failed == 1


class TestAdministering:
    def test_an_admin_client_counts_its_requests_and_those_it_sent_again(self, cluster: FakeCluster) -> None:
        told: list[Event] = []
        with Admin({"bootstrap.servers": cluster.bootstrap}, network=cluster, on_event=told.append) as admin:
            admin.describe_cluster()
            calm = admin.feedback()
            for broker in cluster.brokers.values():
                broker.fail_next(DescribeClusterRequest, "cut")
            admin.describe_cluster()
            shaken = admin.feedback()

        assert calm.retries == 0
        assert shaken.retries == shaken.connection.apis["DescribeCluster"].failures > 0
        assert shaken.connection.connections_lost == shaken.retries
        assert len(told) >= 2
