"""Each rule of consumer groups (KIP-848), taken away: a scenario has to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.coordinator.groups import consumer_rebalance
from holdfast_log.coordinator.groups.consumer_assignment import CurrentAssignment
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.consumer_kind import ConsumerKind
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer
from holdfast_log.coordinator.groups.consumer_records import ReplayedGroup
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups import test_consumer_groups as scenarios
from tests.coordinator.groups.world import GroupWorld
from tests.missed import assert_missed

Check = Callable[[GroupWorld], None]

members, epochs = scenarios.TestMembers(), scenarios.TestEpochs()
static, topics = scenarios.TestStaticMembers(), scenarios.TestTopics()
log = scenarios.TestTheLog()
_remove, _take = ConsumerRebalancer.remove, ReplayedGroup.take


def trusting(
    current: CurrentAssignment, target: Any, epoch: int, owned: Any, is_free: Any
) -> CurrentAssignment:
    return replace(current, epoch=epoch, previous_epoch=current.epoch, assigned=target)


def give_without_holders(self: ConsumerGroup, member: Any, current: CurrentAssignment) -> None:
    member.current = current


def remove_in_the_same_epoch(self: Any, group: ConsumerGroup, *rest: Any) -> None:
    _remove(self, group, *rest)
    group.epoch -= 1


def resume_nothing(self: Any, group: ConsumerGroup, now_ms: int) -> None:
    pass


def forget_targets(self: ReplayedGroup, key: Any, value: bytes | None) -> None:
    if key.kind != 7:
        _take(self, key, value)


def forget_currents(self: ReplayedGroup, key: Any, value: bytes | None) -> None:
    if key.kind != 8:
        _take(self, key, value)


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "a member gets its target whoever has it": (
        consumer_rebalance, "reconciled", trusting,
        members.test_a_partition_moves_only_after_its_reader_has_given_it_up,
    ),
    "holders are not kept": (
        ConsumerGroup, "give", give_without_holders,
        members.test_a_partition_moves_only_after_its_reader_has_given_it_up,
    ),
    "a member that leaves does not change the group": (
        ConsumerRebalancer, "remove", remove_in_the_same_epoch,
        members.test_a_member_that_leaves_frees_its_partitions,
    ),
    "a session does not end": (
        ConsumerRebalancer, "keep_alive", lambda *arguments: None,
        members.test_a_silent_member_is_removed_with_its_session,
    ),
    "a member may keep what it has to give up": (
        ConsumerRebalancer, "_set_revocation", lambda *arguments: None,
        members.test_a_member_that_does_not_give_up_its_partitions_is_removed,
    ),
    "every heartbeat starts the wait for a revocation anew": (
        ConsumerRebalancer, "_await_revocation",
        lambda self, group, member, had, now_ms: self._set_revocation(group, member, now_ms),
        members.test_a_member_that_does_not_give_up_its_partitions_is_removed,
    ),
    "epochs are not compared": (
        consumer_rebalance, "_check_epoch", lambda member, sent: None,
        epochs.test_a_member_with_a_wrong_epoch_is_fenced,
    ),
    "offsets are committed in any epoch": (
        ConsumerGroup, "check_member", lambda self, member_id, epoch: ErrorCode.NONE,
        epochs.test_offsets_are_committed_in_the_members_epoch,
    ),
    "an instance is taken over while it is in use": (
        consumer_rebalance, "_check_released", lambda former: None,
        static.test_an_instance_id_is_used_once_at_a_time,
    ),
    "new partitions are not seen": (
        ConsumerKind, "topics_changed", lambda *arguments: None, topics.test_new_partitions_are_assigned,
    ),
    "a new coordinator trusts the topics of its predecessor": (
        ConsumerGroup, "is_restored", property(lambda self: False, lambda self, value: None),
        topics.test_a_change_of_topics_while_there_was_no_coordinator_is_seen,
    ),
    "a new coordinator sets no deadlines": (
        ConsumerRebalancer, "resume", resume_nothing,
        log.test_a_new_coordinator_removes_members_that_are_gone,
    ),
    "a new coordinator does not read targets": (
        ReplayedGroup, "take", forget_targets, log.test_a_new_coordinator_continues,
    ),
    "a new coordinator does not read what members have": (
        ReplayedGroup, "take", forget_currents, log.test_a_new_coordinator_continues,
    ),
    "a group's last records stay": (
        ConsumerKind, "is_vacant", lambda self, group: False,
        log.test_an_empty_group_ends_with_its_offsets,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *rule, check = MUTATIONS[name]
    caught = (AssertionError, KeyError)
    assert_missed(monkeypatch, caught, *rule, lambda: check(GroupWorld(scenarios.CONFIG, orders=4)))
