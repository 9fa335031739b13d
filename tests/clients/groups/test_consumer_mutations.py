"""Each rule that a member of a consumer group keeps (KIP-848), taken away: a test has to notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast_log.clients.consuming.loop import ConsumerLoop
from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.clients.groups import consumer_member, consumer_requests
from holdfast_log.clients.groups.consumer_member import ConsumerMembership, ConsumerMemberState
from holdfast_log.clients.groups.consumer_requests import ConsumerGroupSettings, PartitionOfId
from holdfast_log.clients.groups.membership import AssignPartitions, GroupIdentity, RevokePartitions
from holdfast_log.clients.groups.target import TargetAssignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups import test_consumer_protocol as scenarios
from tests.clients.groups.party import Party
from tests.missed import assert_missed

Check = Callable[[], None]
CAUGHT = (AssertionError, BrokerError, CommitFailedError, RuntimeError)
_RECONCILE = consumer_member.ConsumerMemberEvent.RECONCILE


def within(scenario: Callable[[FakeCluster, Party], None]) -> Check:
    """The scenario with a cluster of its own."""

    def check() -> None:
        cluster = scenarios.six_partitions()
        scenario(cluster, scenarios.party_of(cluster))

    return check


def fenced(cluster: FakeCluster, party: Party) -> None:
    (alone,) = party.settled("alone")
    cluster.fail_next("ConsumerGroupHeartbeat", ErrorCode.FENCED_MEMBER_EPOCH)
    party.run(2_000)
    assert ("lost", (0, 1, 2, 3, 4, 5)) in alone.told


def loses_what_it_tells(cluster: FakeCluster, party: Party) -> None:
    """The heartbeat does not arrive that says what the first member has given up."""
    (first,) = party.settled("first")
    second = party.join("second")
    first.on_revoked = lambda member: cluster.cut_next("ConsumerGroupHeartbeat")
    party.settle()
    assert scenarios.counts(first, second) == [3, 3]


def goes_on_as_another(self: ConsumerMembership, identity: GroupIdentity) -> GroupIdentity | None:
    return self.identity


_NEWS, _APPROACH, _REQUEST = (
    ConsumerMembership._news,
    ConsumerMembership._approach,
    ConsumerGroupSettings.heartbeat_request,
)


def told_early(self: ConsumerMembership) -> consumer_requests.MemberNews:
    news = _NEWS(self)
    going = {
        each for event in self._events if isinstance(event, RevokePartitions) for each in event.partitions
    }
    return dataclasses.replace(
        news, owned=frozenset(each for at, each in self._held.items() if at not in going)
    )


def taken_early(self: ConsumerMembership, wanted: Mapping[TopicPartition, PartitionOfId]) -> None:
    """What is assigned is read before what goes has been given up."""
    added = {partition: each for partition, each in wanted.items() if partition not in self._held}
    if not added:
        return
    self._held |= added
    self.owned = tuple(self._held)
    self._events.append(AssignPartitions(tuple(added)))
    self._tell_soon()


def all_given_up(self: ConsumerMembership, wanted: Mapping[TopicPartition, PartitionOfId]) -> None:
    if self.owned and any(wanted.get(each) != self._held[each] for each in self.owned):
        self._events.append(RevokePartitions(self.owned))
        self._advance(_RECONCILE)
        return
    _APPROACH(self, wanted)


def only_news(self: ConsumerGroupSettings, member_id: str, epoch: int, news: Any, told: Any) -> Any:
    """After a failure, as if the coordinator knew what it was told last."""
    request = _REQUEST(self, member_id, epoch, news, told)
    if told is None and epoch:
        request.topic_partitions = request.subscribed_topic_names = None
    return request


def left_for_good(self: ConsumerGroupSettings, member_id: str) -> Any:
    request = _LEAVE(self, member_id)
    request.member_epoch = -1
    return request


def whatever_it_has(self: ConsumerLoop, timeout_ms: int, has_something: Callable[[], bool]) -> bool:
    _RUN_UNTIL(self, timeout_ms, has_something)
    return True


_RUN_UNTIL = ConsumerLoop.run_until
_LEAVE, _ACCEPTED = ConsumerGroupSettings.leave_request, ConsumerMembership._accepted


def at_its_own_pace(self: ConsumerMembership, response: ConsumerGroupHeartbeatResponse) -> None:
    _ACCEPTED(self, response)
    self._interval_ms = self._settings.heartbeat_interval_ms


def assigned_in_addition(self: TargetAssignment, wanted: frozenset[PartitionOfId]) -> None:
    _REPLACE(self, self._wanted | wanted if wanted else wanted)


_REPLACE = TargetAssignment.replace


def in_its_first_epoch(self: ConsumerMembership, response: ConsumerGroupHeartbeatResponse) -> None:
    first = self._generation
    _ACCEPTED(self, response)
    if self.state is not ConsumerMemberState.JOINING and first > 0:
        self._generation = first


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "a commit goes on under the next membership": (
        ConsumerMembership, "continued", goes_on_as_another,
        within(scenarios.TestFencing().test_a_commit_that_begins_before_the_loss_is_not_repeated_after_it),
    ),
    "a commit ends with the epoch in which it began": (
        ConsumerMembership, "continued", lambda self, identity: None,
        within(scenarios.TestFencing().test_a_commit_in_an_epoch_that_is_over_goes_on_in_the_next),
    ),
    "the coordinator is told that a partition is free while it is read": (
        ConsumerMembership, "_news", told_early,
        within(scenarios.TestRebalances().test_a_partition_is_given_to_nobody_before_its_owner_has_given_it_up),
    ),
    "a member keeps what others are to have": (
        ConsumerMembership, "_approach", taken_early,
        within(scenarios.TestJoining().test_all_records_are_read_once_and_committed_in_the_members_epoch),
    ),
    "a member gives up all that it has for each change": (
        ConsumerMembership, "_approach", all_given_up,
        within(scenarios.TestRebalances().test_what_stays_is_read_on_while_a_member_joins),
    ),
    "an assignment is added to the one before": (
        TargetAssignment, "replace", assigned_in_addition,
        within(scenarios.TestJoining().test_all_records_are_read_once_and_committed_in_the_members_epoch),
    ),
    "the next heartbeat does not tell again what a lost one told": (
        ConsumerGroupSettings, "heartbeat_request", only_news, within(loses_what_it_tells),
    ),
    "a fenced member goes on": (
        consumer_member, "_MEMBERSHIP_ENDED", (), within(fenced),
    ),
    "a member stays in the epoch in which it joined": (
        ConsumerMembership, "_accepted", in_its_first_epoch,
        within(scenarios.TestJoining().test_all_records_are_read_once_and_committed_in_the_members_epoch),
    ),
    "a member that leaves says nothing": (
        ConsumerMembership, "leave_call", lambda self: None,
        within(scenarios.TestRebalances().test_the_partitions_of_a_member_that_leaves_go_to_the_others_at_once),
    ),
    "a static member leaves for good": (
        ConsumerGroupSettings, "leave_request", left_for_good,
        within(scenarios.TestStaticMembers().test_a_static_member_gets_its_partitions_back),
    ),
    "a member that was paused for a session returns records": (
        ConsumerMembership, "is_certain", lambda self, now_ms: True,
        within(scenarios.TestFencing().test_a_member_that_was_paused_for_a_session_returns_nothing_and_joins_again),
    ),
    "a member that may have lost its partitions returns what it has buffered": (
        ConsumerLoop, "run_until", whatever_it_has,
        within(
            scenarios.TestFencing()
            .test_a_member_that_was_paused_returns_nothing_that_it_had_buffered_before_the_coordinator_answers
        ),
    ),
    "heartbeats are as far apart as the member likes": (
        ConsumerMembership, "_accepted", at_its_own_pace,
        within(scenarios.TestJoining().test_heartbeats_are_as_far_apart_as_the_coordinator_says),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_of_members_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_missed(monkeypatch, CAUGHT, *MUTATIONS[name])
