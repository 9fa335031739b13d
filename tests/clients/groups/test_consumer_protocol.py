"""Our consumer in groups of KIP-848 (`group.protocol=consumer`), on a coordinator in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_log.clients.errors import (
    CommitFailedError,
    ConfigError,
    NoGroupError,
    UnsupportedRequestError,
)
from holdfast_log.protocol.errors import (
    BrokerError,
    ErrorCode,
    FencedInstanceIdError,
    InvalidRegularExpressionError,
)
from holdfast_log.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import GROUP_CONFIG, FakeCluster
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import fill, fill_all

SESSION_MS = 3_000
INTERVAL_MS = 500
FLIGHTS = [TopicPartition("flights", number) for number in range(6)]


@pytest.fixture
def cluster() -> FakeCluster:
    return six_partitions()


def six_partitions() -> FakeCluster:
    cluster = FakeCluster(
        3,
        dataclasses.replace(
            GROUP_CONFIG,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_heartbeat_interval_ms=INTERVAL_MS,
        ),
    )
    cluster.groups.node = 2
    for partition in cluster.add_topic("flights", 6):
        fill(partition, 100)
    return cluster


@pytest.fixture
def party(cluster: FakeCluster) -> Party:
    return party_of(cluster)


def party_of(cluster: FakeCluster) -> Party:
    return Party(cluster, group_protocol="consumer")


def heartbeats(cluster: FakeCluster) -> list[ConsumerGroupHeartbeatRequest]:
    return requests(cluster, ConsumerGroupHeartbeatRequest)


def requests(cluster: FakeCluster, kind: type[Any]) -> list[Any]:
    """The requests of a kind that the coordinator got, in order."""
    return [each for each in cluster.brokers[cluster.groups.node].requests if isinstance(each, kind)]


def forget(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.requests.clear()


def counts(*members: Member) -> list[int]:
    return [len(member.owned) for member in members]


def seen(*members: Member) -> list[tuple[int, int]]:
    """What the members have read, as (partition, offset), in order."""
    return sorted((record.partition, record.offset) for member in members for record in member.records)


def everything(offsets: int) -> list[tuple[int, int]]:
    return [(number, offset) for number in range(6) for offset in range(offsets)]


class TestJoining:
    def test_a_member_says_everything_when_it_joins_and_then_only_what_has_changed(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone", client_rack="a", group_remote_assignor="range", run_ms=2_000)

        join, told, *others = heartbeats(cluster)
        assert (join.member_epoch, join.rack_id, join.server_assignor) == (0, "a", "range")
        assert (join.subscribed_topic_names, join.subscribed_topic_regex) == (["flights"], None)
        assert (join.rebalance_timeout_ms, join.topic_partitions) == (300_000, [])
        assert {row.topic_id for row in told.topic_partitions or ()} == {cluster.topic_id("flights")}
        assert [row.partitions for row in told.topic_partitions or ()] == [[0, 1, 2, 3, 4, 5]]
        for heartbeat in others:
            assert heartbeat.member_id == join.member_id != ""
            assert heartbeat.member_epoch == alone.generation
            assert (heartbeat.subscribed_topic_names, heartbeat.topic_partitions) == (None, None)
            assert (heartbeat.rack_id, heartbeat.server_assignor) == (None, None)
            assert heartbeat.rebalance_timeout_ms == -1

    def test_heartbeats_are_as_far_apart_as_the_coordinator_says(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        party.settled("alone", heartbeat_interval_ms=100)
        forget(cluster)
        party.run(5_000)
        assert 8 <= len(heartbeats(cluster)) <= 11

    def test_all_records_are_read_once_and_committed_in_the_members_epoch(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        members = party.settled("first", "second", run_ms=4_000)
        assert counts(*members) == [3, 3]
        assert seen(*members) == everything(100)
        assert cluster.groups.committed("g") == {("flights", number): 100 for number in range(6)}
        commits = requests(cluster, OffsetCommitRequest)
        assert all(commit.generation_id_or_member_epoch > 0 for commit in commits)
        groups = [group for fetch in requests(cluster, OffsetFetchRequest) for group in fetch.groups]
        assert all(group.member_id and group.member_epoch > 0 for group in groups)

    @pytest.mark.parametrize(("assignor", "shares"), [("range", [(0, 1), (2, 3), (4, 5)]), ("", None)])
    def test_the_coordinators_assignors_are_used(
        self, party: Party, assignor: str, shares: list[tuple[int, ...]] | None
    ) -> None:
        members = party.settled("a", "b", "c", group_remote_assignor=assignor)
        assert counts(*members) == [2, 2, 2]
        assert shares is None or sorted(member.owned for member in members) == shares

    def test_an_unknown_assignor_is_an_error_that_says_what_to_do(self, party: Party) -> None:
        alone = party.join("alone", group_remote_assignor="best")
        with pytest.raises(BrokerError, match=r"set group\.remote\.assignor to one of") as raised:
            party.run(1_000)
        assert raised.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert alone.owned == ()


class TestRebalances:
    def test_what_stays_is_read_on_while_a_member_joins(self, cluster: FakeCluster, party: Party) -> None:
        (first,) = party.settled("first", run_ms=1_000)
        first.told.clear()
        second = party.join("second")
        while not second.owned:
            fill_all(cluster, 1)
            before = {each: first.consumer.position(each) for each in first.consumer.assignment()}
            party.turn()
            party.cluster.time_ms += 1
            stays = [each for each in before if each in first.consumer.assignment()]
            assert len(stays) >= 3
        party.settle()

        assert counts(first, second) == [3, 3]
        (revoked,) = [told for told in first.told if told[0] == "revoked"]
        assert len(revoked[1]) == 3 and "lost" not in dict(first.told)
        party.run(4_000)
        assert seen(first, second) == everything(cluster.topics["flights"][0].end_offset)

    def test_a_partition_is_given_to_nobody_before_its_owner_has_given_it_up(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (first,) = party.settled("first")
        second = party.join("second")
        for _ in range(20):  # `first` is handling records: only its heartbeat thread is at work.
            second.poll(100)
            first.consumer._loop.turn_beside()
        assert (counts(first), second.owned) == ([6], ())
        party.settle()
        assert counts(first, second) == [3, 3]

    def test_offsets_are_committed_before_a_partition_is_given_up(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (first,) = party.settled("first", auto_commit_interval_ms=1_000_000)
        while len(first.records) < 600:
            first.poll(100)
        second = party.join("second", auto_commit_interval_ms=1_000_000)
        party.settle()
        party.run(1_000)
        assert second.records == []
        given = {("flights", number): 100 for number in second.owned}
        assert given.items() <= cluster.groups.committed("g").items()

    def test_the_partitions_of_a_member_that_leaves_go_to_the_others_at_once(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second")
        party.leave(first)
        assert heartbeats(cluster)[-1].member_epoch == -1
        began_ms = cluster.time_ms
        party.settle()
        assert counts(second) == [6]
        assert cluster.time_ms - began_ms < SESSION_MS

    def test_the_partitions_of_a_killed_member_go_to_the_others_after_its_session(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second", run_ms=2_000)
        party.crash(first)
        party.run(SESSION_MS + 2 * INTERVAL_MS)
        party.settle()
        assert counts(second) == [6]

    def test_new_partitions_are_assigned(self, cluster: FakeCluster, party: Party) -> None:
        members = party.settled("first", "second")
        cluster.grow_topic("flights", 8)
        party.run(2_000)
        party.settle()
        assert counts(*members) == [4, 4]

    def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone", enable_auto_commit=False, run_ms=1_000)
        alone.told.clear()
        cluster.delete_topic("flights")
        cluster.create_topic("flights", 2)
        fill_all(cluster, 10)
        party.run(5_000)
        assert [told for told in alone.told if told[0] == "revoked"] == [("revoked", (0, 1, 2, 3, 4, 5))]
        assert alone.owned == (0, 1)

    def test_a_subscription_is_changed_without_a_stop(self, cluster: FakeCluster, party: Party) -> None:
        for partition in cluster.add_topic("carriers", 2):
            fill(partition, 10)
        (alone,) = party.settled("alone")
        alone.told.clear()
        alone.consumer.add_topic("carriers")
        party.run(1_000)
        assert alone.told == [("assigned", (0, 1))]
        alone.consumer.remove_topic("flights")
        party.run(1_000)
        assert {each.topic for each in alone.consumer.assignment()} == {"carriers"}
        forget(cluster)
        alone.consumer.remove_topic("carriers")
        party.run(1_000)
        assert [each.member_epoch for each in heartbeats(cluster)][-1] == -1
        assert alone.consumer.assignment() == []
        alone.consumer.add_topic("flights")
        party.settle()
        assert counts(alone) == [6]


class TestPatterns:
    @pytest.fixture(autouse=True)
    def more_topics(self, cluster: FakeCluster) -> None:
        pytest.importorskip("re2", reason="google-re2 is not installed: coordinators match nothing")
        for name in ("orders-eu", "orders-us", "my-orders"):
            for partition in cluster.add_topic(name, 2):
                fill(partition, 10)

    def topics_of(self, *members: Member) -> set[str]:
        return {each.topic for member in members for each in member.consumer.assignment()}

    def subscribed(self, party: Party, pattern: str) -> Member:
        member = party.join("alone")
        member.consumer.remove_topic("flights")
        member.consumer.add_pattern(pattern)
        party.run(1_000)
        return member

    def test_topics_whose_whole_names_match_are_read(self, party: Party) -> None:
        alone = self.subscribed(party, "orders-.*")
        assert self.topics_of(alone) == {"orders-eu", "orders-us"}
        assert len(alone.records) == 40

    def test_topics_that_are_created_later_are_read(self, cluster: FakeCluster, party: Party) -> None:
        alone = self.subscribed(party, "orders-.*")
        cluster.create_topic("orders-jp", 1)
        fill(cluster.topics["orders-jp"][0], 10)
        party.run(2_000)
        assert self.topics_of(alone) == {"orders-eu", "orders-us", "orders-jp"}
        assert sum(record.topic == "orders-jp" for record in alone.records) == 10

    def test_members_share_what_matches_beside_what_they_name(self, party: Party) -> None:
        first, second = party.join("first"), party.join("second")
        for member in (first, second):
            member.consumer.add_pattern(".*orders.*")
        party.settle()
        assert self.topics_of(first, second) == {"flights", "orders-eu", "orders-us", "my-orders"}
        assert counts(first, second) == [6, 6]
        first.consumer.commit()

    def test_a_pattern_is_replaced_and_removed(self, party: Party) -> None:
        alone = self.subscribed(party, "orders-.*")
        alone.consumer.add_pattern("my-.*")
        party.run(500)
        assert self.topics_of(alone) == {"my-orders"}
        alone.consumer.add_topic("flights")
        alone.consumer.remove_pattern()
        party.run(500)
        assert self.topics_of(alone) == {"flights"}

    def test_a_pattern_that_is_not_one_is_an_error(self, party: Party) -> None:
        with pytest.raises(InvalidRegularExpressionError, match="not in RE2's syntax") as raised:
            self.subscribed(party, "(orders")
        assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        (alone,) = party.members
        alone.consumer.add_pattern("orders-eu")
        party.run(1_000)
        assert self.topics_of(alone) == {"orders-eu"}

    def test_a_coordinator_that_matches_nothing_is_an_error(self, cluster: FakeCluster, party: Party) -> None:
        for broker in cluster.brokers.values():
            broker.versions = broker.versions | {68: (0, 0)}
        with pytest.raises(UnsupportedRequestError, match="call add_topic"):
            self.subscribed(party, "orders-.*")

    @pytest.mark.parametrize("protocol", ["classic", "managed"])
    def test_other_protocols_have_none(self, cluster: FakeCluster, protocol: str) -> None:
        member = Party(cluster, group_protocol=protocol).join("alone")
        with pytest.raises(NoGroupError, match=r"needs group\.protocol=consumer"):
            member.consumer.add_pattern(".*")


class TestStaticMembers:
    def test_a_static_member_gets_its_partitions_back(self, cluster: FakeCluster, party: Party) -> None:
        first = party.join("first", group_instance_id="one")
        second = party.join("second", group_instance_id="two")
        party.settle()
        had, stays = first.owned, second.owned
        second.told.clear()
        party.leave(first)
        assert heartbeats(cluster)[-1].member_epoch == -2
        again = party.join("again", group_instance_id="one")
        party.settle()
        assert (again.owned, second.owned, second.told) == (had, stays, [])

    def test_a_second_member_with_the_name_is_told_so_until_it_is_free(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (first,) = party.settled("first", group_instance_id="one")
        second = party.join("second", group_instance_id="one")
        with pytest.raises(
            BrokerError, match=r"give each consumer a group\.instance\.id of its own"
        ) as raised:
            for _ in range(100):
                second.poll(20)
                first.poll(20)
        assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        party.leave(first)
        for _ in range(100):
            second.poll(20)
        assert counts(second) == [6]

    def test_a_member_whose_name_was_taken_is_fenced_for_good(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (first,) = party.settled("first", group_instance_id="one")
        cluster.fail_next("ConsumerGroupHeartbeat", ErrorCode.FENCED_INSTANCE_ID)
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError, match=r"group\.instance\.id=one"):
                for _ in range(100):
                    first.poll(20)
        assert first.told[-1] == ("lost", (0, 1, 2, 3, 4, 5))


class TestFencing:
    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
    def test_a_member_that_is_not_one_any_more_loses_its_partitions_and_joins_again(
        self, cluster: FakeCluster, party: Party, code: ErrorCode
    ) -> None:
        first, second = party.settled("first", "second")
        had = first.owned
        before = first.consumer.group_identity()
        forget(cluster)
        cluster.fail_next("ConsumerGroupHeartbeat", code)
        while not any(told[0] == "lost" for told in (*first.told, *second.told)):
            party.turn()
            cluster.time_ms += 1
        party.settle()
        assert counts(first, second) == [3, 3]
        lost = first if ("lost", had) in first.told else second
        join = next(each for each in heartbeats(cluster) if each.member_epoch == 0)
        assert join.member_id == lost.consumer.group_identity().member_id
        if lost is first:
            assert join.member_id == before.member_id
            assert lost.consumer.group_identity().membership == before.membership + 1

    def test_a_member_that_was_paused_for_a_session_returns_nothing_and_joins_again(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        sleeper = party.join("sleeper", max_poll_records=5, enable_auto_commit=False)
        party.settle()
        while len(sleeper.records) < 10:
            sleeper.poll()
        party.members.remove(sleeper)
        (other,) = party.settled("other")
        cluster.time_ms += 2 * SESSION_MS
        other.poll(100)
        before = len(sleeper.records)
        assert sleeper.poll(0) == []
        with pytest.raises(CommitFailedError):
            sleeper.consumer.commit({FLIGHTS[0]: 5})
            sleeper.consumer.commit(dict.fromkeys(FLIGHTS, 5))
        party.members.append(sleeper)
        party.settle()
        assert any(told[0] == "lost" for told in sleeper.told)
        assert len(sleeper.records) >= before

    def test_a_member_that_was_paused_returns_nothing_that_it_had_buffered_before_the_coordinator_answers(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (sleeper,) = party.settled("sleeper", max_poll_records=1, enable_auto_commit=False)
        while not sleeper.consumer._buffer._leftover:
            sleeper.poll(100)
        for node in cluster.brokers:
            cluster.pause_broker(node)
        cluster.time_ms += 2 * SESSION_MS
        assert sleeper.poll(100) == []
        assert sleeper.consumer._buffer._leftover, "whether they are lost is not known yet"
        for node in cluster.brokers:
            cluster.start_broker(node)
        before = len(sleeper.records)
        while len(sleeper.records) == before:
            party.settle()
            sleeper.poll(100)

    def test_a_commit_that_begins_before_the_loss_is_not_repeated_after_it(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone", enable_auto_commit=False)
        cluster.fail_next("OffsetCommit", ErrorCode.STALE_MEMBER_EPOCH, times=100)
        cluster.fail_next("ConsumerGroupHeartbeat", ErrorCode.FENCED_MEMBER_EPOCH)
        with pytest.raises(CommitFailedError):
            alone.consumer.commit({FLIGHTS[0]: 5}, timeout_ms=10_000)
        assert cluster.groups.committed("g") == {}

    def test_a_commit_in_an_epoch_that_is_over_goes_on_in_the_next(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone", enable_auto_commit=False)
        cluster.fail_next("OffsetCommit", ErrorCode.STALE_MEMBER_EPOCH, times=2)
        alone.consumer.commit({FLIGHTS[0]: 5})
        assert cluster.groups.committed("g") == {("flights", 0): 5}
        assert len(requests(cluster, OffsetCommitRequest)) == 3

    def test_offsets_are_fetched_again_in_the_next_epoch(self, cluster: FakeCluster, party: Party) -> None:
        (alone,) = party.settled("alone", enable_auto_commit=False)
        alone.consumer.commit({FLIGHTS[0]: 5})
        cluster.fail_next("OffsetFetch", ErrorCode.STALE_MEMBER_EPOCH, times=2)
        found = alone.consumer.committed([FLIGHTS[0]])[FLIGHTS[0]]
        assert found is not None and found.offset == 5

    def test_a_member_that_polls_too_late_leaves_and_joins_again(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone", max_poll_interval_ms=1_000)
        forget(cluster)
        cluster.time_ms += 1_500
        alone.poll(0)
        party.settle()
        assert alone.told[-2:] == [("lost", (0, 1, 2, 3, 4, 5)), ("assigned", (0, 1, 2, 3, 4, 5))]
        assert [each.member_epoch for each in heartbeats(cluster)][:2] == [-1, 0]


class TestFailures:
    @pytest.mark.parametrize("is_carried_out", [False, True])
    @pytest.mark.parametrize("skipped", range(4))
    def test_a_lost_heartbeat_or_answer_costs_nothing(
        self, cluster: FakeCluster, party: Party, skipped: int, is_carried_out: bool
    ) -> None:
        first = party.join("first")
        while len(heartbeats(cluster)) < skipped:
            first.poll(20)
        second = party.join("second")
        cluster.cut_next("ConsumerGroupHeartbeat", is_carried_out=is_carried_out, times=2)
        party.settle()
        party.run(4_000)
        assert counts(first, second) == [3, 3]
        assert seen(first, second) == everything(100)

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ],
    )
    def test_a_passing_refusal_ends_no_membership(
        self, cluster: FakeCluster, party: Party, code: ErrorCode
    ) -> None:
        (alone,) = party.settled("alone")
        alone.told.clear()
        cluster.fail_next("ConsumerGroupHeartbeat", code, times=3)
        party.run(2_000)
        assert (alone.told, counts(alone)) == ([], [6])

    def test_members_keep_their_partitions_when_the_coordinator_moves(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        first, second = party.settled("first", "second")
        had = [first.owned, second.owned]
        for member in (first, second):
            member.told.clear()
        cluster.move_coordinator(3)
        party.run(2_000)
        assert ([first.owned, second.owned], first.told, second.told) == (had, [], [])
        fill_all(cluster, 10)
        party.run(4_000)
        assert seen(first, second) == everything(110)

    def test_a_broker_without_the_protocol_is_an_error_that_says_what_to_do(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        for broker in cluster.brokers.values():
            del broker.versions[68]
        party.join("alone")
        with pytest.raises(UnsupportedRequestError, match=r"set group\.protocol=classic"):
            party.run(1_000)

    def test_a_group_of_the_managed_protocol_is_an_error_that_says_what_to_do(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        Party(cluster, group_protocol="managed").settled("former")
        alone = party.join("alone")
        with pytest.raises(BrokerError, match="members of another protocol") as raised:
            party.run(1_000)
        assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert alone.owned == ()

    def test_a_member_of_the_classic_protocol_shares_the_group_with_one_of_this(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        classic = Party(cluster, group_protocol="classic").join("classic")
        party.members.append(classic)
        party.settle()
        alone = party.join("alone")
        for _ in range(400):
            party.turn()
        assert counts(classic, alone) == [3, 3]

    def test_it_has_no_single_readers(self, cluster: FakeCluster) -> None:
        with pytest.raises(ConfigError, match=r"group\.single\.reader=true needs group\.protocol=managed"):
            Party(cluster, group_protocol="consumer", group_single_reader="true").join("alone")

    def test_a_refusal_that_does_not_pass_is_told_and_ends_nothing(
        self, cluster: FakeCluster, party: Party
    ) -> None:
        (alone,) = party.settled("alone")
        alone.told.clear()
        cluster.fail_next("ConsumerGroupHeartbeat", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError) as raised:
            party.run(2_000)
        assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        party.run(2_000)
        assert (alone.told, counts(alone)) == ([], [6])
