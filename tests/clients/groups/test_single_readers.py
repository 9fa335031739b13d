"""Members of a managed group with single readers attach at the leaders before they read, and return no
records of partitions that a leader refuses."""

from __future__ import annotations

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ConfigError, UnsupportedRequestError
from holdfast_log.clients.feedback.events import PartitionWithheld
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.group_membership import ConsumerHeartbeatRequest
from holdfast_log.protocol.messages.group_readers import AttachReaderRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_broker import FakeBroker
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import fill, fill_all

PARTITIONS = 6
RECORDS = 100


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    for partition in cluster.add_topic("flights", PARTITIONS):
        fill(partition, RECORDS)
    return cluster


@pytest.fixture
def party(cluster: FakeCluster) -> Party:
    return Party(cluster, group_protocol="managed", group_single_reader=True)


def kinds(broker: FakeBroker) -> list[type]:
    return [type(each) for each in broker.requests if isinstance(each, AttachReaderRequest | FetchRequest)]


def offsets(member: Member, number: int) -> list[int]:
    return [record.offset for record in member.records if record.partition == number]


def give_away(cluster: FakeCluster, number: int, member_id: str = "thief", generation: int = 99) -> None:
    """The leader knows an assignment that the member does not know yet."""
    cluster.readers.assigned["g", ("flights", number)] = (member_id, generation)
    cluster.readers.forget("g", ("flights", number))


def withheld(member: Member) -> list[tuple[int, Exception]]:
    return [(event.partition, event.error) for event in member.events if isinstance(event, PartitionWithheld)]


class TestAttaching:
    def test_a_member_attaches_once_at_each_leader_before_it_fetches(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (member,) = party.settled("alone", run_ms=500)

        assert len(member.records) == PARTITIONS * RECORDS
        for broker in cluster.brokers.values():
            asked = kinds(broker)
            assert asked[0] is AttachReaderRequest
            assert asked.count(AttachReaderRequest) == 1
            assert FetchRequest in asked

    def test_a_member_reads_nothing_before_it_is_attached(self, cluster: FakeCluster, party: Party) -> None:
        cluster.readers.is_held_up = True
        member = party.join("alone")
        party.run(3_000)
        assert len(member.owned) == PARTITIONS
        assert member.records == []
        assert not any(FetchRequest in kinds(broker) for broker in cluster.brokers.values())
        assert withheld(member) == [], "that passes"

        cluster.readers.catch_up()
        party.run(1_000)

        assert len(member.records) == PARTITIONS * RECORDS

    def test_after_a_reconnect_it_says_so_again_first(self, cluster: FakeCluster, party: Party) -> None:
        (member,) = party.settled("alone", run_ms=500)
        broker = cluster.brokers[3]
        broker.requests.clear()
        for channel in broker.channels:
            channel.cut()
        fill_all(cluster, RECORDS)
        party.run(2_000)

        assert kinds(broker)[0] is AttachReaderRequest
        assert len(member.records) == 2 * PARTITIONS * RECORDS

    def test_to_a_new_leader_too(self, cluster: FakeCluster, party: Party) -> None:
        (member,) = party.settled("alone", run_ms=500)
        partition = cluster.topics["flights"][0]
        before, partition.leader = partition.leader, partition.leader % 3 + 1
        partition.leader_epoch += 1
        assert before != partition.leader
        fill(partition, RECORDS)
        party.run(2_000)

        assert offsets(member, 0) == list(range(2 * RECORDS))
        assert withheld(member) == []

    def test_members_attach_if_the_group_has_single_readers_whatever_they_request(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        party.settled("first")
        party.settled("second", group_single_reader=False, run_ms=500)

        asked = [
            request.member_id[:6]
            for broker in cluster.brokers.values()
            for request in broker.requests
            if isinstance(request, AttachReaderRequest)
        ]
        assert "second" in asked

    def test_a_member_that_requests_single_readers_does_not_join_a_group_without_them(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        party.settled("first", group_single_reader=False)
        party.join("second")
        with pytest.raises(BrokerError, match="exists without single readers"):
            party.run(1_000)

    def test_single_readers_require_the_managed_protocol(self, cluster: FakeCluster) -> None:
        properties = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "group.single.reader": True}
        with pytest.raises(ConfigError, match=r"group\.protocol=managed"):
            Consumer(properties, network=cluster.network())


class TestLosing:
    def test_records_fetched_ahead_are_not_returned_after_a_leader_refuses(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (member,) = party.settled("alone", max_poll_records=1)
        seen = len(offsets(member, 2))
        give_away(cluster, 2)
        fill_all(cluster, RECORDS)
        party.run(2_000)
        noted = len(offsets(member, 2))
        party.run(2_000)

        assert seen <= noted < RECORDS, "there was more in store"
        assert len(offsets(member, 2)) == noted
        assert len(offsets(member, 1)) > noted, "others are read on"
        ((number, error),) = withheld(member)
        assert number == 2
        assert isinstance(error, BrokerError) and error.code is ErrorCode.OWNERSHIP_FENCED

    def test_the_coordinator_is_asked_at_once(self, cluster: FakeCluster, party: Party) -> None:
        party.settled("alone", heartbeat_interval_ms=2_500, run_ms=100)
        coordinator = cluster.brokers[cluster.groups.node]
        coordinator.requests.clear()
        give_away(cluster, 2)
        fill(cluster.topics["flights"][2], RECORDS)
        party.run(1_000)

        assert ConsumerHeartbeatRequest in map(type, coordinator.requests)

    def test_an_absent_member_returns_nothing_and_gets_a_lost_event(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        slow, other = party.join("slow", max_poll_records=1), party.join("other")
        party.settle()
        share = slow.owned
        read = {number: len(offsets(slow, number)) for number in share}
        party.members.remove(slow)
        party.run(10_000)
        assert len(other.owned) == PARTITIONS

        party.members.append(slow)
        slow.poll(0)
        slow.poll(0)
        assert {number: len(offsets(slow, number)) for number in share} == read
        party.settle()

        assert ("lost", share) in slow.told
        for number in range(PARTITIONS):
            both = {*offsets(slow, number), *offsets(other, number)}
            assert both == set(range(RECORDS))

    def test_a_partition_kept_in_the_next_generation_is_read_on(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (member,) = party.settled("alone", run_ms=500)
        member.consumer.rewind({TopicPartition("flights", 4): 50})
        party.run(1_000)

        assert offsets(member, 4) == [*range(RECORDS), *range(50, RECORDS)]
        assert withheld(member) == []


class TestOldBrokers:
    def test_partitions_of_an_old_broker_are_withheld_and_the_others_read(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        del cluster.brokers[3].features["holdfast.single.reader"]
        (member,) = party.settled("alone", run_ms=2_000)
        old = [number for number, each in enumerate(cluster.topics["flights"]) if each.leader == 3]

        assert sorted({record.partition for record in member.records}) == [
            number for number in range(PARTITIONS) if number not in old
        ]
        assert sorted(number for number, _ in withheld(member)) == old, "told once each"
        assert all(isinstance(error, UnsupportedRequestError) for _, error in withheld(member))
