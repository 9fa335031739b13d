"""The admin client's group operations, against the real coordinator machine in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_log.clients.admin import Admin, GroupListing, ManagedGroupListing, OffsetAndMetadata
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.errors import UnreachableError
from holdfast_log.protocol.errors import (
    BrokerError,
    ErrorCode,
    GroupNotEmptyError,
    GroupNotFoundError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast_log.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Party
from tests.clients.test_consumer import fill

HERE, THERE = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    for partition in cluster.add_topic("flights", 4):
        fill(partition, 10)
    cluster.groups.node = 2
    return cluster


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap}, network=cluster.network()) as admin:
        yield admin


def test_groups_are_listed_by_state_and_type(cluster: FakeCluster, admin: Admin) -> None:
    cluster.groups.commit("old", {HERE: 3})
    Party(cluster).join("a").poll(500)
    Party(cluster, group_id="m", group_protocol="managed").join("b").poll(500)

    classic = GroupListing("g", "consumer", "Stable", "classic")
    assert [group.group_id for group in admin.list_groups()] == ["g", "m", "old"]
    assert admin.list_groups(["stable"], ["classic"]) == [classic]
    assert [group.group_id for group in admin.list_groups(["Empty"])] == ["old"]


@pytest.mark.parametrize("protocol", ["classic", "managed"])
def test_a_group_is_described(cluster: FakeCluster, admin: Admin, protocol: str) -> None:
    party = Party(cluster, group_protocol=protocol, partition_assignment_strategy="range")
    party.join("a"), party.join("b")
    party.settle()

    found = admin.describe_groups(["g", "none"])
    assert (found["g"].state, found["g"].assignor, found["g"].coordinator.id) == ("Stable", "range", 2)
    assert {member.client_id: member.partitions for member in found["g"].members} == {
        "a": (HERE, THERE),
        "b": (TopicPartition("flights", 2), TopicPartition("flights", 3)),
    }
    assert found["none"].state == "Dead"


def test_a_group_of_kip_848_is_described_with_its_epochs(cluster: FakeCluster, admin: Admin) -> None:
    cluster.groups.commit("old", {HERE: 3})
    party = Party(cluster, group_protocol="consumer")
    party.join("a"), party.join("b")
    party.settle()

    found = admin.describe_consumer_groups(["g", "old", "none"])
    assert list(found) == ["g"], "groups of other protocols are left out"
    group = found["g"]
    assert (group.state, group.assignor, group.coordinator.id) == ("Stable", "uniform", 2)
    assert group.epoch == group.assignment_epoch >= 2, "two members have come"
    a, b = sorted(group.members, key=lambda member: member.client_id)
    assert (a.client_id, b.client_id) == ("a", "b")
    assert {*a.partitions, *b.partitions} == {TopicPartition("flights", number) for number in range(4)}
    for member in (a, b):
        assert member.epoch == group.epoch and member.target == member.partitions
        assert (member.topics, member.regex, member.is_classic) == (("flights",), None, False)
    shown = {member.member_id: member for member in admin.describe_groups(["g"])["g"].members}
    assert {each.member_id: each.partitions for each in group.members} == {
        name: tuple(sorted(member.partitions)) for name, member in shown.items()
    }


def test_brokers_that_do_not_serve_kip_848_have_none_of_its_groups() -> None:
    cluster = FakeCluster(1)
    cluster.groups.commit("old", {HERE: 3})
    for broker in cluster.brokers.values():
        del broker.versions[ConsumerGroupDescribeRequest.api.key]
    with Admin({"bootstrap.servers": cluster.bootstrap}, network=cluster.network()) as admin:
        assert admin.describe_consumer_groups(["old"]) == {}


def test_offsets_are_set_read_and_deleted(admin: Admin) -> None:
    admin.alter_group_offsets("new", {HERE: 4, THERE: OffsetAndMetadata(5, "note")})

    four, five = OffsetAndMetadata(4), OffsetAndMetadata(5, "note")
    assert admin.list_group_offsets("new") == {HERE: four, THERE: five}
    assert admin.list_group_offsets("new", [HERE, TopicPartition("flights", 2)]) == {HERE: four}
    admin.delete_group_offsets("new", [HERE])
    assert admin.list_group_offsets("new") == {THERE: five}


def test_offsets_of_a_group_with_members_cannot_be_changed(cluster: FakeCluster, admin: Admin) -> None:
    party = Party(cluster)
    party.join("a")
    party.settle()

    with pytest.raises(GroupNotEmptyError, match="g has members"):
        admin.alter_group_offsets("g", {HERE: 4})
    with pytest.raises(GroupNotEmptyError, match="group g"):
        admin.delete_groups(["g"])
    with pytest.raises(BrokerError, match=r"flights-0: .*subscribed"):
        admin.delete_group_offsets("g", [HERE])


def test_groups_are_deleted(cluster: FakeCluster, admin: Admin) -> None:
    cluster.groups.commit("old", {HERE: 3})
    admin.delete_groups(["old"])

    assert admin.list_groups() == []
    with pytest.raises(GroupNotFoundError, match="group old"):
        admin.delete_groups(["old"])
    with pytest.raises(GroupNotFoundError, match="group old"):
        admin.delete_group_offsets("old", [HERE])


@pytest.mark.parametrize("how", ["cut", "cut after", ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_failed_request_to_the_coordinator_is_retried(
    cluster: FakeCluster, admin: Admin, how: str | ErrorCode
) -> None:
    cluster.groups.commit("old", {HERE: 3})
    for broker in cluster.brokers.values():
        broker.fail_next(FindCoordinatorRequest, how)
    if isinstance(how, ErrorCode):
        cluster.brokers[2].fail_next(DeleteGroupsRequest, how)
    admin.delete_groups(["old"])

    assert admin.list_groups() == []


def test_a_request_follows_a_coordinator_that_moves(cluster: FakeCluster, admin: Admin) -> None:
    cluster.groups.commit("old", {HERE: 3})
    assert len(admin.list_group_offsets("old")) == 1
    cluster.groups.move(3)

    assert len(admin.list_group_offsets("old")) == 1


class TestManagedGroups:
    def test_a_managed_group_is_created_listed_extended_and_deleted(
        self, cluster: FakeCluster, admin: Admin
    ) -> None:
        cluster.add_topic("carriers")
        admin.create_managed_group("m", ["flights"], session_timeout_ms=9_000, assignor="sticky")
        admin.create_managed_group("m", ["carriers"], session_timeout_ms=9_000, assignor="sticky")

        node = Node(2, "broker-2", 9092)
        assert admin.list_managed_groups() == [
            ManagedGroupListing("m", (), ("flights", "carriers"), node, 9_000)
        ]
        assert admin.list_managed_groups(["other"]) == []
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            admin.create_managed_group("m", ["flights"], session_timeout_ms=8_000)
        admin.delete_managed_groups(["m"])
        assert admin.list_managed_groups() == []
        with pytest.raises(GroupNotFoundError, match="group m"):
            admin.delete_managed_groups(["m"])

    def test_a_managed_group_is_described_with_its_single_reader_setting(self, admin: Admin) -> None:
        admin.create_managed_group("m", ["flights"], single_reader=True)
        assert [group.single_reader for group in admin.list_managed_groups()] == [True]
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            admin.create_managed_group("m", ["flights"])

    def test_a_managed_group_with_members_cannot_be_deleted(self, cluster: FakeCluster, admin: Admin) -> None:
        Party(cluster, group_protocol="managed").join("a").poll(500)
        with pytest.raises(GroupNotEmptyError):
            admin.delete_managed_groups(["g"])

    def test_a_managed_group_without_members_is_rewound(self, admin: Admin) -> None:
        admin.create_managed_group("m", ["flights"])

        assert admin.rewind_group("m", {HERE: 7}) == {HERE: 7}
        assert admin.list_group_offsets("m") == {HERE: OffsetAndMetadata(7)}
        with pytest.raises(ValueError, match=r"offsets must be .* not int -7"):
            admin.rewind_group("m", {HERE: -7})
        with pytest.raises(UnknownTopicOrPartitionError, match="carriers-0"):
            admin.rewind_group("m", {TopicPartition("carriers", 0): 1})
        with pytest.raises(GroupNotFoundError):
            admin.rewind_group("none", {HERE: 7})

    def test_a_managed_group_with_members_is_rewound(self, cluster: FakeCluster, admin: Admin) -> None:
        party = Party(cluster, group_protocol="managed")
        member = party.join("a")
        party.settle()
        party.run(500)
        turn = admin._connection.poll

        def poll(timeout_ms: int, *calls: object) -> object:
            member.poll(10)
            return turn(min(timeout_ms, 10), *calls)  # type: ignore[arg-type]

        admin._connection.poll = poll  # type: ignore[method-assign, assignment]
        assert admin.rewind_group("g", {HERE: 7}) == {HERE: 7}
        party.run(500)
        assert [r.offset for r in member.records if r.partition == 0] == [*range(10), *range(7, 10)]


def test_an_unreachable_cluster_is_reported_within_the_api_timeout(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.stop()
    properties = {"bootstrap.servers": cluster.bootstrap, "bootstrap.timeout.ms": 5_000}
    with Admin(properties, network=cluster.network()) as admin:
        with pytest.raises(UnreachableError, match=r"broker-1:9092: cannot.*bootstrap\.timeout\.ms=5000"):
            admin.list_topics()
        assert cluster.time_ms == 5_000
        cluster.brokers[1].start()
        assert admin.list_topics() == ["flights"]
