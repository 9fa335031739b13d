"""Committed offsets: permission to commit, retention, and the requests of tools."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from holdfast_log.coordinator.groups.effects import (
    DeleteAnswer,
    FetchedOffset,
    OffsetsAnswer,
    PartitionErrorsAnswer,
)
from holdfast_log.coordinator.groups.offsets import GROUP_BYTES, OFFSET_BYTES, GroupOffsets, OffsetMemory
from holdfast_log.coordinator.groups.records import CommittedOffset
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import OffsetToCommit
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
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


SMALL = GroupSettings(
    group_offsets_bytes_max=GROUP_BYTES + 1 + 3 * (OFFSET_BYTES + 100),
    all_offsets_bytes_max=4 * (GROUP_BYTES + 2 + OFFSET_BYTES + 100),
)
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


class TestMemory:
    """The bytes of committed offsets with their metadata: bounded for a group, and for all together."""

    def commits(self, world: GroupWorld, group: str, partition: int, metadata: int = 100) -> bool:
        error = world.commit(1, group=group, partition=partition, metadata="m" * metadata)
        assert error in (ErrorCode.NONE, TOO_LARGE)
        return error is ErrorCode.NONE

    def test_the_offsets_of_a_group_have_a_limit_together(self) -> None:
        world = GroupWorld(SMALL, orders=8)
        assert [self.commits(world, "g", partition) for partition in range(4)] == [True] * 3 + [False]
        assert len(world.committed()) == 3

    def test_all_groups_have_a_limit_together(self) -> None:
        world = GroupWorld(SMALL, orders=8)
        assert [self.commits(world, f"g{number}", 0) for number in range(5)] == [True] * 4 + [False]

    def test_an_offset_that_takes_no_more_memory_is_always_accepted(self) -> None:
        world = GroupWorld(SMALL, orders=8)
        assert [self.commits(world, "g", partition) for partition in range(4)] == [True] * 3 + [False]
        assert self.commits(world, "g", 0)
        assert not self.commits(world, "g", 0, metadata=101)
        assert self.commits(world, "g", 0, metadata=0)
        assert self.commits(world, "g", 1, metadata=200)

    def test_deleted_offsets_free_their_memory(self) -> None:
        world = GroupWorld(SMALL, orders=8)
        for partition in range(3):
            assert self.commits(world, "g", partition)
        delete_offsets(world, ("orders", 0))
        assert self.commits(world, "g", 3)

    def test_offsets_that_are_read_from_the_log_count(self) -> None:
        world = GroupWorld(SMALL, orders=8)
        for partition in range(3):
            assert self.commits(world, "g", partition)
        world.fail_over()
        assert not self.commits(world, "g", 3)

    @pytest.mark.parametrize(("groups", "offsets"), [(1_000, 1), (10, 300)])
    def test_what_is_counted_is_what_they_take(self, groups: int, offsets: int) -> None:
        """Names and topics come from requests: each has strings of its own."""
        world = GroupWorld(GroupSettings(), orders=offsets)
        tracemalloc.start()
        try:
            for number in range(groups):
                for partition in range(offsets):
                    world.shard.commit_offsets(
                        0,
                        f"group-{number}",
                        [OffsetToCommit(TopicPartition("".join(["ord", "ers"]), partition), 1_000 + number)],
                        now_ms=1_700_000_000_000 + number,
                    )
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        counted = world.shard._store.offset_memory.bytes
        assert 0.6 * counted < taken < 1.25 * counted, taken / counted

    def test_a_shard_that_is_closed_frees_the_memory_of_all_shards(self) -> None:
        memory = OffsetMemory()
        offsets = GroupOffsets(memory)
        offsets.restore("g", TopicPartition("orders", 0), CommittedOffset(1, -1, "m" * 50, 0, None))
        assert memory.bytes == GROUP_BYTES + 1 + OFFSET_BYTES + 50
        offsets.close()
        assert memory.bytes == 0
        offsets.restore("g", TopicPartition("orders", 0), None)
        assert memory.bytes == 0


class TestCommitting:
    def test_a_member_commits_for_its_generation(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert world.commit(42, member) == ErrorCode.NONE
        assert world.committed() == {ORDERS: 42}

    def test_a_caller_without_generation_commits_to_a_group_without_members(self, world: GroupWorld) -> None:
        assert world.commit(42) == ErrorCode.NONE
        assert world.committed() == {ORDERS: 42}
        assert world.describe().state == "Empty"

    def test_a_caller_without_generation_cannot_commit_while_the_group_has_members(
        self, world: GroupWorld
    ) -> None:
        world.stable_group(1)
        assert world.commit(42) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_commit_with_a_generation_to_an_unknown_group_is_refused(self, world: GroupWorld) -> None:
        assert world.commit(1, Member("m", 3)) == ErrorCode.ILLEGAL_GENERATION

    def test_a_commit_with_a_stale_generation_is_refused(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert world.commit(1, replace(member, generation=0)) == ErrorCode.ILLEGAL_GENERATION
        assert world.committed() == {}

    def test_members_may_commit_during_the_join_phase(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.send_first_join()
        assert world.commit(42, member) == ErrorCode.NONE

    def test_members_may_not_commit_between_join_and_assignment(self, world: GroupWorld) -> None:
        member = Member().after(world.join_empty())
        assert world.commit(42, member) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_metadata_may_not_exceed_its_limit_in_bytes(self, world: GroupWorld) -> None:
        assert world.commit(1, metadata="x" * 4096) == ErrorCode.NONE
        assert world.commit(2, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.commit(2, metadata="ü" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert world.committed() == {ORDERS: 1}

    def test_a_refused_commit_creates_no_group(self, world: GroupWorld) -> None:
        world.commit(1, metadata="x" * 5000)
        assert world.shard.group_ids() == []

    def test_a_group_id_too_long_for_a_record_is_refused(self, world: GroupWorld) -> None:
        assert world.commit(1, group="g" * 40_000) == ErrorCode.INVALID_GROUP_ID


class TestFetching:
    def test_fetch_returns_all_fields_and_minus_one_without_a_commit(self, world: GroupWorld) -> None:
        world.commit(42, metadata="note")
        request = world.new_request()
        wanted = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        world.perform(world.shard.fetch_offsets(request, "g", wanted))
        assert world.answer(request, OffsetsAnswer).offsets == [
            FetchedOffset(wanted[0], 42, -1, "note"),
            FetchedOffset(wanted[1], -1, -1, ""),
        ]

    def test_an_unknown_group_has_no_offsets(self, world: GroupWorld) -> None:
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

    def test_offsets_of_an_offsets_only_group_expire_after_their_commit(self, world: GroupWorld) -> None:
        world.commit(1, partition=0)
        world.wait(RETENTION_MS // 2)
        world.commit(1, partition=1)
        world.wait(RETENTION_MS // 2)
        expire(world)
        assert world.committed() == {("orders", 1): 1}
        world.wait(RETENTION_MS // 2)
        expire(world)
        assert world.shard.group_ids() == []

    def test_offsets_of_subscribed_topics_do_not_expire(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        world.commit(1, member, topic="formerly")
        for _ in range(20):
            world.wait(RETENTION_MS // 20)
            world.heartbeat(member)
        expire(world)
        assert world.committed() == {ORDERS: 1}

    def test_offsets_of_an_empty_group_expire_after_its_last_member_left(self, world: GroupWorld) -> None:
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

    def test_a_group_is_deleted_with_its_last_offset_also_after_a_failover(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.leave((member.member_id, None))
        expire(world)
        world.fail_over()
        assert world.shard.group_ids() == []

    def test_a_commit_may_set_its_own_retention(self, world: GroupWorld) -> None:
        world.commit(1, retention_ms=1_000)
        world.fail_over()
        world.wait(999)
        expire(world)
        assert world.committed() == {ORDERS: 1}
        world.wait(1)
        expire(world)
        assert world.committed() == {}

    def test_nothing_expires_during_a_rebalance(self, world: GroupWorld) -> None:
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
    def test_any_offset_of_an_empty_group_can_be_deleted(self, world: GroupWorld) -> None:
        world.commit(1, partition=0)
        world.commit(1, partition=1)
        answer = delete_offsets(world, ("orders", 0), ("orders", 7))
        assert answer.partitions == [
            (TopicPartition("orders", 0), ErrorCode.NONE),
            (TopicPartition("orders", 7), ErrorCode.NONE),
        ]
        assert world.committed() == {("orders", 1): 1}

    def test_only_offsets_of_unsubscribed_topics_can_be_deleted_from_a_consumer_group(
        self, world: GroupWorld
    ) -> None:
        (member,) = world.stable_group(1)
        world.commit(1, member)
        world.commit(1, member, topic="formerly")
        answer = delete_offsets(world, ORDERS, ("formerly", 0))
        assert [error for _, error in answer.partitions] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.NONE,
        ]
        assert world.committed() == {ORDERS: 1}

    def test_no_offset_of_another_protocol_type_can_be_deleted_while_it_has_members(
        self, world: GroupWorld
    ) -> None:
        world.stable_group(1, protocol_type="connect")
        assert delete_offsets(world, ORDERS).error == ErrorCode.NON_EMPTY_GROUP

    def test_deleting_offsets_of_an_unknown_group_is_refused(self, world: GroupWorld) -> None:
        assert delete_offsets(world, ORDERS).error == ErrorCode.GROUP_ID_NOT_FOUND

    def test_deleting_a_topic_deletes_its_offsets(self, world: GroupWorld) -> None:
        world.commit(1)
        world.commit(1, group="other", topic="returns")
        world.perform(world.shard.topics_deleted(["orders"], world.now_ms))
        world.fail_over()
        assert world.committed() == {}
        assert world.committed("other") == {("returns", 0): 1}
        assert world.shard.group_ids() == ["other"]


class TestDeletingGroups:
    def test_an_empty_group_is_deleted_with_its_offsets(self, world: GroupWorld) -> None:
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

    def test_a_group_with_members_is_not_deleted(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        assert delete_groups(world, "g") == [("g", ErrorCode.NON_EMPTY_GROUP)]
        assert world.heartbeat(member) == ErrorCode.NONE

    def test_pending_member_ids_are_invalid_after_the_group_is_deleted(self, world: GroupWorld) -> None:
        required = world.join_answer(world.send_join(Member()))
        assert delete_groups(world, "g") == [("g", ErrorCode.NONE)]
        answer = world.join_answer(world.send_join(Member(required.member_id)))
        assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


class TestLooking:
    def listed(self, world: GroupWorld, *args: list[str]) -> list[tuple[str, str, str, str]]:
        request = world.new_request()
        world.perform(world.shard.list_groups(request, *args))
        return [(g.group_id, g.protocol_type, g.state, g.type) for g in world.answers[request].groups]

    def test_groups_are_listed_by_state_and_type(self, world: GroupWorld) -> None:
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

    def test_a_filter_that_is_longer_than_any_state_or_type_is_not_copied(self, world: GroupWorld) -> None:
        class Long(str):
            def lower(self) -> str:
                raise AssertionError("each shard would copy megabytes")

        world.stable_group(1, "busy")
        assert self.listed(world, [Long("x" * 30_000)]) == []
        assert self.listed(world, [], [Long("x" * 30_000)]) == []
        assert len(self.listed(world, [Long("x" * 30_000), "stable"])) == 1

    def test_a_group_is_described_with_its_members_assignments(self, world: GroupWorld) -> None:
        members = world.stable_group(2)
        answer = world.describe()
        assert (answer.state, answer.protocol_type, answer.protocol_name) == ("Stable", "consumer", "range")
        assert [m.member_id for m in answer.members] == [m.member_id for m in members]
        assert all(m.metadata and m.assignment for m in answer.members)

    def test_during_a_rebalance_members_are_described_without_subscriptions_and_assignments(
        self, world: GroupWorld
    ) -> None:
        world.stable_group(1)
        world.send_first_join()
        answer = world.describe()
        assert (answer.state, answer.protocol_name) == ("PreparingRebalance", "")
        assert [(m.metadata, m.assignment) for m in answer.members] == [(b"", b"")] * 2

    def test_an_unknown_group_is_described_as_dead(self, world: GroupWorld) -> None:
        assert world.describe("nobody's").state == "Dead"
