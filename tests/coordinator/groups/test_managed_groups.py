"""The client rewrite's membership protocol: every rule of its sections."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.coordinator.groups.consumer_protocol import subscribed_topics
from holdfast_log.coordinator.groups.effects import (
    DeleteAnswer,
    ManagedGroupInfo,
    ManagedListAnswer,
    PartitionErrorsAnswer,
)
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import OffsetToCommit
from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.protocol.consumer_protocol import decode_assignment
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import SESSION_MS, GroupWorld, Member


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(initial_rebalance_delay_ms=0), orders=4, returns=2)


def orders(*numbers: int, at: int = -1) -> dict[tuple[str, int], int]:
    return {("orders", number): at for number in numbers}


def grow(world: GroupWorld, **topics: int) -> None:
    """Create topics, or add partitions to them."""
    world.topics.update(topics)
    world.perform(world.shard.topics_changed(list(topics), world.now_ms))


def delete_group(world: GroupWorld, group: str = "g") -> ErrorCode:
    request = world.new_request()
    world.perform(world.shard.delete_groups(request, [group]))
    return world.answer(request, DeleteAnswer).groups[0][1]


def listed(world: GroupWorld, *groups: str) -> list[ManagedGroupInfo]:
    request = world.new_request()
    world.perform(world.shard.managed.list_groups(request, groups))
    return list(world.answer(request, ManagedListAnswer).groups)


class TestCreateGroup:
    def test_a_group_has_its_session_timeout_and_topics(self, world: GroupWorld) -> None:
        assert world.create_group(topics=["orders", "returns"]) == ErrorCode.NONE
        assert listed(world) == [ManagedGroupInfo("g", (), ("orders", "returns"), SESSION_MS, False)]

    def test_a_managed_group_survives_a_failover(self, world: GroupWorld) -> None:
        world.create_group(assignment_strategy="sticky")
        before = listed(world)
        world.fail_over()
        assert listed(world) == before

    def test_create_group_can_be_repeated(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        assert world.create_group() == ErrorCode.NONE
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE

    def test_creating_again_with_a_new_topic_adds_it_and_rebalances(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        assert world.create_group(topics=["returns"]) == ErrorCode.NONE
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert set(world.owned(world.send_register("a"))) == {
            *orders(0, 1, 2, 3),
            ("returns", 0),
            ("returns", 1),
        }

    @pytest.mark.parametrize(
        "how", [{"session_timeout_ms": 20_000}, {"ephemeral": True}, {"assignment_strategy": "sticky"}]
    )
    def test_creating_again_with_other_properties_is_refused(
        self, world: GroupWorld, how: dict[str, Any]
    ) -> None:
        world.create_group()
        assert world.create_group(**how) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize(
        ("how", "error"),
        [
            ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"session_timeout_ms": 2**40}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"topics": [""]}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"topics": ["t" * 40_000]}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"assignment_strategy": "whim"}, ErrorCode.INVALID_REQUEST),
            ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ],
    )
    def test_invalid_groups_are_refused(
        self, world: GroupWorld, how: dict[str, Any], error: ErrorCode
    ) -> None:
        assert world.create_group(**how) == error
        assert listed(world) == []

    def test_creating_a_classic_group_as_managed_is_refused(self, world: GroupWorld) -> None:
        world.stable_group(1)
        assert world.create_group() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        register = world.register_answer(world.send_register("a"))
        assert register.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.consumer_heartbeat("a", 1).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_an_offsets_only_group_becomes_managed_and_keeps_its_offsets(self, world: GroupWorld) -> None:
        world.commit(42)
        world.create_group()
        assert world.owned(world.send_register("a")) == {**orders(1, 2, 3), **orders(0, at=42)}


class TestDeleteGroup:
    def test_only_a_group_without_members_can_be_deleted(self, world: GroupWorld) -> None:
        world.registered_group("a")
        assert delete_group(world) == ErrorCode.NON_EMPTY_GROUP
        world.wait(SESSION_MS)
        assert delete_group(world) == ErrorCode.NONE
        world.fail_over()
        assert listed(world) == []

    def test_an_ephemeral_group_cannot_be_deleted(self, world: GroupWorld) -> None:
        world.create_group(ephemeral=True)
        assert delete_group(world) == ErrorCode.INVALID_REQUEST

    def test_deleting_a_group_deletes_its_offsets(self, world: GroupWorld) -> None:
        world.create_group()
        world.commit(1)
        delete_group(world)
        world.fail_over()
        assert world.committed() == {}


class TestEphemeralGroups:
    def test_an_ephemeral_group_is_deleted_when_its_last_consumer_leaves(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b", ephemeral=True)
        world.commit(5, Member("a", generation))
        world.leave(("a", None))
        assert len(listed(world)) == 1
        world.wait(SESSION_MS)
        assert listed(world) == []
        assert world.committed() == {}
        world.fail_over()
        assert listed(world) == []
        assert world.committed() == {}

    def test_an_ephemeral_group_without_consumers_is_deleted(self, world: GroupWorld) -> None:
        world.create_group(ephemeral=True)
        world.wait(SESSION_MS - 1)
        assert len(listed(world)) == 1
        world.fail_over()
        world.wait(SESSION_MS)
        assert listed(world) == []


class TestListGroups:
    def test_list_groups_returns_the_named_groups_or_all(self, world: GroupWorld) -> None:
        world.registered_group("a", "b")
        world.create_group("other")
        world.stable_group(1, "classic")
        assert [info.group_id for info in listed(world)] == ["g", "other"]
        assert [info.members for info in listed(world, "g", "nobody's")] == [("a", "b")]

    def test_kafkas_tools_see_a_managed_group_as_consumers(self, world: GroupWorld) -> None:
        world.registered_group("a")
        (member,) = world.describe().members
        assert member.member_id == "a"
        assert subscribed_topics(member.metadata) == frozenset({"orders"})
        assert decode_assignment(member.assignment) == list(orders(0, 1, 2, 3))


class TestStartUp:
    def test_requests_for_a_group_that_was_not_created_are_refused(self, world: GroupWorld) -> None:
        assert world.register_answer(world.send_register("a")).error == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.consumer_heartbeat("a", 1).error == ErrorCode.GROUP_ID_NOT_FOUND

    def test_the_first_consumer_owns_everything_at_once(self, world: GroupWorld) -> None:
        """If there are no previous offsets for the consumer group, -1 is returned."""
        world.create_group()
        register = world.send_register("a")
        assert world.owned(register) == orders(0, 1, 2, 3)
        assert world.register_answer(register).generation == 1

    def test_consumers_get_the_offsets_to_restart_from(self, world: GroupWorld) -> None:
        world.create_group()
        world.commit(42, partition=2)
        assert world.owned(world.send_register("a")) == {**orders(0, 1, 3), **orders(2, at=42)}

    def test_on_a_new_consumer_all_alive_members_get_an_error_code(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.send_register("c")
        for consumer in ("a", "b"):
            answer = world.consumer_heartbeat(consumer, generation)
            assert answer.error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_the_server_waits_for_a_register_from_each_except_the_one_that_sent_the_first(
        self, world: GroupWorld
    ) -> None:
        world.registered_group("a", "b")
        newcomer = world.send_register("c")
        first = world.send_register("a")
        assert world.is_waiting(newcomer)
        assert world.is_waiting(first)
        second = world.send_register("b")
        shares = [world.owned(request) for request in (first, second, newcomer)]
        assert [len(share) for share in shares] == [2, 1, 1]
        assert set().union(*shares) == set(orders(0, 1, 2, 3))
        assert len({world.register_answer(r).generation for r in (first, second, newcomer)}) == 1

    def test_consumers_may_commit_before_they_register(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        newcomer = world.send_register("b")
        assert world.commit(7, Member("a", generation)) == ErrorCode.NONE
        rejoin = world.send_register("a")
        assert {**world.owned(newcomer), **world.owned(rejoin)}[("orders", 0)] == 7

    def test_heartbeats_with_the_current_generation_keep_a_consumer_in_the_group(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a")
        for _ in range(5):
            world.wait(SESSION_MS - 1)
            answer = world.consumer_heartbeat("a", generation)
            assert (answer.error, answer.controller_generation) == (ErrorCode.NONE, generation)

    def test_a_generation_that_is_not_the_groups_gets_an_error_code(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        for stale in (generation - 1, generation + 1, -1):
            assert world.consumer_heartbeat("a", stale).error == ErrorCode.ILLEGAL_GENERATION
            assert world.commit(1, Member("a", stale)) == ErrorCode.ILLEGAL_GENERATION

    def test_an_unknown_consumer_gets_an_error_code(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        assert world.consumer_heartbeat("z", generation).error == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.commit(1, Member("z", generation)) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_consumer_without_an_id_is_refused(self, world: GroupWorld) -> None:
        world.create_group()
        assert world.register_answer(world.send_register("")).error == ErrorCode.INVALID_REQUEST

    def test_a_consumer_beyond_the_maximum_group_size_is_refused(self) -> None:
        world = GroupWorld(GroupSettings(max_size=1), orders=4)
        generation = world.registered_group("a")
        assert world.register_answer(world.send_register("b")).error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE


class TestDepartures:
    def test_a_silent_consumers_partitions_go_to_the_others(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.wait(SESSION_MS - 1)
        world.consumer_heartbeat("a", generation)
        world.wait(1)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert set(world.owned(world.send_register("a"))) == set(orders(0, 1, 2, 3))
        assert world.consumer_heartbeat("b", generation).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_group_does_not_wait_for_a_consumer_that_leaves(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        assert world.leave(("b", None), ("z", None)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_consumer_that_does_not_register_in_time_is_removed(self, world: GroupWorld) -> None:
        """Heartbeats do not extend the one session timeout that it has to stop, commit and register."""
        generation = world.registered_group("a")
        newcomer = world.send_register("b")
        for _ in range(10):
            world.consumer_heartbeat("a", generation)
            world.wait(SESSION_MS // 10)
        assert set(world.owned(newcomer)) == set(orders(0, 1, 2, 3))
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_waiting_consumers_keep_their_session(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        newcomer = world.send_register("b")
        world.wait(SESSION_MS - 1)
        world.consumer_heartbeat("a", generation)
        world.wait(SESSION_MS - 1)
        register = world.send_register("a")
        assert len(world.owned(newcomer)) == len(world.owned(register)) == 2

    def test_a_consumer_may_request_a_shorter_session_but_not_a_longer_one(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.consumer_heartbeat("a", generation, session_timeout_ms=7_000)
        world.consumer_heartbeat("b", generation, session_timeout_ms=70_000)
        world.wait(7_000)
        assert listed(world)[0].members == ("b",)
        world.wait(SESSION_MS - 7_000)
        assert listed(world)[0].members == ()

    def test_a_restarted_consumer_keeps_its_partitions_and_fences_its_former_process(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        register = world.send_register("a")
        assert len(world.owned(register)) == 2
        assert world.register_answer(register).generation == generation + 1
        assert world.commit(1, Member("a", generation)) == ErrorCode.ILLEGAL_GENERATION
        neighbour = world.consumer_heartbeat("b", generation)
        assert (neighbour.error, neighbour.controller_generation) == (ErrorCode.NONE, generation + 1)

    def test_registering_twice_answers_both_requests(self, world: GroupWorld) -> None:
        world.registered_group("a")
        first = world.send_register("b")
        second = world.send_register("b")
        assert world.register_answer(first).error == ErrorCode.REBALANCE_IN_PROGRESS
        world.send_register("a")
        assert len(world.owned(second)) == 2


class TestNewTopicsAndPartitions:
    def test_new_partitions_give_all_alive_members_an_error_code(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        grow(world, orders=5)
        for consumer in ("a", "b"):
            answer = world.consumer_heartbeat(consumer, generation)
            assert answer.error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_for_newly_added_partitions_the_offset_is_set_to_smallest(self, world: GroupWorld) -> None:
        world.registered_group("a")
        grow(world, orders=6)
        assert world.owned(world.send_register("a")) == {**orders(0, 1, 2, 3), **orders(4, 5, at=0)}

    def test_for_a_newly_created_topic_the_offset_is_set_to_smallest(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", topics=["orders", "later"])
        grow(world, later=1)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.owned(world.send_register("a")) == {**orders(0, 1, 2, 3), ("later", 0): 0}

    def test_new_partitions_start_at_the_smallest_offset_even_if_their_first_owner_dies(
        self, world: GroupWorld
    ) -> None:
        world.registered_group("a")
        grow(world, orders=5)
        world.send_register("a")
        world.wait(SESSION_MS)
        assert world.owned(world.send_register("b"))[("orders", 4)] == 0

    def test_new_partitions_start_at_the_smallest_offset_after_a_failover_of_an_empty_group(
        self, world: GroupWorld
    ) -> None:
        world.registered_group("a")
        world.wait(SESSION_MS)
        world.topics["orders"] = 5
        world.fail_over()
        assert world.owned(world.send_register("b"))[("orders", 4)] == 0

    def test_a_new_coordinator_starts_a_rebalance_for_changed_topics_at_once(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        world.topics["orders"] = 5
        world.fail_over()
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_changes_of_other_topics_do_not_affect_a_group(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        grow(world, returns=9)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE

    def test_a_topic_that_was_deleted_and_created_again_is_new(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        world.commit(42, Member("a", generation))
        del world.topics["orders"]
        world.perform(world.shard.topics_deleted(["orders"], world.now_ms))
        assert world.owned(world.send_register("a")) == {}
        world.fail_over()
        grow(world, orders=2)
        assert world.owned(world.send_register("a")) == orders(0, 1, at=0)


class TestRewind:
    """The section "Offset Rewind"."""

    def test_the_controller_sends_an_error_code_to_the_owners_of_the_rewound_partitions_only(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        rewind = world.send_rewind(orders(0, at=5))
        assert world.is_waiting(rewind)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.consumer_heartbeat("b", generation).error == ErrorCode.NONE

    def test_when_they_have_registered_it_records_the_offsets_and_sends_them(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.commit(42, Member("a", generation))
        rewind = world.send_rewind(orders(0, at=5))
        assert world.committed() == orders(0, at=42)
        register = world.send_register("a")
        assert world.owned(register) == {**orders(0, at=5), **orders(1)}
        assert world.rewound(rewind) == {("orders", 0): (5, ErrorCode.NONE)}
        assert world.committed() == orders(0, at=5)

    def test_a_commit_from_before_the_rewind_cannot_undo_it(self, world: GroupWorld) -> None:
        """The client rewrite asks: does setting the offset collide with the active consumer's commits?"""
        generation = world.registered_group("a")
        world.send_rewind(orders(0, at=5))
        assert world.commit(42, Member("a", generation)) == ErrorCode.NONE
        register = world.send_register("a")
        assert world.commit(43, Member("a", generation)) == ErrorCode.ILLEGAL_GENERATION
        assert world.committed() == orders(0, at=5)
        raised = world.register_answer(register).generation
        assert world.commit(6, Member("a", raised)) == ErrorCode.NONE

    def test_members_without_rewound_partitions_keep_their_generation(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.send_rewind(orders(0, at=5))
        world.send_register("a")
        answer = world.consumer_heartbeat("b", generation)
        assert (answer.error, answer.controller_generation) == (ErrorCode.NONE, generation + 1)
        assert world.commit(9, Member("b", generation), partition=2) == ErrorCode.NONE
        assert world.commit(10, Member("b", generation + 1), partition=2) == ErrorCode.NONE

    def test_a_consumer_that_rewinds_its_own_partition_gets_its_answer_at_once(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        rewind = world.send_rewind(orders(0, at=5), "a", generation)
        assert world.rewound(rewind) == {("orders", 0): (5, ErrorCode.NONE)}
        assert world.answers[rewind].generation == generation + 1
        assert world.consumer_heartbeat("a", generation + 1).error == ErrorCode.NONE

    def test_a_consumer_that_rewinds_anothers_partition_waits_without_losing_its_session(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        rewind = world.send_rewind(orders(2, at=5), "a", generation)
        world.wait(SESSION_MS - 1)
        assert world.consumer_heartbeat("b", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        world.wait(SESSION_MS - 1)
        assert world.owned(world.send_register("b")) == {**orders(2, at=5), **orders(3)}
        assert world.rewound(rewind) == {("orders", 2): (5, ErrorCode.NONE)}
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE

    def test_two_consumers_that_rewind_each_others_partitions_do_not_wait_for_each_other(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        by_a = world.send_rewind(orders(2, at=5), "a", generation)
        by_b = world.send_rewind(orders(0, at=6), "b", generation)
        both = {("orders", 2): (5, ErrorCode.NONE), ("orders", 0): (6, ErrorCode.NONE)}
        assert world.rewound(by_a) == both
        assert world.rewound(by_b) == both
        assert world.committed() == {**orders(2, at=5), **orders(0, at=6)}

    def test_a_rewind_of_two_owners_partitions_waits_for_both(self, world: GroupWorld) -> None:
        world.registered_group("a", "b")
        rewind = world.send_rewind(orders(0, 2, at=5))
        first = world.send_register("a")
        assert world.is_waiting(first)
        assert world.is_waiting(rewind)
        world.send_register("b")
        assert world.owned(first)[("orders", 0)] == 5
        assert not world.is_waiting(rewind)

    def test_a_rewind_of_a_group_without_members_is_committed_at_once(self, world: GroupWorld) -> None:
        world.create_group()
        world.send_rewind(orders(0, at=5))
        world.fail_over()
        assert world.owned(world.send_register("a")) == {**orders(0, at=5), **orders(1, 2, 3)}

    def test_the_death_of_an_owner_during_a_rewind_rebalances_the_whole_group(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a", "b")
        rewind = world.send_rewind(orders(0, at=5))
        world.wait(SESSION_MS - 1)
        world.consumer_heartbeat("b", generation)
        world.wait(1)
        assert world.consumer_heartbeat("b", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.owned(world.send_register("b")) == {**orders(0, at=5), **orders(1, 2, 3)}
        assert world.rewound(rewind) == {("orders", 0): (5, ErrorCode.NONE)}

    def test_a_rebalance_makes_a_rewinding_consumer_register_first(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        rewind = world.send_rewind(orders(2, at=5), "a", generation)
        newcomer = world.send_register("c")
        assert world.rewound(rewind) == {("orders", 2): (-1, ErrorCode.REBALANCE_IN_PROGRESS)}
        again = world.send_rewind(orders(2, at=5), "a", generation)
        assert world.rewound(again) == {("orders", 2): (-1, ErrorCode.REBALANCE_IN_PROGRESS)}
        world.send_register("a")
        world.send_register("b")
        assert not world.is_waiting(newcomer)
        assert world.committed() == {}

    @pytest.mark.parametrize(
        ("partition", "offset", "error"),
        [
            (("orders", 4), 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("orders", -1), 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("returns", 0), 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("orders", 1), -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ],
    )
    def test_partitions_that_cannot_be_rewound_do_not_block_the_others(
        self, world: GroupWorld, partition: tuple[str, int], offset: int, error: ErrorCode
    ) -> None:
        world.create_group()
        rewind = world.send_rewind({partition: offset, ("orders", 0): 7})
        assert world.rewound(rewind) == {("orders", 0): (7, ErrorCode.NONE), partition: (-1, error)}
        assert world.committed() == orders(0, at=7)

    def test_a_rewind_by_an_unknown_member_or_generation_is_refused(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        for consumer, number, error in (
            ("z", generation, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a", generation - 1, ErrorCode.ILLEGAL_GENERATION),
        ):
            rewind = world.send_rewind(orders(0, at=5), consumer, number)
            assert world.rewound(rewind) == {("orders", 0): (-1, error)}
        assert world.committed() == {}

    def test_a_rewind_of_an_unknown_group_is_refused(self, world: GroupWorld) -> None:
        rewind = world.send_rewind(orders(0, at=5))
        assert world.rewound(rewind) == {("orders", 0): (-1, ErrorCode.GROUP_ID_NOT_FOUND)}


class TestOpenTransactions:
    """Nobody begins at an offset that an open transaction may replace (KIP-447)."""

    def commit_in_transaction(self, world: GroupWorld, offset: int) -> ErrorCode:
        request = world.new_request()
        offsets = [OffsetToCommit(TopicPartition("orders", 0), offset)]
        stamp = ProducerStamp(7, 0)
        world.perform(world.shard.commit_offsets(request, "g", offsets, now_ms=world.now_ms, stamp=stamp))
        ((_, error),) = world.answer(request, PartitionErrorsAnswer).partitions
        return error

    def end(self, world: GroupWorld, *, is_commit: bool = True) -> None:
        world.perform(world.shard.transaction_ended(7, is_commit=is_commit, now_ms=world.now_ms))

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_a_rebalance_waits_for_the_end_of_a_transaction_with_offsets(
        self, world: GroupWorld, is_commit: bool
    ) -> None:
        generation = world.registered_group("a")
        world.commit(3, Member("a", generation))
        assert self.commit_in_transaction(world, 8) == ErrorCode.NONE
        newcomer, other = world.send_register("b"), world.send_register("a")
        world.wait(3 * SESSION_MS)
        assert world.is_waiting(newcomer)
        assert world.is_waiting(other)
        self.end(world, is_commit=is_commit)
        owned = {**world.owned(newcomer), **world.owned(other)}
        assert owned == {**orders(1, 2, 3), **orders(0, at=8 if is_commit else 3)}

    def test_a_consumer_that_registers_again_waits_for_what_its_former_process_has_open(
        self, world: GroupWorld
    ) -> None:
        world.registered_group("a")
        self.commit_in_transaction(world, 8)
        again = world.send_register("a")
        assert world.is_waiting(again)
        self.end(world)
        assert world.owned(again)["orders", 0] == 8

    def test_an_offset_that_counts_instead_ends_the_wait(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        self.commit_in_transaction(world, 8)
        newcomer = world.send_register("b")
        assert world.commit(9, Member("a", generation)) == ErrorCode.NONE
        other = world.send_register("a")
        assert {**world.owned(newcomer), **world.owned(other)}["orders", 0] == 9

    def test_members_of_a_stable_group_go_on(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        self.commit_in_transaction(world, 8)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE
        self.end(world)
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.NONE

    def test_a_group_that_its_last_member_leaves_does_not_wait(self, world: GroupWorld) -> None:
        world.registered_group("a")
        self.commit_in_transaction(world, 8)
        world.leave(("a", None))
        assert listed(world)[0].members == ()
        self.end(world)
        assert world.owned(world.send_register("b"))["orders", 0] == 8


class TestFailover:
    def test_members_and_generation_survive_a_failover(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.fail_over()
        for consumer in ("a", "b"):
            assert world.consumer_heartbeat(consumer, generation).error == ErrorCode.NONE
        world.wait(SESSION_MS)
        assert world.register_answer(world.send_register("c")).generation > generation

    def test_a_rewind_raises_the_generation_for_the_next_coordinator_too(self, world: GroupWorld) -> None:
        generation = world.registered_group("a", "b")
        world.send_rewind(orders(0, at=5), "a", generation)
        world.fail_over()
        assert world.commit(42, Member("a", generation)) == ErrorCode.ILLEGAL_GENERATION
        assert world.commit(42, Member("b", generation), partition=2) == ErrorCode.NONE

    def test_a_consumer_that_was_waiting_during_a_failover_is_unknown(self, world: GroupWorld) -> None:
        generation = world.registered_group("a")
        world.send_register("b")
        world.create_group(topics=["returns"])  # writes the group while "b" waits
        world.fail_over()
        assert listed(world)[0].members == ("a",)
        assert world.consumer_heartbeat("b", generation).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_topic_added_in_an_interrupted_rebalance_is_assigned_after_the_failover(
        self, world: GroupWorld
    ) -> None:
        generation = world.registered_group("a")
        world.create_group(topics=["returns"])
        world.fail_over()
        assert world.consumer_heartbeat("a", generation).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert ("returns", 1) in world.owned(world.send_register("a"))
