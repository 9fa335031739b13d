"""Managed groups with single readers: claims at partition leaders, and permission to commit."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.groups.effects import NOBODY, GroupReader, ReaderClaim
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import SESSION_MS, GroupWorld, Member


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(orders=2)


def reader(member_id: str) -> GroupReader:
    return GroupReader(member_id, "c", "/127.0.0.1")


def orders(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def claimed(world: GroupWorld) -> dict[TopicPartition, tuple[str, int]]:
    """The current reader and generation of each partition."""
    return {claim.partition: (claim.reader.member_id, claim.generation) for claim in world.claims}


class TestClaims:
    def test_a_group_without_single_readers_makes_no_claims(self, world: GroupWorld) -> None:
        world.registered_group("a", "b")
        assert world.claims == []

    def test_each_members_partitions_are_claimed_in_every_generation(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b", single_reader=True)
        assert world.claims[:2] == [
            ReaderClaim("g", reader("a"), 1, orders(0)),
            ReaderClaim("g", reader("a"), 1, orders(1)),
        ]
        assert claimed(world) == {orders(0): ("a", generation), orders(1): ("b", generation)}

    def test_the_answer_to_a_registration_requires_single_readers_to_attach(self, world: GroupWorld) -> None:
        world.create_group(single_reader=True)
        assert world.register_answer(world.send_register("a")).single_reader

    def test_a_removed_members_partitions_are_claimed_for_the_others(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b", single_reader=True)
        for _ in range(3):
            world.wait(SESSION_MS // 2)
            world.consumer_heartbeat("a", generation)
        after = world.register_answer(world.send_register("a")).generation
        assert claimed(world) == {orders(0): ("a", after), orders(1): ("a", after)}

    def test_a_restarted_member_claims_only_its_own_partitions(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b", single_reader=True)
        world.claims.clear()
        world.send_register("a")
        assert world.claims == [ReaderClaim("g", reader("a"), generation + 1, orders(0))]

    def test_a_rewind_claims_for_the_owners_of_rewound_partitions(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b", single_reader=True)
        world.claims.clear()
        world.send_rewind({("orders", 1): 5})
        world.send_register("b")
        assert world.claims == [ReaderClaim("g", reader("b"), generation + 1, orders(1))]

    def test_when_the_last_member_has_left_no_member_may_read(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", single_reader=True)
        world.claims.clear()
        world.leave(("a", None))
        assert world.claims == [
            ReaderClaim("g", NOBODY, generation + 1, orders(number)) for number in range(2)
        ]

    def test_the_next_coordinator_of_an_empty_group_clears_the_readers_again(self, world: GroupWorld) -> None:
        world.registered_group("a", single_reader=True)
        world.leave(("a", None))
        world.claims.clear()
        world.fail_over()
        assert {claim.reader for claim in world.claims} == {NOBODY}

    def test_the_next_coordinator_claims_again_for_the_same_members(self, world: GroupWorld) -> None:
        world.registered_group("a", "b", single_reader=True)
        before = claimed(world)
        world.claims.clear()
        world.fail_over()
        assert claimed(world) == before

    def test_an_assignment_whose_record_is_refused_is_not_claimed(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", single_reader=True)
        world.refuse_appends = True
        world.send_register("a")
        assert {claim.generation for claim in world.claims} == {generation}


class TestTheGroup:
    def test_single_reader_cannot_be_changed_after_creation(self, world: GroupWorld) -> None:
        world.create_group(single_reader=True)
        assert world.create_group(single_reader=True) == ErrorCode.NONE
        assert world.create_group() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        world.fail_over()
        assert world.create_group(single_reader=True) == ErrorCode.NONE


@pytest.mark.parametrize("single_reader", [False, True])
class TestCommits:
    def test_a_member_commits_only_its_own_partitions(self, world: GroupWorld, single_reader: bool) -> None:
        generation = world.registered_group("a", "b", single_reader=single_reader)
        a = Member("a", generation)
        assert world.commit(5, a, partition=0) == ErrorCode.NONE
        assert world.commit(5, a, partition=1) == ErrorCode.ILLEGAL_GENERATION
        assert world.committed() == {orders(0): 5}

    def test_any_member_commits_partitions_that_are_not_assigned(
        self, world: GroupWorld, single_reader: bool
    ) -> None:
        generation = world.registered_group("a", "b", single_reader=single_reader)
        assert world.commit(5, Member("a", generation), topic="prices") == ErrorCode.NONE

    def test_a_member_whose_session_has_expired_cannot_commit(
        self, world: GroupWorld, single_reader: bool
    ) -> None:
        generation = world.registered_group("a", single_reader=single_reader)
        world.wait(SESSION_MS + 1)
        assert world.commit(5, Member("a", generation)) == ErrorCode.UNKNOWN_MEMBER_ID
        world.send_register("b")
        assert world.commit(5, Member("a", generation)) == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.committed() == {}
