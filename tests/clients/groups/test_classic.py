"""Kafka's classic protocol in our consumer: joining, leaving, crashing and committing, on a fake clock."""

from __future__ import annotations

import pytest

from holdfast_log.clients.errors import CommitFailedError, ConfigError, NoGroupError, RequestTimeoutError
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.protocol.errors import BrokerError, ErrorCode, FencedInstanceIdError
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import consumer_on, fill, fill_all


@pytest.fixture(name="cluster")
def filled() -> FakeCluster:
    return filled_cluster()


def filled_cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    for partition in cluster.add_topic("flights", 6):
        fill(partition, 100)
    return cluster


@pytest.fixture(params=["range", "cooperative-sticky", "range,cooperative-sticky"])
def party(request: pytest.FixtureRequest, cluster: FakeCluster) -> Party:
    return Party(cluster, partition_assignment_strategy=request.param)


@pytest.fixture
def ranges(cluster: FakeCluster) -> Party:
    return Party(cluster, partition_assignment_strategy="range")


def offsets_of(*members: Member) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for member in members:
        for record in member.records:
            found.setdefault(record.partition, []).append(record.offset)
    return found


class TestComingAndGoing:
    def test_one_member_reads_everything_once(self, party: Party) -> None:
        (alone,) = party.settled("alone", run_ms=500)

        assert alone.owned == (0, 1, 2, 3, 4, 5)
        assert offsets_of(alone) == {number: list(range(100)) for number in range(6)}

    def test_members_share(self, party: Party) -> None:
        members = party.settled(*"abc")

        assert [len(member.owned) for member in members] == [2, 2, 2]

    def test_one_more_and_one_less(self, party: Party, cluster: FakeCluster) -> None:
        (first,) = party.settled("first")
        (second,) = party.settled("second")
        assert [len(member.owned) for member in (first, second)] == [3, 3]
        party.leave(first)
        party.settle()

        assert second.owned == (0, 1, 2, 3, 4, 5)
        fill_all(cluster, 10)
        party.run(1000)
        assert {number: sorted(found) for number, found in offsets_of(first, second).items()} == {
            number: list(range(110)) for number in range(6)
        }

    def test_a_member_that_leaves_is_not_waited_for(self, ranges: Party, cluster: FakeCluster) -> None:
        first, second = ranges.settled("first", "second")
        ranges.leave(first)
        left_at_ms = cluster.time_ms
        ranges.settle()

        assert second.owned == (0, 1, 2, 3, 4, 5)
        assert cluster.time_ms - left_at_ms < 3_000, "its session was waited for"

    def test_a_crashed_member_is_replaced_when_its_session_expires(
        self, party: Party, cluster: FakeCluster
    ) -> None:
        first, second = party.settled("first", "second")
        party.crash(first)
        party.run(2_000)
        assert len(second.owned) == 3
        party.run(5_000)

        assert second.owned == (0, 1, 2, 3, 4, 5)

    def test_added_partitions_are_assigned(self, party: Party, cluster: FakeCluster) -> None:
        party._properties["metadata.max.age.ms"] = 1_000
        members = party.settled(*"ab")
        cluster.topics["flights"] += FakeCluster(3).add_topic("flights", 2)
        party.run(5_000)

        assert sorted(number for member in members for number in member.owned) == list(range(8))

    def test_members_may_subscribe_to_different_topics(self, party: Party, cluster: FakeCluster) -> None:
        cluster.add_topic("carriers", 2)
        first, second = party.join("first"), party.join("second", "flights", "carriers")
        party.settle()

        assert {partition.topic for partition in first.consumer.assignment()} == {"flights"}
        assert TopicPartition("carriers", 1) in second.consumer.assignment()

    def test_a_member_can_drop_a_topic(self, party: Party, cluster: FakeCluster) -> None:
        cluster.add_topic("carriers", 2)
        alone = party.join("alone", "flights", "carriers")
        party.settle()
        alone.consumer.remove_topic("flights")
        party.run(2_000)

        assert {partition.topic for partition in alone.consumer.assignment()} == {"carriers"}

    def test_the_last_topic_is_dropped(self, ranges: Party, cluster: FakeCluster) -> None:
        (alone,) = ranges.settled("alone")
        alone.consumer.remove_topic("flights")
        ranges.run(1_000)

        assert alone.owned == ()
        assert cluster.groups.state("g") == "Empty"

    @pytest.mark.parametrize("turns_between", [0, 1, 3])
    def test_a_partition_of_a_dropped_topic_can_be_read_beside_the_group(
        self, party: Party, cluster: FakeCluster, turns_between: int
    ) -> None:
        """Although the group still has to revoke it, and may assign it once more before that."""
        cluster.add_topic("carriers", 2)
        alone = party.join("alone", "flights", "carriers")
        party.settle()
        before = [record.offset for record in alone.records if record.partition == 0]
        alone.consumer.remove_topic("flights")
        for _ in range(turns_between):
            party.turn()
        alone.consumer.add_topic("flights", 0)
        party.run(3_000)
        fill_all(cluster, 10)
        party.run(1_000)

        assert TopicPartition("flights", 0) in alone.consumer.assignment()
        assert TopicPartition("flights", 1) not in alone.consumer.assignment()
        found = [record.offset for record in alone.records if record.partition == 0]
        assert found[len(before) :] == list(range(len(before), len(before) + 10))

        alone.consumer.remove_topic("flights", 0)
        party.run(1_000)
        assert TopicPartition("flights", 0) not in alone.consumer.assignment()

    def test_every_record_is_read_while_many_members_come_and_go(
        self, party: Party, cluster: FakeCluster
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

        seen = {number: set(offsets) for number, offsets in offsets_of(*gone, *members).items()}
        # A crashed member's records were committed before, or are read again by another member.
        committed = cluster.groups.committed("g")
        for number in range(6):
            missing = set(range(220)) - seen[number]
            assert all(offset < committed["flights", number] for offset in missing)
            assert max(seen[number]) == 219


class TestListeners:
    def test_eager_members_give_up_everything(self, ranges: Party) -> None:
        (first,) = ranges.settled("first")
        ranges.settled("second")

        assert first.told == [
            ("assigned", (0, 1, 2, 3, 4, 5)),
            ("revoked", (0, 1, 2, 3, 4, 5)),
            ("assigned", first.owned),
        ]

    def test_cooperative_members_give_up_only_lost_partitions(self, cluster: FakeCluster) -> None:
        party = Party(cluster, partition_assignment_strategy="cooperative-sticky")
        (first,) = party.settled("first")
        (second,) = party.settled("second")

        assert first.told[0] == ("assigned", (0, 1, 2, 3, 4, 5))
        assert [each for each in first.told[1:] if each[1]] == [("revoked", second.owned)]

    def test_a_rebalance_callback_may_commit(self, cluster: FakeCluster) -> None:
        party = Party(cluster, partition_assignment_strategy="range", enable_auto_commit=False)
        first = party.join("first")
        first.on_revoked = lambda member: member.consumer.commit()
        party.settle()
        party.run(500)
        party.settled("second")

        assert cluster.groups.committed("g") == {("flights", number): 100 for number in range(6)}

    def test_a_rebalance_callback_may_query_positions(self, cluster: FakeCluster) -> None:
        cluster.groups.commit("g", {("flights", number): 10 + number for number in range(6)})
        alone = Party(cluster).join("alone")
        found: list[int] = []
        alone.on_partitions_assigned = lambda partitions: found.extend(  # type: ignore[method-assign]
            alone.consumer.position(partition) for partition in partitions
        )
        while not alone.owned:
            alone.poll(100)

        assert sorted(found) == [10, 11, 12, 13, 14, 15]

    def test_a_member_silent_beyond_its_session_loses_its_partitions(
        self, ranges: Party, cluster: FakeCluster
    ) -> None:
        first, second = ranges.settled("first", "second")
        ranges.members.remove(first)
        ranges.run(5_000)
        assert len(second.owned) == 6
        fill_all(cluster, 10)
        ranges.members.append(first)
        before = len(first.records)
        first.poll(0)
        assert len(first.records) == before, "its session may have expired, so poll returns nothing"
        ranges.settle()

        assert ("lost", (0, 1, 2)) in first.told
        assert len(first.owned) == 3

    @pytest.mark.parametrize("protocol", ["classic", "managed"])
    def test_records_fetched_before_a_long_absence_are_not_returned(
        self, cluster: FakeCluster, protocol: str
    ) -> None:
        party = Party(cluster, group_protocol=protocol, max_poll_records=5)
        sleeper = party.join("sleeper")
        while len(sleeper.records) < 10:
            sleeper.poll()
        assert sleeper.poll(0), "more records have been fetched"
        before = len(sleeper.records)
        cluster.time_ms += 10_000

        assert sleeper.poll(0) == [] and len(sleeper.records) == before, "the session may have expired"
        party.settle()
        party.run(30_000)
        assert offsets_of(sleeper).keys() == set(range(6))

    def test_a_member_that_exceeds_max_poll_interval_loses_its_partitions(self, cluster: FakeCluster) -> None:
        party = Party(cluster, max_poll_interval_ms=1_000)
        (alone,) = party.settled("alone")
        cluster.time_ms += 1_500
        alone.poll(0)
        alone.poll(0)

        assert alone.told[-1] == ("lost", (0, 1, 2, 3, 4, 5))
        party.settle()


class TestCommitting:
    def test_offsets_are_committed_automatically(self, ranges: Party, cluster: FakeCluster) -> None:
        ranges.join("alone")
        ranges.run(3_000)

        assert cluster.groups.committed("g") == {("flights", number): 100 for number in range(6)}

    def test_records_of_a_poll_are_committed_only_after_the_next_poll(self, cluster: FakeCluster) -> None:
        party = Party(cluster, auto_commit_interval_ms=0, max_poll_records=10)
        alone = party.join("alone")
        while len(alone.records) < 50:
            alone.poll(100)
            committed = sum(cluster.groups.committed("g").values())
            assert committed <= len(alone.records) - (10 if alone.records else 0)

    def test_commit_covers_all_partitions_a_topic_or_a_partition(self, cluster: FakeCluster) -> None:
        for partition in cluster.add_topic("carriers", 2):
            fill(partition, 10)
        party = Party(cluster, enable_auto_commit=False)
        alone = party.join("alone", "flights", "carriers")
        party.settle()
        party.run(500)

        alone.consumer.commit("carriers", 1)
        assert cluster.groups.committed("g") == {("carriers", 1): 10}
        alone.consumer.commit("carriers")
        assert cluster.groups.committed("g") == {("carriers", 0): 10, ("carriers", 1): 10}
        alone.consumer.commit()
        assert len(cluster.groups.committed("g")) == 8

    def test_explicit_offsets_with_metadata_can_be_committed(self, cluster: FakeCluster) -> None:
        party = Party(cluster, enable_auto_commit=False)
        (alone,) = party.settled("alone")
        here, there = TopicPartition("flights", 0), TopicPartition("flights", 1)
        alone.consumer.commit(offsets={here: 7, there: OffsetAndMetadata(8, "note")})

        none = TopicPartition("flights", 2)
        assert alone.consumer.committed([here, there, none]) == {
            here: OffsetAndMetadata(7),
            there: OffsetAndMetadata(8, "note"),
            none: None,
        }

    def test_decoded_records_not_yet_returned_are_not_committed(self, cluster: FakeCluster) -> None:
        party = Party(cluster, max_poll_records=7)
        alone = party.join("alone")
        while not alone.poll(100):
            pass
        party.leave(alone)

        assert sum(cluster.groups.committed("g").values()) == 7

    def test_an_application_that_fails_does_not_commit_its_last_records(self, cluster: FakeCluster) -> None:
        alone = Party(cluster).join("alone")
        with pytest.raises(ZeroDivisionError), alone.consumer as consumer:
            while not consumer.poll(100):
                pass
            raise ZeroDivisionError

        assert cluster.groups.committed("g") == {}
        assert cluster.groups.state("g") == "Empty"

    def test_a_replaced_member_cannot_commit(self, cluster: FakeCluster) -> None:
        party = Party(cluster, enable_auto_commit=False)
        (first,) = party.settled("first", run_ms=100)
        party.crash(first)
        (second,) = party.settled("second", run_ms=100)
        second.consumer.commit()

        with pytest.raises(CommitFailedError, match="was rebalanced"):
            first.consumer.commit(offsets={TopicPartition("flights", 0): 1})
        assert cluster.groups.committed("g")["flights", 0] == 100

    def test_a_failed_commit_is_retried(self, cluster: FakeCluster) -> None:
        party = Party(cluster, enable_auto_commit=False)
        (alone,) = party.settled("alone", run_ms=500)
        for how in ("cut", ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "cut after"):
            cluster.brokers[1].fail_next(OffsetCommitRequest, how)
        alone.consumer.commit()

        assert len(cluster.groups.committed("g")) == 6

    def test_a_commit_beyond_the_api_timeout_is_an_error(self, cluster: FakeCluster) -> None:
        party = Party(cluster, enable_auto_commit=False)
        (alone,) = party.settled("alone")
        cluster.brokers[1].stop()
        with pytest.raises(Exception, match="broker-1"):
            alone.consumer.commit(offsets={TopicPartition("flights", 0): 1}, timeout_ms=2_000)

    def test_a_consumer_with_nothing_to_commit_waits_whatever_the_interval(
        self, cluster: FakeCluster
    ) -> None:
        """The network in memory fails a client that runs its loop without end."""
        party = Party(cluster, auto_commit_interval_ms=0)
        (member,) = party.settled("alone", run_ms=2000)
        assert member.consumer.poll(30_000) == []

    def test_a_commit_without_an_answer_waits_though_an_automatic_one_is_due(
        self, cluster: FakeCluster
    ) -> None:
        party = Party(cluster, auto_commit_interval_ms=10, default_api_timeout_ms=5000)
        (member,) = party.settled("alone", run_ms=2000)
        fill(cluster.topics["flights"][0], 10)
        assert member.consumer.poll(1000)
        cluster.time_ms += 1000
        for broker in cluster.brokers.values():
            broker.is_silent = True
        with pytest.raises(RequestTimeoutError):
            member.consumer.commit()

    def test_oversized_commit_metadata_is_refused(self, cluster: FakeCluster) -> None:
        alone = Party(cluster).join("alone")
        with pytest.raises(BrokerError, match=r"flights-0: .*too long"):
            alone.consumer.commit(offsets={TopicPartition("flights", 0): OffsetAndMetadata(1, "x" * 5000)})

    def test_a_partition_added_by_number_starts_at_the_committed_offset(self, cluster: FakeCluster) -> None:
        cluster.groups.commit("g", {("flights", 3): 42})
        alone = Member(cluster, "alone", {})
        alone.consumer.add_topic("flights", 3)
        alone.consumer.add_topic("flights", 4)
        for _ in range(20):
            alone.poll(100)

        assert offsets_of(alone) == {3: list(range(42, 100)), 4: list(range(100))}
        alone.consumer.commit()
        assert cluster.groups.committed("g") == {("flights", 3): 100, ("flights", 4): 100}

    def test_a_partition_can_be_added_beside_a_subscription_to_another_topic(
        self, cluster: FakeCluster
    ) -> None:
        for partition in cluster.add_topic("carriers", 4):
            fill(partition, 10)
        party = Party(cluster)
        first, second = party.join("first"), party.join("second")
        first.consumer.add_topic("carriers", 3)
        party.run(3_000)

        assert [len(member.owned) for member in (first, second)] == [4, 3]
        assert cluster.groups.committed("g")["carriers", 3] == 10

    def test_a_partition_of_a_subscribed_topic_cannot_be_added(self, cluster: FakeCluster) -> None:
        alone = Party(cluster).join("alone")
        with pytest.raises(ValueError, match="the group assigns the partitions"):
            alone.consumer.add_topic("flights", 0)

    def test_a_seek_takes_precedence_over_the_committed_offset(self, cluster: FakeCluster) -> None:
        alone = Party(cluster).join("alone")
        alone.on_partitions_assigned = lambda partitions: [  # type: ignore[method-assign]
            alone.consumer.seek(partition, 90) for partition in partitions
        ]
        for _ in range(50):
            alone.poll(100)

        assert offsets_of(alone) == {number: list(range(90, 100)) for number in range(6)}

    def test_group_calls_without_a_group_are_refused(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster)
        for action in (consumer.commit, consumer.group_identity, lambda: consumer.rewind({})):
            with pytest.raises(NoGroupError, match=r"group\.id"):
                action()


class TestStaticMembers:
    def test_a_returning_static_member_gets_its_partitions_without_a_rebalance(
        self, ranges: Party, cluster: FakeCluster
    ) -> None:
        first, second = (ranges.join(name, group_instance_id=name) for name in ("first", "second"))
        ranges.settle()
        generation, owned = second.generation, first.owned
        ranges.leave(first)
        ranges.run(500)
        (again,) = ranges.settled("again", group_instance_id="first")

        assert again.owned == owned
        assert second.generation == generation

    def test_two_of_one_name(self, ranges: Party) -> None:
        (first,) = ranges.settled("first", group_instance_id="one")
        ranges.members.remove(first)
        ranges.settled("second", group_instance_id="one")

        for _ in range(2):
            with pytest.raises(
                FencedInstanceIdError, match="another consumer of group g uses group\\.instance\\.id=one"
            ):
                for _ in range(50):
                    first.poll(100)
        assert first.told[-1] == ("lost", (0, 1, 2, 3, 4, 5))


class TestTrouble:
    @pytest.mark.parametrize("request_type", [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest])
    @pytest.mark.parametrize(
        "how", ["cut", "cut after", ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    )
    def test_a_failed_join_is_retried(
        self, cluster: FakeCluster, request_type: type, how: str | ErrorCode
    ) -> None:
        for broker in cluster.brokers.values():
            broker.fail_next(request_type, how)
        party = Party(cluster)
        party.settled("alone")

    @pytest.mark.parametrize(
        "error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]
    )
    @pytest.mark.parametrize("request_type", [HeartbeatRequest, SyncGroupRequest])
    def test_a_member_that_was_removed_joins_again(
        self, cluster: FakeCluster, error: ErrorCode, request_type: type
    ) -> None:
        party = Party(cluster)
        (alone,) = party.settled("alone")
        cluster.brokers[1].fail_next(request_type, error)
        party.run(1_000)
        party.join("second")
        party.settle(20_000)

        assert len(alone.owned) == 3

    @pytest.mark.parametrize(
        "error", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED]
    )
    def test_a_final_refusal_is_raised_and_joining_is_retried(
        self, cluster: FakeCluster, error: ErrorCode
    ) -> None:
        cluster.brokers[1].fail_next(JoinGroupRequest, error)
        party = Party(cluster)
        party.join("alone")
        with pytest.raises(BrokerError, match=error.name):
            party.settle()
        party.settle()

    def test_a_session_timeout_out_of_bounds_is_raised(self, cluster: FakeCluster) -> None:
        party = Party(cluster, session_timeout_ms=50, heartbeat_interval_ms=10)
        party.join("alone")
        with pytest.raises(BrokerError, match="INVALID_SESSION_TIMEOUT"):
            party.settle()

    def test_the_coordinator_moves(self, party: Party, cluster: FakeCluster) -> None:
        members = party.settled(*"ab")
        generation = members[0].generation
        cluster.groups.move(2)
        party.run(5_000)

        assert {member.generation for member in members} == {generation}, "nobody had to join again"
        assert [member for member in members if ("lost" in dict(member.told))] == []

    def test_the_coordinator_dies_and_another_takes_over(self, party: Party, cluster: FakeCluster) -> None:
        members = party.settled(*"ab")
        cluster.brokers[1].stop()
        for partition in cluster.topics["flights"]:
            if partition.leader == 1:
                partition.leader, partition.leader_epoch = 3, 1
        cluster.groups.move(2)
        fill_all(cluster, 10)
        party.run(10_000)

        assert {n: sorted(set(found)) for n, found in offsets_of(*members).items()} == {
            number: list(range(110)) for number in range(6)
        }

    def test_a_member_without_a_common_strategy_gets_an_error(self, cluster: FakeCluster) -> None:
        party = Party(cluster)
        party.settled("first", partition_assignment_strategy="range")
        party.join("second", partition_assignment_strategy="roundrobin")
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            party.settle()

    def test_a_heartbeat_interval_above_the_session_timeout_is_refused(self, cluster: FakeCluster) -> None:
        with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms=3000 must be below"):
            Party(cluster).join("alone", session_timeout_ms=3_000, heartbeat_interval_ms=3_000)

    def test_an_unknown_strategy_is_refused(self, cluster: FakeCluster) -> None:
        with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy=rang is unknown"):
            Party(cluster).join("alone", partition_assignment_strategy="rang")


class TestCooperativeMembers:
    def test_a_commit_during_a_cooperative_rebalance_succeeds(self, cluster: FakeCluster) -> None:
        party = Party(cluster, partition_assignment_strategy="cooperative-sticky", enable_auto_commit=False)
        (first,) = party.settled("first", run_ms=500)
        second = party.join("second")
        second.poll(200)
        generation = first.generation
        while first.generation == generation:
            first.poll(10)
            second.poll(10)
            kept = first.consumer.assignment()[0]
            first.consumer.commit(offsets={kept: 100})
        party.settle()

        assert cluster.groups.committed("g")["flights", kept.partition] == 100

    def test_cooperative_members_read_on_while_the_group_waits_for_a_member(
        self, cluster: FakeCluster
    ) -> None:
        party = Party(cluster, partition_assignment_strategy="cooperative-sticky", session_timeout_ms=6_000)
        first, second = party.settled("first", "second", run_ms=1_000)
        party.members.remove(second)  # Slow to join again
        party.join("third")
        party.run(1_000)
        fill_all(cluster, 7)
        before = len(first.records)
        party.run(500)

        assert len(first.records) == before + 3 * 7
