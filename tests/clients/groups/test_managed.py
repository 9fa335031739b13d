"""The client rewrite in our consumer: each rule of "Consumer Group Membership Protocol" and of
"Offset Rewind" as a test named after it, then cases that the client rewrite leaves open."""

from __future__ import annotations

import pytest

from holdfast_log.clients.errors import ClientError, NoGroupError
from holdfast_log.protocol.errors import (
    BrokerError,
    ErrorCode,
    FencedInstanceIdError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    CreateGroupRequest,
    ListConsumerGroupsRequest,
    RegisterConsumerRequest,
    RewindConsumerRequest,
)
from holdfast_log.protocol.messages.join_group import JoinGroupRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Member, Party, numbers
from tests.clients.test_consumer import fill, fill_all

GROUP_REQUESTS = (
    ListConsumerGroupsRequest,
    CreateGroupRequest,
    RegisterConsumerRequest,
    OffsetCommitRequest,
    ConsumerHeartbeatRequest,
    RewindConsumerRequest,
)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.groups.node = 2
    for partition in cluster.add_topic("flights", 6):
        fill(partition, 100)
    return cluster


@pytest.fixture
def party(cluster: FakeCluster) -> Party:
    return Party(cluster, group_protocol="managed")


def asked(cluster: FakeCluster, *kinds: type) -> list[tuple[int, object]]:
    """The requests of these types, as (broker, request), broker by broker."""
    return [
        (node, request)
        for node, broker in cluster.brokers.items()
        for request in broker.requests
        if isinstance(request, kinds)
    ]


def forget(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.requests.clear()


def kinds_at(cluster: FakeCluster, node: int) -> list[type]:
    """The group requests that a broker got, in order."""
    return [
        type(request) for request in cluster.brokers[node].requests if isinstance(request, GROUP_REQUESTS)
    ]


def where(number: int, topic: str = "flights") -> TopicPartition:
    return TopicPartition(topic, number)


def offsets_by(member: Member, number: int) -> list[int]:
    return [record.offset for record in member.records if record.partition == number]


class TestOnStartup:
    def test_a_new_consumer_asks_a_random_broker_for_the_controller(self, cluster: FakeCluster) -> None:
        askers: set[int] = set()
        for number in range(12):
            party = Party(cluster, group_protocol="managed", group_id=f"g{number}")
            forget(cluster)
            party.join(f"consumer-{number}")
            party.run(200)
            askers |= {node for node, _ in asked(cluster, ListConsumerGroupsRequest)}

        assert askers == {1, 2, 3}

    def test_it_registers_with_the_controller(self, cluster: FakeCluster, party: Party) -> None:
        party.settled("alone")

        assert {node for node, _ in asked(cluster, RegisterConsumerRequest)} == {2}
        assert asked(cluster, JoinGroupRequest) == []

    def test_a_group_that_nobody_has_made_is_made(self, cluster: FakeCluster, party: Party) -> None:
        party.settled("alone", session_timeout_ms=2_500)

        ((_, request),) = asked(cluster, CreateGroupRequest)
        assert isinstance(request, CreateGroupRequest)
        assert (request.consumer_group, request.session_timeout, request.topics) == ("g", 2_500, ["flights"])

    def test_a_group_that_is_there_is_joined_as_it_is(self, cluster: FakeCluster, party: Party) -> None:
        party.settled("first", session_timeout_ms=2_500)
        forget(cluster)
        (second,) = party.settled("second", session_timeout_ms=9_000)

        assert asked(cluster, CreateGroupRequest) == []
        assert second.owned == (3, 4, 5)

    def test_members_learn_of_a_new_consumer_by_heartbeat_and_register(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second")
        forget(cluster)
        (third,) = party.settled("third")

        registered = [request.consumer_id for _, request in asked(cluster, RegisterConsumerRequest)]  # type: ignore[attr-defined]
        assert sorted(name.split("-")[0] for name in registered) == ["first", "second", "third"]
        assert [member.owned for member in (first, second, third)] == [(0, 1), (2, 3), (4, 5)]

    def test_after_an_error_code_a_consumer_stops_fetching_commits_and_registers_again(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (first,) = party.settled("first", run_ms=300)
        fill_all(cluster, 1)
        party.run(10)
        forget(cluster)
        cluster.brokers[2].fail_next(ConsumerHeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        while RegisterConsumerRequest not in kinds_at(cluster, 2):
            first.poll(1)

        order = [kind for kind in kinds_at(cluster, 2) if kind is not ListConsumerGroupsRequest]
        assert order == [ConsumerHeartbeatRequest, OffsetCommitRequest, RegisterConsumerRequest]
        assert asked(cluster, ListConsumerGroupsRequest) != []
        assert [told for told, _ in first.told[:2]] == ["assigned", "revoked"]
        party.settle()
        assert cluster.groups.committed("g") == {("flights", number): 101 for number in range(6)}

    def test_a_consumer_waiting_for_the_others_fetches_nothing(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second", run_ms=500)
        party.members.remove(second)  # It is slow: the others have to wait for it.
        third = party.join("third")
        party.run(1_000)
        forget(cluster)
        fill_all(cluster, 5)
        before = len(first.records) + len(third.records)
        party.run(500)

        assert asked(cluster, FetchRequest) == []
        assert len(first.records) + len(third.records) == before
        party.members.append(second)
        party.settle()
        party.run(1_000)
        assert len(second.records) + len(first.records) + len(third.records) == 630

    def test_without_an_offset_the_reset_policy_decides(self, cluster: FakeCluster) -> None:
        earliest = Party(cluster, group_protocol="managed", group_id="early").join("one")
        latest = Party(cluster, group_protocol="managed", group_id="late", auto_offset_reset="latest").join(
            "two"
        )
        for _ in range(100):
            earliest.poll(20)
            latest.poll(20)

        assert len(earliest.records) == 600
        assert latest.records == []

    def test_with_a_committed_offset_consumption_restarts_there(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        cluster.groups.commit("g", {("flights", number): 90 + number for number in range(6)})
        (alone,) = party.settled("alone", run_ms=500)

        for number in range(6):
            assert offsets_by(alone, number) == list(range(90 + number, 100))

    def test_it_sends_heartbeats_with_its_generation(self, cluster: FakeCluster, party: Party) -> None:
        (alone,) = party.settled("alone")
        forget(cluster)
        began_ms = cluster.time_ms
        party.run(5_000)

        beats = [request for _, request in asked(cluster, ConsumerHeartbeatRequest)]
        assert {request.controller_generation for request in beats} == {alone.generation}  # type: ignore[attr-defined]
        assert 9 <= len(beats) <= (cluster.time_ms - began_ms) // 500 + 1


class TestWhenTheHeartbeatFails:
    @pytest.mark.parametrize("how", ["cut", ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_after_a_failed_heartbeat_a_consumer_finds_the_controller_and_registers(
        self, cluster: FakeCluster, party: Party, how: str | ErrorCode
    ) -> None:
        (alone,) = party.settled("alone")
        forget(cluster)
        cluster.brokers[2].fail_next(ConsumerHeartbeatRequest, how)
        party.run(1_000)
        party.settle()

        assert asked(cluster, ListConsumerGroupsRequest) != []
        assert asked(cluster, RegisterConsumerRequest) != []
        assert alone.owned == (0, 1, 2, 3, 4, 5)

    def test_the_controller_dies_and_another_takes_over(self, cluster: FakeCluster, party: Party) -> None:
        members = party.settled(*"ab", run_ms=2_000)
        cluster.brokers[2].stop()
        for partition in cluster.topics["flights"]:
            if partition.leader == 2:
                partition.leader, partition.leader_epoch = 3, 1
            fill(partition, 10)
        cluster.groups.move(3)
        party.run(10_000)
        party.settle()

        for number in range(6):
            seen = sorted(offset for member in members for offset in offsets_by(member, number))
            assert seen == list(range(110)), "read again or left out"


class TestLeavingAndCrashing:
    def test_one_who_closes_is_not_waited_for(self, cluster: FakeCluster, party: Party) -> None:
        first, second = party.settled("first", "second")
        party.leave(first)
        left_at_ms = cluster.time_ms
        party.settle()

        assert second.owned == (0, 1, 2, 3, 4, 5)
        assert cluster.time_ms - left_at_ms < 2_000

    def test_a_crashed_consumer_is_replaced_when_its_session_expires(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second", run_ms=1_500)
        party.crash(first)
        party.run(6_000)

        assert second.owned == (0, 1, 2, 3, 4, 5)
        assert sum(len(member.records) for member in (first, second)) == 600

    def test_an_absent_consumer_loses_its_partitions_and_registers_again(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second", run_ms=1_500)
        party.members.remove(first)
        party.run(6_000)
        fill_all(cluster, 5)
        party.members.append(first)
        before = len(first.records)
        first.poll(0)
        assert len(first.records) == before, "its session may be over: nothing is handed out"
        party.settle()

        assert ("lost", (0, 1, 2)) in first.told
        party.run(1_000)
        assert len(first.records) + len(second.records) == 630

    def test_a_consumer_may_request_a_shorter_session(self, cluster: FakeCluster) -> None:
        party = Party(cluster, group_protocol="managed", session_timeout_ms=30_000)
        (first,) = party.settled("first")
        (hasty,) = party.settled("hasty", session_timeout_ms=1_500, run_ms=1_000)
        party.crash(hasty)
        party.run(8_000)

        assert first.owned == (0, 1, 2, 3, 4, 5)

    def test_an_ephemeral_group_is_deleted_when_its_last_member_leaves(self, cluster: FakeCluster) -> None:
        party = Party(cluster, group_protocol="managed", group_ephemeral=True)
        (alone,) = party.settled("alone", run_ms=1_500)
        party.leave(alone)

        assert cluster.groups.state("g") == "Dead"
        assert cluster.groups.committed("g") == {}

    def test_any_other_group_stays(self, cluster: FakeCluster, party: Party) -> None:
        (alone,) = party.settled("alone", run_ms=1_500)
        party.leave(alone)

        assert cluster.groups.state("g") == "Empty"
        assert len(cluster.groups.committed("g")) == 6


class TestNewPartitionsAndTopics:
    def test_new_partitions_are_assigned_and_read_from_offset_0(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        party._properties["auto.offset.reset"] = "latest"
        members = party.settled(*"ab")
        added = FakeCluster(3).add_topic("flights", 2)
        for partition in added:
            fill(partition, 20)
        cluster.topics["flights"] += added
        cluster.groups.topics_changed("flights")
        party.run(2_000)
        party.settle()
        party.run(1_000)

        assert [len(member.owned) for member in members] == [4, 4]
        for number in (6, 7):
            assert [n for member in members for n in offsets_by(member, number)] == list(range(20))

    def test_a_new_topic_is_assigned_and_read_from_offset_0(self, cluster: FakeCluster, party: Party) -> None:
        party._properties["auto.offset.reset"] = "latest"
        first, second = party.join("first", "flights", "later"), party.join("second", "flights", "later")
        party.settle()
        for partition in cluster.add_topic("later", 2):
            fill(partition, 20)
        cluster.groups.topics_changed("later")
        party.run(2_000)
        party.settle()
        party.run(1_000)

        later = [r for member in (first, second) for r in member.records if r.topic == "later"]
        assert sorted((record.partition, record.offset) for record in later) == [
            (number, offset) for number in range(2) for offset in range(20)
        ]

    def test_a_member_with_another_topic_adds_it_to_the_group(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        cluster.add_topic("carriers", 2)
        (first,) = party.settled("first")
        second = party.join("second", "flights", "carriers")
        party.settle()

        owned = [*first.consumer.assignment(), *second.consumer.assignment()]
        assert {partition.topic for partition in owned} == {"flights", "carriers"}
        assert len(owned) == len(set(owned)) == 8


class TestOffsetRewind:
    def rewind(
        self, party: Party, member: Member, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Rewind by `member`, and poll the other members while it waits."""
        others = [each for each in party.members if each is not member]
        turn = member.consumer._loop.turn

        def turn_all(wait_ms: int) -> None:
            turn(min(wait_ms, 10))
            for other in others:
                other.poll(5)

        member.consumer._loop.turn = turn_all  # type: ignore[method-assign]
        try:
            return member.consumer.rewind(offsets)
        finally:
            member.consumer._loop.turn = turn  # type: ignore[method-assign]

    def test_ones_own_partitions(self, party: Party) -> None:
        (alone,) = party.settled("alone", run_ms=500)
        generation = alone.generation

        assert alone.consumer.rewind({where(0): 10, where(1): 50}) == {where(0): 10, where(1): 50}
        assert alone.consumer.position(where(0)) == 10
        assert alone.generation > generation
        party.run(1_000)
        assert offsets_by(alone, 0) == [*range(100), *range(10, 100)]
        assert offsets_by(alone, 1) == [*range(100), *range(50, 100)]
        assert [told for told in alone.told if told[0] != "assigned"] == [], "no partition was revoked"

    def test_owners_of_rewound_partitions_register_again_and_read_from_the_new_offset(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second, third = (party.join(name) for name in ("first", "second", "third"))
        party.settle()
        party.run(2_000)
        forget(cluster)
        told, seen = len(third.told), len(second.records)

        assert self.rewind(party, first, {where(3): 7}) == {where(3): 7}
        party.run(1_000)
        again = [(record.partition, record.offset) for record in second.records[seen:]]
        assert again == [(3, offset) for offset in range(7, 100)], (
            "other partitions continue at their positions"
        )
        registered = [request.consumer_id for _, request in asked(cluster, RegisterConsumerRequest)]  # type: ignore[attr-defined]
        assert [name.split("-")[0] for name in registered] == ["second"]
        assert len(third.told) == told, "a member without rewound partitions is unaffected"

    def test_a_rewinding_member_fetches_nothing_while_it_waits(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second", run_ms=1_500)
        party.members.remove(second)  # Slow to answer
        fill_all(cluster, 5)
        forget(cluster)
        fetched: list[int] = []
        turn = first.consumer._loop.turn

        def look(wait_ms: int) -> None:
            turn(min(wait_ms, 10))
            fetched.append(len(asked(cluster, FetchRequest)))
            if len(fetched) > 20:
                second.poll(5)

        first.consumer._loop.turn = look  # type: ignore[method-assign]
        first.consumer.rewind({where(5): 0})

        assert fetched[15] == fetched[1], "the member fetched while it waited"
        assert len(fetched) > 20

    def test_the_middle_of_a_change(self, cluster: FakeCluster, party: Party) -> None:
        first, second = party.settled("first", "second", run_ms=1_500)
        party.join("third")
        party.turn()
        assert self.rewind(party, first, {where(0): 3, where(5): 4}) == {where(0): 3, where(5): 4}
        party.settle()
        party.run(1_000)

        everything = [(r.partition, r.offset) for m in party.members for r in m.records]
        assert everything.count((0, 3)) == 2 and everything.count((0, 2)) == 1
        assert everything.count((5, 4)) == 2 and everything.count((5, 3)) == 1
        assert second.owned

    def test_an_offset_that_cannot_be(self, party: Party) -> None:
        (alone,) = party.settled("alone")
        with pytest.raises(ValueError, match=r"offsets must be .* not int -5"):
            alone.consumer.rewind({where(0): -5})
        with pytest.raises(UnknownTopicOrPartitionError, match="flights-9"):
            alone.consumer.rewind({where(9): 0})

    def test_an_answer_that_is_lost(self, cluster: FakeCluster, party: Party) -> None:
        (alone,) = party.settled("alone", run_ms=500)
        cluster.brokers[2].fail_next(RewindConsumerRequest, "cut after")
        assert alone.consumer.rewind({where(0): 10}) == {where(0): 10}
        party.run(1_000)

        assert offsets_by(alone, 0)[:100] == list(range(100))
        assert set(offsets_by(alone, 0)[100:]) == set(range(10, 100))

    def test_a_coordinator_that_moves_meanwhile(self, cluster: FakeCluster, party: Party) -> None:
        first, second = party.settled("first", "second", run_ms=1_500)
        cluster.at(cluster.time_ms + 20, lambda: cluster.groups.move(3))
        theirs = second.consumer.assignment()[0]

        assert self.rewind(party, first, {theirs: 3}) == {theirs: 3}
        party.run(2_000)
        party.settle()
        seen = [r.offset for m in party.members for r in m.records if r.partition == theirs.partition]
        assert (seen.count(2), seen.count(3)) == (1, 2)

    def test_a_classic_group_cannot_be_rewound(self, cluster: FakeCluster) -> None:
        alone = Party(cluster).join("alone")
        with pytest.raises(NoGroupError, match=r"group\.protocol=managed"):
            alone.consumer.rewind({where(0): 0})


class TestTrouble:
    @pytest.mark.parametrize(
        "request_type", [ListConsumerGroupsRequest, CreateGroupRequest, RegisterConsumerRequest]
    )
    @pytest.mark.parametrize("how", ["cut", "cut after"])
    def test_a_failed_registration_is_retried(
        self, cluster: FakeCluster, party: Party, request_type: type, how: str
    ) -> None:
        for broker in cluster.brokers.values():
            broker.fail_next(request_type, how)
        party.settled("alone")

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ],
    )
    def test_a_registration_refused_with_a_retriable_error_is_retried(
        self, cluster: FakeCluster, party: Party, error: ErrorCode
    ) -> None:
        cluster.brokers[2].fail_next(RegisterConsumerRequest, error)
        party.settled("alone")

    def test_a_broker_without_the_managed_protocol_is_an_error(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        for broker in cluster.brokers.values():
            broker.features.clear()
        party.join("alone")
        with pytest.raises(ClientError, match="does not know ListConsumerGroups"):
            party.run(1_000)

    def test_joining_a_classic_group_as_a_managed_consumer_is_refused(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        Party(cluster).join("classic").poll(500)
        party.join("managed")
        with pytest.raises(BrokerError, match=r"group\.protocol"):
            party.run(1_000)

    def test_two_of_one_name(self, cluster: FakeCluster, party: Party) -> None:
        (first,) = party.settled("first", group_instance_id="one")
        party.members.remove(first)
        party.settled("second", group_instance_id="one")
        with pytest.raises(
            FencedInstanceIdError, match="another consumer of group g uses group\\.instance\\.id=one"
        ):
            for _ in range(50):
                first.poll(100)

    def test_a_restarted_static_member_gets_its_partitions_back(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = (party.join(name, group_instance_id=name) for name in ("first", "second"))
        party.settle()
        told, owned = list(second.told), first.owned
        party.leave(first)
        party.run(500)
        again = party.join("again", group_instance_id="first")
        party.run(1_000)

        assert again.owned == owned
        assert second.told == told

    def test_every_record_is_read_while_many_consumers_come_and_go(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        members = [party.join(f"m{number}") for number in range(4)]
        party.settle()
        gone = []
        for number in range(12):
            if number % 3 == 2:
                party.crash(members.pop(0))
            else:
                gone.append(members.pop(0))
                party.leave(gone[-1])
            party.run(number * 137 % 900)
            members.append(party.join(f"n{number}"))
            fill_all(cluster, 10)
        party.settle()
        party.run(2_000)

        committed = cluster.groups.committed("g")
        for number in range(6):
            seen = {offset for member in (*gone, *members) for offset in offsets_by(member, number)}
            assert all(offset < committed["flights", number] for offset in set(range(220)) - seen)
            assert max(seen) == 219
        assert numbers(p for member in members for p in member.consumer.assignment()) == tuple(range(6))
