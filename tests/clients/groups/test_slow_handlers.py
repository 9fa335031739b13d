"""A handler that takes longer than the session: the member keeps its partitions and makes progress (KIP-62).

The tests take the turns of the heartbeat thread themselves, because a thread cannot sleep by a fake clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.testing.fakes.fake_cluster import GROUP_CONFIG, FakeCluster
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import fill

SESSION_MS = 3_000
HANDLER_MS = 10_000
"""How long a handler takes for one record: three sessions."""
STEP_MS = 50


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(
        3,
        dataclasses.replace(
            GROUP_CONFIG, consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=500
        ),
    )
    for partition in cluster.add_topic("flights", 6):
        fill(partition, 100)
    return cluster


@pytest.fixture(params=["range", "cooperative-sticky", "consumer", "managed", "single readers"])
def party(request: pytest.FixtureRequest, cluster: FakeCluster) -> Party:
    more: dict[str, object] = {"session_timeout_ms": SESSION_MS, "enable_auto_commit": False}
    match request.param:
        case "consumer" | "managed" as protocol:
            more["group_protocol"] = protocol
        case "single readers":
            more |= {"group_protocol": "managed", "group_single_reader": True}
        case strategy:
            more["partition_assignment_strategy"] = strategy
    return Party(cluster, max_poll_records=1, **more)


def handle(
    party: Party,
    member: Member,
    handler_ms: int = HANDLER_MS,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """`member` handles a record beside its heartbeat thread; `meanwhile` is called at each step."""
    cluster = party.cluster
    until_ms = cluster.time_ms + handler_ms
    due_ms = cluster.time_ms
    while cluster.time_ms < until_ms:
        cluster.time_ms += STEP_MS
        if cluster.time_ms >= due_ms:
            wait_ms = member.consumer._loop.turn_beside()
            assert wait_ms is not None
            due_ms = cluster.time_ms + wait_ms
        meanwhile()


def one_record(party: Party, member: Member) -> None:
    before = len(member.records)
    for _ in range(200):
        party.turn()
        if len(member.records) > before:
            return
    raise AssertionError("no record came")


class TestHeartbeats:
    def test_every_record_of_a_slow_handler_is_handled_once_and_committed(
        self, party: Party, cluster: FakeCluster
    ) -> None:
        (alone,) = party.settled("alone")
        generation = alone.generation
        for _ in range(5):
            one_record(party, alone)
            handle(party, alone)
            alone.consumer.commit()

        handled = [(record.partition, record.offset) for record in alone.records]
        assert len(set(handled)) == len(handled) and alone.generation == generation
        assert sum(cluster.groups.committed("g").values()) == len(handled)
        assert [kind for kind, _ in alone.told] == ["assigned"]

    def test_without_the_thread_the_session_ends(self, ranges: Party, cluster: FakeCluster) -> None:
        first, second = ranges.settled("first", "second")
        one_record(ranges, first)
        ranges.members.remove(first)
        ranges.run(HANDLER_MS)

        assert len(second.owned) == 6
        with pytest.raises(CommitFailedError):
            first.consumer.commit()

    @pytest.fixture
    def ranges(self, cluster: FakeCluster) -> Party:
        return Party(
            cluster, partition_assignment_strategy="range", max_poll_records=1, enable_auto_commit=False
        )

    def test_others_get_nothing_of_a_slow_member(self, party: Party, cluster: FakeCluster) -> None:
        first, second = party.settled("first", "second")
        owned = first.owned
        one_record(party, first)
        party.members.remove(first)
        handle(party, first, meanwhile=lambda: second.poll(0))
        party.members.append(first)

        assert first.owned == owned and not set(owned) & set(second.owned)
        first.consumer.commit()

    def test_a_rebalance_waits_for_the_slow_member_to_poll(self, party: Party, cluster: FakeCluster) -> None:
        (first,) = party.settled("first")
        one_record(party, first)
        party.members.remove(first)
        second = party.join("second")
        handle(party, first, meanwhile=lambda: second.poll(0))
        assert second.owned == () and [kind for kind, _ in first.told] == ["assigned"]
        first.consumer.commit()
        assert sum(cluster.groups.committed("g").values()) == len(first.records)
        party.members.append(first)
        party.settle()

        assert len(first.owned) == len(second.owned) == 3
        assert "lost" not in dict(first.told)

    def test_heartbeats_follow_the_coordinator(self, ranges: Party, cluster: FakeCluster) -> None:
        first, second = ranges.settled("first", "second")
        ranges.members.remove(first)
        cluster.groups.move(2)
        handle(ranges, first, meanwhile=lambda: second.poll(0))
        ranges.members.append(first)
        ranges.run(500)

        assert "lost" not in dict(first.told) and len(second.owned) == 3

    def test_a_member_that_was_removed_meanwhile_cannot_commit(
        self, ranges: Party, cluster: FakeCluster
    ) -> None:
        (alone,) = ranges.settled("alone")
        one_record(ranges, alone)
        cluster.brokers[1].fail_next(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
        handle(ranges, alone, 2_000)

        with pytest.raises(CommitFailedError, match="rebalanced without this consumer"):
            alone.consumer.commit()
        assert cluster.groups.committed("g") == {}
        ranges.settle()


class TestMaxPollInterval:
    def test_a_member_that_polls_too_late_leaves_and_is_told_why(
        self, party: Party, cluster: FakeCluster
    ) -> None:
        party._properties["max.poll.interval.ms"] = HANDLER_MS
        first, second = party.settled("first", "second")
        one_record(party, first)
        party.members.remove(first)
        handle(party, first, HANDLER_MS + 500, meanwhile=lambda: second.poll(0))
        party.run(2_000)
        assert len(second.owned) == 6, "the group has not waited for the session"
        committed = cluster.groups.committed("g")
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms=10000.*max\.poll\.records"):
            first.consumer.commit()
        assert cluster.groups.committed("g") == committed
        party.members.append(first)
        party.settle()

        assert [kind for kind, _ in first.told][-2:] == ["lost", "assigned"] and len(first.owned) == 3

    def test_closing_too_late_commits_nothing(self, cluster: FakeCluster) -> None:
        party = Party(
            cluster,
            partition_assignment_strategy="range",
            max_poll_interval_ms=HANDLER_MS,
            max_poll_records=1,
        )
        (alone,) = party.settled("alone")
        one_record(party, alone)
        before = cluster.groups.committed("g")
        handle(party, alone, HANDLER_MS + 500)
        assert cluster.groups.state("g") == "Empty"
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            alone.consumer.commit()  # To an empty group the coordinator would let anybody commit.
        party.leave(alone)

        assert cluster.groups.committed("g") == before

    def test_a_listener_may_take_longer_than_the_session(self, cluster: FakeCluster) -> None:
        party = Party(cluster, partition_assignment_strategy="range")
        first = party.join("first")
        party.settle()
        first.on_revoked = lambda member: handle(party, member)
        (second,) = party.settled("second")

        assert len(first.owned) == len(second.owned) == 3 and "lost" not in dict(first.told)


def test_events_are_delivered_by_the_applications_thread(cluster: FakeCluster) -> None:
    party = Party(cluster)
    (alone,) = party.settled("alone")
    cluster.brokers[1].stop()
    before = len(alone.events)
    handle(party, alone, 1_000)
    assert len(alone.events) == before
    alone.poll(0)

    assert len(alone.events) > before
