"""Each rule of the migration of groups (KIP-848), taken away: a scenario has to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.coordinator.groups import consumer_classic, consumer_rebalance, consumer_records, migration
from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.consumer_assignment import CurrentAssignment
from holdfast_log.coordinator.groups.consumer_classic import ClassicMembers
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer
from holdfast_log.coordinator.groups.migration import Migration
from holdfast_log.coordinator.groups.records import GroupValue
from holdfast_log.coordinator.timers import Timers
from tests.coordinator.groups import test_migration as scenarios
from tests.coordinator.groups.world import GroupWorld
from tests.missed import assert_missed

Check = Callable[[GroupWorld], None]

upgrades, downgrades = scenarios.TestUpgrades(), scenarios.TestDowngrades()
members, static = scenarios.TestClassicMembers(), scenarios.TestStaticMembers()
_upgraded, _downgraded, _joined_meta = migration.upgraded, migration.downgraded, consumer_classic.joined_meta


def with_pair(check: Callable[..., None]) -> Check:
    """The scenario of a classic member and one of the newer protocol."""
    return lambda world: check(members, world, members.pair(world))


def both_ways(*, is_cooperative: bool, fails_over: bool = False) -> Check:
    return lambda world: scenarios.test_a_classic_group_becomes_a_consumer_group_and_back(
        world, is_cooperative, fails_over
    )


def migrates(*, is_cooperative: bool) -> Check:
    return lambda world: scenarios.test_nobody_loses_what_it_has_read_in_a_migration(world, is_cooperative)


def upgraded_with_nothing(group: ClassicGroup, cluster: Any) -> ConsumerGroup:
    successor = _upgraded(group, cluster)
    for member in successor.members.values():
        member.target = frozenset()
        successor.give(member, CurrentAssignment(member.current.epoch, member.current.epoch))
    return successor


def upgraded_one_epoch_later(group: ClassicGroup, cluster: Any) -> ConsumerGroup:
    successor = _upgraded(group, cluster)
    for member in successor.members.values():
        successor.give(member, replace(member.current, epoch=member.current.epoch + 1))
    return successor


def upgraded_with_all(group: ClassicGroup, cluster: Any) -> ConsumerGroup:
    for member in group.members.values():
        member.is_new = False
    return _upgraded(group, cluster)


def upgrade_in_silence(self: Migration, group: ClassicGroup, *rest: Any) -> None:
    for member in group.members.values():
        member.joining = member.syncing = None
    _upgrade(self, group, *rest)


_upgrade = Migration.upgrade


def downgraded_one_generation_later(group: ConsumerGroup, now_ms: int) -> ClassicGroup:
    successor = _downgraded(group, now_ms)
    successor.generation += 1
    return successor


def downgraded_with_a_leader(group: ConsumerGroup, now_ms: int) -> ClassicGroup:
    successor = _downgraded(group, now_ms)
    successor.leader_id = next(iter(successor.members))
    return successor


def downgrade_at_rest(self: Migration, group: ConsumerGroup, result: Any, now_ms: int) -> ClassicGroup:
    successor = _downgraded(group, now_ms)
    self._consumers.delete(group, result)
    self._classic.persist(successor, result)
    return successor


def forgotten_classic(value: Any) -> Any:
    return replace(_meta(value), classic=None)


_meta = consumer_records._meta


def eager(meta: Any, join: Any, subscription: Any) -> Any:
    subscription.owned_partitions.clear()  # before it is looked at
    return _joined_meta(meta, join, subscription)


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "classic members are upgraded without their partitions": (
        migration, "upgraded", upgraded_with_nothing,
        scenarios.test_a_partition_moves_only_after_its_classic_reader_has_given_it_up,
    ),
    "classic members are upgraded into an epoch that they do not know": (
        migration, "upgraded", upgraded_one_epoch_later, migrates(is_cooperative=False),
    ),
    "members without an answer are upgraded too": (
        migration, "upgraded", upgraded_with_all,
        upgrades.test_a_member_that_waits_for_its_first_answer_joins_the_new_group,
    ),
    "members that wait are not answered": (
        Migration, "upgrade", upgrade_in_silence,
        upgrades.test_a_member_that_waits_for_its_first_answer_joins_the_new_group,
    ),
    "a classic member gets its target whatever it says to have": (
        consumer_classic, "joined_meta", eager, both_ways(is_cooperative=True),
    ),
    "heartbeats of classic members say nothing of changes": (
        consumer_classic, "_would_move", lambda group, member: False, both_ways(is_cooperative=False),
    ),
    "classic members are not told of partitions that have become free": (
        consumer_classic, "_would_move", lambda group, member: member.current.epoch < group.epoch,
        both_ways(is_cooperative=True),
    ),
    "generations are not compared": (
        ClassicMembers, "_checked",
        lambda self, group, caller: (
            member := self._rebalancer.known(group, caller.member_id, None), member.meta.classic,
        ),
        with_pair(scenarios.TestClassicMembers.test_its_generation_is_its_epoch),
    ),
    "a member that is told to join again has for ever": (
        ClassicMembers, "_await_join", lambda *arguments: None,
        with_pair(scenarios.TestClassicMembers.test_a_member_that_does_not_join_again_in_time_is_removed),
    ),
    "every heartbeat starts the wait for a JoinGroup anew": (
        Timers, "deadline_ms", lambda self, key: None,
        with_pair(scenarios.TestClassicMembers.test_a_member_that_does_not_join_again_in_time_is_removed),
    ),
    "a new coordinator does not know who uses the classic protocol": (
        consumer_records, "_meta", forgotten_classic,
        upgrades.test_what_classic_members_say_of_themselves_survives_a_new_coordinator,
    ),
    "a classic member that has been replaced may go on": (
        ConsumerRebalancer, "known", lambda self, group, member_id, instance_id: group.members[member_id],
        static.test_a_restarted_classic_member_keeps_its_place,
    ),
    "a static member may not change its protocol": (
        consumer_rebalance, "_check_released", lambda former: 1 / 0,
        static.test_a_restarted_static_member_may_change_its_protocol,
    ),
    "the last member of the newer protocol leaves a consumer group behind": (
        Migration, "must_downgrade", lambda self, group: False, both_ways(is_cooperative=False),
    ),
    "a group is downgraded into a generation that its members do not know": (
        migration, "downgraded", downgraded_one_generation_later, migrates(is_cooperative=False),
    ),
    "a downgraded group does not rebalance": (
        Migration, "downgrade", downgrade_at_rest, both_ways(is_cooperative=False),
    ),
    "a downgraded group does not rebalance under a new coordinator": (
        migration, "downgraded", downgraded_with_a_leader,
        downgrades.test_a_new_coordinator_lets_the_group_rebalance,
    ),
    "a new coordinator does not see that a rebalance was interrupted": (
        GroupValue, "is_interrupted", property(lambda self: False),
        downgrades.test_a_new_coordinator_lets_the_group_rebalance,
    ),
    "what a member still gives up is not held in the downgraded group": (
        CurrentAssignment, "held", property(lambda self: self.assigned),
        downgrades.test_what_a_member_gives_up_is_not_given_to_others,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *rule, check = MUTATIONS[name]
    caught = (AssertionError, KeyError, ZeroDivisionError)
    assert_missed(monkeypatch, caught, *rule, lambda: check(scenarios.new_world()))
