"""Static members (KIP-345, KIP-814): a restarted instance keeps its place; its old member id is fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import SESSION_MS, SUBSCRIPTION, GroupWorld, Member

ORDERS_0 = TopicPartition("orders", 0)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(initial_rebalance_delay_ms=1_000), orders=8)


def static_group(world: GroupWorld, *instance_ids: str) -> list[Member]:
    """A stable group of static members; the first leads."""
    members = [Member(instance_id=instance_id) for instance_id in instance_ids]
    joins = [world.send_join(member) for member in members]
    world.wait(10_000)
    members = [member.after(world.join_answer(join)) for member, join in zip(members, joins, strict=True)]
    world.assign(members)
    return members


def test_a_static_member_joins_without_getting_an_id_first(world: GroupWorld) -> None:
    (member,) = static_group(world, "i1")
    assert member.member_id.startswith("i1-")


def test_a_restarted_follower_causes_no_rebalance(world: GroupWorld) -> None:
    leader, follower = static_group(world, "i1", "i2")
    answer = world.join_answer(world.send_join(Member(instance_id="i2")))
    assert answer.error == ErrorCode.NONE
    assert answer.member_id not in ("", follower.member_id)
    assert (answer.generation, answer.leader_id) == (follower.generation, leader.member_id)
    returned = follower.after(answer)
    assert world.sync_answer(world.send_sync(returned)).assignment
    assert world.heartbeat(leader) == ErrorCode.NONE


def test_a_restarted_leaders_join_answer_makes_it_skip_the_assignment(world: GroupWorld) -> None:
    leader, follower = static_group(world, "i1", "i2")
    answer = world.join_answer(world.send_join(Member(instance_id="i1")))
    assert answer.skip_assignment
    assert answer.leader_id == answer.member_id
    assert len(answer.members) == 2
    returned = leader.after(answer)
    before = world.describe()
    assert world.sync_answer(world.send_sync(returned, {})).assignment
    assert world.describe() == before
    assert world.heartbeat(follower) == ErrorCode.NONE


def test_a_restarted_leader_with_an_old_client_gets_its_old_id_as_the_leader_id(world: GroupWorld) -> None:
    leader, _ = static_group(world, "i1", "i2")
    request = world.send_join(Member(instance_id="i1"), can_skip_assignment=False)
    answer = world.join_answer(request)
    assert not answer.skip_assignment
    assert answer.leader_id == leader.member_id
    assert answer.members == ()


def test_the_old_member_id_is_fenced_in_every_request(world: GroupWorld) -> None:
    former, other = static_group(world, "i1", "i2")
    world.send_join(Member(instance_id="i1"))
    assert world.heartbeat(former) == ErrorCode.FENCED_INSTANCE_ID
    assert world.commit(1, former) == ErrorCode.FENCED_INSTANCE_ID
    assert world.sync_answer(world.send_sync(former)).error == ErrorCode.FENCED_INSTANCE_ID
    assert world.join_answer(world.send_join(former)).error == ErrorCode.FENCED_INSTANCE_ID
    assert world.leave((former.member_id, "i1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.heartbeat(other) == ErrorCode.NONE


def test_the_old_member_id_stays_fenced_after_a_failover(world: GroupWorld) -> None:
    former, _ = static_group(world, "i1", "i2")
    returned = former.after(world.join_answer(world.send_join(Member(instance_id="i1"))))
    world.fail_over()
    assert world.heartbeat(former) == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(returned) == ErrorCode.NONE


def test_a_waiting_request_of_the_old_member_id_is_fenced(world: GroupWorld) -> None:
    first, _ = static_group(world, "i1", "i2")
    waiting = world.send_join(first)
    again = world.send_join(Member(instance_id="i1"))
    assert world.join_answer(waiting).error == ErrorCode.FENCED_INSTANCE_ID
    assert world.is_waiting(again)


def test_a_static_member_that_restarts_with_another_protocol_starts_a_rebalance(world: GroupWorld) -> None:
    both = (("range", SUBSCRIPTION), ("sticky", SUBSCRIPTION))
    first = world.send_join(Member(instance_id="i1", protocols=both))
    world.wait(5_000)
    leader = Member(instance_id="i1", protocols=both).after(world.join_answer(first))
    world.assign([leader])
    answer = world.send_join(replace(leader, member_id="", protocols=(both[1], both[0])))
    assert world.join_answer(answer).generation == leader.generation + 1
    assert world.join_answer(answer).protocol_name == "sticky"


def test_a_static_member_that_restarts_before_the_assignment_starts_a_rebalance(world: GroupWorld) -> None:
    """The leader may be assigning partitions to the old id at that moment."""
    leader, follower = static_group(world, "i1", "i2")
    joins = [world.send_join(leader), world.send_join(follower)]
    leader = leader.after(world.join_answer(joins[0]))
    assert world.describe().state == "CompletingRebalance"
    assert world.is_waiting(world.send_join(Member(instance_id="i2")))
    assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_absent_static_member_stays_in_the_group_through_a_rebalance(world: GroupWorld) -> None:
    leader, away = static_group(world, "i1", "i2")
    world.heartbeat(away)
    rejoin = world.send_join(leader, rebalance_timeout_ms=5_000)
    newcomer = world.send_first_join(rebalance_timeout_ms=5_000)
    for _ in range(7):
        world.wait(9_000)
        world.heartbeat(away)
    assert len(world.join_answer(rejoin).members) == 3
    assert world.join_answer(newcomer).generation == leader.generation + 1


def test_an_absent_static_member_is_removed_when_its_session_expires(world: GroupWorld) -> None:
    leader, _ = static_group(world, "i1", "i2")
    world.wait(SESSION_MS - 1)
    world.heartbeat(leader)
    world.wait(1)
    assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.join_answer(world.send_join(leader)).members) == 1


def test_a_rebalance_with_only_absent_static_members_waits(world: GroupWorld) -> None:
    static_group(world, "i1", "i2")
    world.leave(("", "i1"))
    world.wait(SESSION_MS - 1)
    assert world.describe().state == "PreparingRebalance"
    world.wait(1)
    assert world.describe().state == "Empty"


def test_an_operator_removes_a_static_member_by_instance_id(world: GroupWorld) -> None:
    leader, _ = static_group(world, "i1", "i2")
    outcomes = world.leave(("", "i2"), ("", "i3"))
    assert outcomes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unknown_instance_id_is_refused(world: GroupWorld) -> None:
    (member,) = static_group(world, "i1")
    assert world.heartbeat(replace(member, instance_id="i9")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance_id", ["", "i" * 250])
def test_invalid_instance_ids_are_refused(world: GroupWorld, instance_id: str) -> None:
    answer = world.join_answer(world.send_join(Member(instance_id=instance_id)))
    assert answer.error == ErrorCode.INVALID_REQUEST


def test_an_assignment_in_another_format_is_not_claimed(world: GroupWorld) -> None:
    member = Member(instance_id="i1")
    join = world.send_join(member, protocol_type="connect")
    world.wait(1_000)
    member = member.after(world.join_answer(join))
    world.send_sync(member, {member.member_id: encode_assignment([ORDERS_0])})
    assert world.describe().state == "Stable"
    assert world.claims == []
