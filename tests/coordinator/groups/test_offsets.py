"""Committed offsets: who may commit, what is kept, for how long, and what tools may do with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.groups.effects import DeleteAnswer, FetchedOffset, OffsetsAnswer, PartitionErrorsAnswer
from coordinator.groups.settings import GroupSettings
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import GroupWorld, Member

RETENTION_MS = 100_000
CONFIG = GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS)
ORDERS = ("orders", 0)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(CONFIG, orders=8)


def expire(world: GroupWorld, group: str = "g") -> None:
    world.perform(world.shard.expire_offsets(group, world.now_ms))


def delete_groups(world: GroupWorld, *groups: str) -> list[tuple[str, ErrorCode]]:
    request = world.new_request()
    world.perform(world.shard.delete_groups(request, groups))
    return list(world.answer(request, DeleteAnswer).groups)


def delete_offsets(world: GroupWorld, *partitions: tuple[str, int]) -> PartitionErrorsAnswer:
    request = world.new_request()
    wanted = [TopicPartition(*partition) for partition in partitions]
    world.perform(world.shard.delete_offsets(request, "g", wanted))
    return world.answer(request, PartitionErrorsAnswer)


class TestCommitting:
    def test_a_member_commits_for_its_generation(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert world.commit(42, member) == ErrorCode.NONE
        assert world.committed() == {ORDERS: 42}

    def test_one_who_uses_the_group_for_offsets_only(self, world: GroupWorld) -> None:
        assert world.commit(42) == ErrorCode.NONE
        assert world.committed() == {ORDERS: 42}
        assert world.describe().state == "Empty"

    def test_but_not_while_the_group_has_members(self, world: GroupWorld) -> None:
        world.stable_group(1)
        assert world.commit(42) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_generation_in_a_group_that_is_not_there(self, world: GroupWorld) -> None:
        assert world.commit(1, Member("m", 3)) == ErrorCode.ILLEGAL_GENERATION

    def test_a_stale_generation(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert world.commit(1, replace(member, generation=0)) == ErrorCode.ILLEGAL_GENERATION
        assert world.committed() == {}

    def test_members_commit_before_they_join_anew(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.send_first_join()
        assert world.commit(42, member) == ErrorCode.NONE

    def test_but_not_after(self, world: GroupWorld) -> None:
        member = Member().after(world.join_empty())
        assert world.commit(42, member) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_metadata_may_not_exceed_its_limit_in_bytes(self, world: GroupWorld) -> None:
        assert world.commit(1, metadata="x" * 4096) == ErrorCode.NONE
        assert world.commit(2, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.commit(2, metadata="ü" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.committed() == {ORDERS: 1}

    def test_a_commit_that_is_refused_makes_no_group(self, world: GroupWorld) -> None:
        world.commit(1, metadata="x" * 5000)
        assert world.shard.group_ids() == []

    def test_a_name_that_no_record_can_hold(self, world: GroupWorld) -> None:
        assert world.commit(1, group="g" * 40_000) == ErrorCode.INVALID_GROUP_ID


class TestFetching:
    def test_all_fields_come_back_and_minus_one_where_there_is_nothing(self, world: GroupWorld) -> None:
        world.commit(42, metadata="note")
        request = world.new_request()
        wanted = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        world.perform(world.shard.fetch_offsets(request, "g", wanted))
        assert world.answer(request, OffsetsAnswer).offsets == [
            FetchedOffset(wanted[0], 42, -1, "note"),
            FetchedOffset(wanted[1], -1, -1, ""),
        ]

    def test_a_group_nobody_knows_has_no_offsets(self, world: GroupWorld) -> None:
        assert world.committed("nobody's") == {}

    def test_offsets_survive_a_failover(self, world: GroupWorld) -> None:
        world.commit(42, metadata="note")
        world.commit(7, group="other", partition=3)
        world.commit(43)
        world.fail_over()
        assert world.committed() == {ORDERS: 43}
        assert world.committed("other") == {("orders", 3): 7}


class TestExpiry:
    """KIP-211."""

    def test_offsets_only_count_from_their_commit(self, world: GroupWorld) -> None:
        world.commit(1, partition=0)
        world.wait(RETENTION_MS // 2)
        world.commit(1, partition=1)
        world.wait(RETENTION_MS // 2)
        expire(world)
        assert world.committed() == {("orders", 1): 1}
        world.wait(RETENTION_MS // 2)
        expire(world)
        assert world.shard.group_ids() == []

    def test_of_a_group_with_members_what_they_read_does_not_expire(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        world.commit(1, member, topic="formerly")
        for _ in range(20):
            world.wait(RETENTION_MS // 20)
            world.heartbeat(member)
        expire(world)
        assert world.committed() == {ORDERS: 1}

    def test_of_an_empty_group_it_counts_from_the_last_members_departure(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        for _ in range(20):
            world.wait(RETENTION_MS // 20)
            world.heartbeat(member)
        world.leave((member.member_id, None))
        world.wait(RETENTION_MS - 1)
        expire(world)
        assert world.committed() == {ORDERS: 1}
        world.fail_over()
        world.wait(1)
        expire(world)
        assert world.committed() == {}
        assert world.shard.group_ids() == []

    def test_the_group_goes_with_its_last_offset_for_the_next_coordinator_too(
        self, world: GroupWorld
    ) -> None:
        (member,) = world.stable_group(1)
        world.leave((member.member_id, None))
        expire(world)
        world.fail_over()
        assert world.shard.group_ids() == []

    def test_a_commit_may_name_its_own_retention(self, world: GroupWorld) -> None:
        world.commit(1, retention_ms=1_000)
        world.fail_over()
        world.wait(999)
        expire(world)
        assert world.committed() == {ORDERS: 1}
        world.wait(1)
        expire(world)
        assert world.committed() == {}

    def test_nothing_expires_in_the_middle_of_a_round(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member, topic="formerly")
        world.send_first_join()
        world.now_ms += RETENTION_MS
        expire(world)
        assert world.committed() == {("formerly", 0): 1}

    def test_the_topics_of_a_managed_group_do_not_expire(self, world: GroupWorld) -> None:
        world.create_group()
        world.commit(1)
        world.commit(1, topic="formerly")
        world.wait(RETENTION_MS)
        expire(world)
        assert world.committed() == {ORDERS: 1}
        assert world.shard.group_ids() == ["g"]


class TestDeletingOffsets:
    def test_of_an_empty_group(self, world: GroupWorld) -> None:
        world.commit(1, partition=0)
        world.commit(1, partition=1)
        answer = delete_offsets(world, ("orders", 0), ("orders", 7))
        assert answer.partitions == [
            (TopicPartition("orders", 0), ErrorCode.NONE),
            (TopicPartition("orders", 7), ErrorCode.NONE),
        ]
        assert world.committed() == {("orders", 1): 1}

    def test_of_consumers_only_what_none_of_them_reads(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        world.commit(1, member, topic="formerly")
        answer = delete_offsets(world, ORDERS, ("formerly", 0))
        assert [error for _, error in answer.partitions] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
        ]
        assert world.committed() == {ORDERS: 1}

    def test_of_others_nothing_while_they_are_there(self, world: GroupWorld) -> None:
        world.stable_group(1, protocol_type="connect")
        assert delete_offsets(world, ORDERS).error == ErrorCode.NON_EMPTY_GROUP

    def test_of_a_group_nobody_knows(self, world: GroupWorld) -> None:
        assert delete_offsets(world, ORDERS).error == ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_deleted_topic_takes_its_offsets_along(self, world: GroupWorld) -> None:
        world.commit(1)
        world.commit(1, group="other", topic="returns")
        world.perform(world.shard.topics_deleted(["orders"], world.now_ms))
        world.fail_over()
        assert world.committed() == {}
        assert world.committed("other") == {("returns", 0): 1}
        assert world.shard.group_ids() == ["other"]


class TestDeletingGroups:
    def test_an_empty_group_goes_with_its_offsets(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        world.leave((member.member_id, None))
        assert delete_groups(world, "g", "nobody's") == [
            ("g", ErrorCode.NONE),
            ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        world.fail_over()
        assert world.shard.group_ids() == []
        assert world.committed() == {}

    def test_one_with_members_stays(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert delete_groups(world, "g") == [("g", ErrorCode.NON_EMPTY_GROUP)]
        assert world.heartbeat(member) == ErrorCode.NONE

    def test_ids_given_out_are_void_afterwards(self, world: GroupWorld) -> None:
        required = world.join_answer(world.send_join(Member()))
        assert delete_groups(world, "g") == [("g", ErrorCode.NONE)]
        answer = world.join_answer(world.send_join(Member(required.member_id)))
        assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


class TestLooking:
    def listed(self, world: GroupWorld, *args: list[str]) -> list[tuple[str, str, str, str]]:
        request = world.new_request()
        world.perform(world.shard.list_groups(request, *args))
        return [(g.group_id, g.protocol_type, g.state, g.type) for g in world.answers[request].groups]

    def test_lists_by_state_and_type(self, world: GroupWorld) -> None:
        world.stable_group(1, "busy")
        world.commit(1, group="offsets")
        world.create_group("ours")
        busy = ("busy", "consumer", "Stable", "classic")
        offsets = ("offsets", "", "Empty", "classic")
        ours = ("ours", "consumer", "Empty", "managed")
        assert self.listed(world) == [busy, offsets, ours]
        assert self.listed(world, ["stable"]) == [busy]
        assert self.listed(world, ["Empty", "Dead"], ["Classic"]) == [offsets]
        assert self.listed(world, [], ["managed"]) == [ours]
        assert self.listed(world, ["Unheard of"]) == []

    def test_describes_members_with_what_they_have(self, world: GroupWorld) -> None:
        members = world.stable_group(2)
        answer = world.describe()
        assert (answer.state, answer.protocol_type, answer.protocol_name) == ("Stable", "consumer", "range")
        assert [m.member_id for m in answer.members] == [m.member_id for m in members]
        assert all(m.metadata and m.assignment for m in answer.members)

    def test_between_generations_there_is_nothing_to_show_but_who_is_there(self, world: GroupWorld) -> None:
        world.stable_group(1)
        world.send_first_join()
        answer = world.describe()
        assert (answer.state, answer.protocol_name) == ("PreparingRebalance", "")
        assert [(m.metadata, m.assignment) for m in answer.members] == [(b"", b"")] * 2

    def test_a_group_that_is_not_there_is_dead(self, world: GroupWorld) -> None:
        assert world.describe("nobody's").state == "Dead"
