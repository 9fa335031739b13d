"""The memory of subscriptions and assignments: bounded for a member, a group and all groups together."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.groups import classic_requests
from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.member_memory import MemberMemory, classic_bytes
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.world import GroupWorld, Member

REFUSED = ErrorCode.GROUP_MAX_SIZE_REACHED
LIMITS = GroupSettings(
    initial_rebalance_delay_ms=0, subscription_bytes_max=1000, group_bytes_max=2500, all_groups_bytes_max=4000
)


def subscribed(size: int) -> Member:
    """A member whose subscription has `size` bytes with its protocol's name."""
    return Member(protocols=(("range", bytes(size - len("range"))),))


def refused(world: GroupWorld, size: int, group: str = "g") -> bool:
    request = world.send_first_join(subscribed(size), group)
    return not world.is_waiting(request) and world.join_answer(request).error is REFUSED


def test_a_member_with_a_large_subscription_is_refused() -> None:
    world = GroupWorld(LIMITS, orders=4)
    assert refused(world, 1001)
    assert not refused(world, 1000)


def test_the_members_of_a_group_have_a_limit_together() -> None:
    world = GroupWorld(LIMITS, orders=4)
    assert [refused(world, 900) for _ in range(4)] == [False, False, True, True]
    assert not refused(world, 900, "other")


def test_all_groups_have_a_limit_together_and_closed_members_free_their_memory() -> None:
    world = GroupWorld(LIMITS, orders=4)
    assert [refused(world, 900, f"g{number}") for number in range(6)] == [False] * 4 + [True] * 2
    world.wait(LIMITS.max_session_timeout_ms)
    assert not refused(world, 900, "g5")


def test_an_assignment_over_the_limit_is_refused() -> None:
    world = GroupWorld(LIMITS, orders=4)
    joined = world.join_empty(subscribed(10))
    member = subscribed(10).after(joined)
    sync = world.send_sync(member, {member.member_id: bytes(2501)})
    assert world.sync_answer(sync).error is REFUSED


def test_the_names_of_protocols_count_as_well() -> None:
    world = GroupWorld(LIMITS, orders=4)
    request = world.send_first_join(Member(protocols=(("n" * 1001, b""),)))
    assert world.join_answer(request).error is REFUSED


def test_topics_of_a_group_whose_partitions_the_server_assigns_count() -> None:
    world = GroupWorld(LIMITS)
    assert world.create_group(topics=["t" * 1000]) is ErrorCode.NONE
    assert world.create_group(topics=["t" * 1000, "u" * 1000]) is ErrorCode.NONE
    assert world.create_group(topics=["v" * 1000]) is REFUSED, "the group has a limit"
    assert world.create_group(topics=["t" * 1000]) is ErrorCode.NONE, "nothing is new"
    assert world.create_group("other", topics=["t" * 2000]) is REFUSED, "all groups have a limit together"


def test_members_of_a_group_whose_partitions_the_server_assigns_count() -> None:
    world = GroupWorld(LIMITS, orders=4)
    assert world.create_group() is ErrorCode.NONE
    first = world.send_register("c" * 1500)
    assert world.register_answer(first).error is ErrorCode.NONE
    second = world.send_register("d" * 1500)
    assert world.register_answer(second).error is REFUSED
    again = world.send_register("c" * 1500)
    assert world.register_answer(again).error is ErrorCode.NONE


def test_what_is_held_is_counted_only_when_the_limit_is_near() -> None:
    counts: list[int] = []

    def count() -> int:
        counts.append(1)
        return 10

    memory = MemberMemory(100, count)
    assert all(memory.has_room(10) for _ in range(10))
    assert not counts
    assert memory.has_room(10)
    assert len(counts) == 1
    assert not memory.has_room(95)


def test_members_that_join_are_not_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count(group: ClassicGroup, *, without: str = "") -> int:
        counts.append(len(group.members))
        return classic_bytes(group, without=without)

    monkeypatch.setattr(classic_requests, "classic_bytes", count)
    world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=0), orders=4)
    for _ in range(100):
        world.send_first_join(subscribed(10))
    assert sum(counts) <= 1
