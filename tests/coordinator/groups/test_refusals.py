"""The log refuses records: requests are refused, and groups are restored from their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.shards.effects import RecordsRefused
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.world import SESSION_MS, GroupWorld, Member

REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(initial_rebalance_delay_ms=0), orders=4)


@contextmanager
def refusing(world: GroupWorld) -> Iterator[None]:
    """Make the log refuse all records."""
    written = len(world.log)
    world.refuse_appends = True
    yield
    world.refuse_appends = False
    assert len(world.log) == written


def test_a_commit_whose_record_is_refused_is_undone(world: GroupWorld) -> None:
    world.commit(42)
    with refusing(world):
        assert world.commit(43) == REFUSED
        assert world.commit(1, partition=1) == REFUSED
    assert world.committed() == {("orders", 0): 42}


def test_a_refused_first_commit_leaves_no_group_behind(world: GroupWorld) -> None:
    with refusing(world):
        assert world.commit(1) == REFUSED
    assert world.shard.group_ids() == []


def test_a_deletion_whose_record_is_refused_is_undone(world: GroupWorld) -> None:
    world.commit(42)
    request = world.new_request()
    with refusing(world):
        world.perform(world.shard.delete_groups(request, ["g"]))
    assert world.answer(request, RecordsRefused).error == REFUSED
    assert world.committed() == {("orders", 0): 42}
    assert world.describe().state == "Empty"


def test_an_assignment_whose_record_is_refused_is_not_answered(world: GroupWorld) -> None:
    leader, follower = world.stable_group(2)
    joins = [world.send_join(leader), world.send_join(follower)]
    renewed = [m.after(world.join_answer(j)) for m, j in zip((leader, follower), joins, strict=True)]
    waiting = world.send_sync(renewed[1])
    with refusing(world):
        sync = world.send_sync(renewed[0], {leader.member_id: b"l", follower.member_id: b"f"})
    assert world.answer(waiting, RecordsRefused).error == REFUSED
    assert world.answer(sync, RecordsRefused).error == REFUSED
    assert [world.heartbeat(member) for member in renewed] == [ErrorCode.ILLEGAL_GENERATION] * 2
    joins = [world.send_join(leader), world.send_join(follower)]
    world.assign([m.after(world.join_answer(j)) for m, j in zip((leader, follower), joins, strict=True)])


def test_refusing_a_groups_first_assignment_makes_all_members_join_again(world: GroupWorld) -> None:
    member = Member().after(world.join_empty())
    with refusing(world):
        world.send_sync(member, {member.member_id: b""})
    assert world.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.shard.group_ids() == []
    assert world.join_empty().error == ErrorCode.NONE


def test_after_a_refused_record_all_waiting_requests_of_the_group_are_answered(world: GroupWorld) -> None:
    joins = [world.send_join(Member(instance_id=name)) for name in ("i1", "i2")]
    world.wait(0)
    members = [
        Member(instance_id=name).after(world.join_answer(join))
        for name, join in zip(("i1", "i2"), joins, strict=True)
    ]
    world.assign(members)
    with refusing(world):
        returning = world.send_join(Member(instance_id="i2"))
    assert world.answer(returning, RecordsRefused).error == REFUSED
    assert [world.heartbeat(member) for member in members] == [ErrorCode.NONE] * 2


def test_a_group_restored_after_a_refusal_has_its_deadlines_again(world: GroupWorld) -> None:
    world.stable_group(2)
    with refusing(world):
        world.wait(SESSION_MS)
    assert world.describe().state == "Stable"
    world.wait(SESSION_MS)
    assert world.describe().state == "Empty"


def test_a_managed_groups_rebalance_whose_record_is_refused_is_undone(world: GroupWorld) -> None:
    generation = world.registered_group("a", "b")
    newcomer = world.send_register("c")
    first = world.send_register("a")
    with refusing(world):
        second = world.send_register("b")
    for request in (newcomer, first, second):
        assert world.answer(request, RecordsRefused).error == REFUSED
    assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE
    assert world.consumer_heartbeat("c", generation).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rewind_whose_records_are_refused_is_undone_with_its_offsets(world: GroupWorld) -> None:
    generation = world.registered_group("a", "b")
    world.commit(42, Member("a", generation))
    waiting = world.send_rewind({("orders", 0): 5, ("orders", 2): 5})
    world.send_register("a")
    with refusing(world):
        world.send_register("b")
    assert world.answer(waiting, RecordsRefused).error == REFUSED
    assert world.committed() == {("orders", 0): 42}
    assert world.commit(43, Member("a", generation)) == ErrorCode.NONE


def test_a_group_whose_creation_was_refused_does_not_exist(world: GroupWorld) -> None:
    world.commit(42)
    request = world.new_request()
    with refusing(world):
        result = world.shard.managed.create_group(
            request, "g", session_timeout_ms=SESSION_MS, topics=["orders"], now_ms=world.now_ms
        )
        world.perform(result)
    assert world.answer(request, RecordsRefused).error == REFUSED
    assert world.committed() == {("orders", 0): 42}
    assert world.join_empty().error == ErrorCode.NONE


def test_an_ephemeral_group_whose_deletion_was_refused_is_deleted_later(world: GroupWorld) -> None:
    world.create_group(ephemeral=True)
    with refusing(world):
        world.wait(SESSION_MS)
    assert world.shard.group_ids() == ["g"]
    world.wait(SESSION_MS)
    assert world.shard.group_ids() == []
