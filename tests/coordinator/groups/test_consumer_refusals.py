"""What consumer groups (KIP-848) take and refuse: regular expressions, bad requests, other protocols."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from holdfast_log.coordinator.groups.consumer_assignment import IdPartition
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.consumers import NOTHING, ConsumerMember, group_of, settle, told
from tests.coordinator.groups.world import GroupWorld, Member


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(GroupSettings(), orders=4)


class TestRegularExpressions:
    @pytest.fixture(autouse=True)
    def re2(self) -> None:
        pytest.importorskip("re2", reason="google-re2 is not installed")

    def member(self, world: GroupWorld, regex: str, name: str = "m") -> ConsumerMember:
        return ConsumerMember(world, name, topics=None, regex=regex)  # type: ignore[arg-type]

    def test_all_topics_whose_whole_names_match_are_read(self, world: GroupWorld) -> None:
        world.topics |= {"orders-new": 2, "my-orders": 1, "__consumer_offsets": 1}
        member = self.member(world, "orders.*|__.*")
        assert member.join() is ErrorCode.NONE
        assert Counter(topic_id for topic_id, _ in member.owned) == {
            world.topic_id("orders"): 4,
            world.topic_id("orders-new"): 2,
        }

    def test_new_topics_are_found_at_the_next_heartbeat(self, world: GroupWorld) -> None:
        member = self.member(world, "orders.*")
        member.join()
        world.topics["orders-new"] = 2
        world.perform(world.shard.topics_changed(["orders-new"], world.now_ms))
        settle(member)
        assert len(member.owned) == 6

    def test_topics_that_the_client_may_not_see_are_left_out(self, world: GroupWorld) -> None:
        world.topics["orders-secret"] = 2
        member = self.member(world, "orders.*")
        member.join(may_see=lambda topic: topic == "orders")
        assert member.numbers == [0, 1, 2, 3]
        assert len(member.owned) == 4

    @pytest.mark.parametrize("regex", ["(", "a(?=b)", "(a)\\1", "a{9999}"])
    def test_what_re2_does_not_take_is_refused(self, world: GroupWorld, regex: str) -> None:
        assert self.member(world, regex).join() is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert world.shard.group_ids() == []

    def test_a_new_coordinator_does_not_take_partitions_away(self, world: GroupWorld) -> None:
        world.topics["orders-new"] = 2
        first, second = self.member(world, "orders.*", "a"), self.member(world, "orders.*", "b")
        first.join()
        second.join()
        settle(first, second)
        had, epoch = (first.owned, second.owned), told(world).epoch
        world.fail_over()
        settle(first, second)
        assert ((first.owned, second.owned), told(world).epoch) == (had, epoch)


def test_without_re2_expressions_are_refused(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    member = ConsumerMember(world, topics=None, regex="unheard of.*")  # type: ignore[arg-type]
    request = member.send(**member.fields)
    assert request.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "holdfast-log[regex]" in (request.message or "")  # type: ignore[union-attr]


class TestBadRequests:
    @pytest.mark.parametrize(
        "fields",
        [
            {"member_id": "", "names_itself": True},
            {"rebalance_timeout_ms": -1},
            {"owned": None},
            {"owned": frozenset([IdPartition(UUID(int=1), 0)])},
            {"topics": None},
            {"instance_id": ""},
            {"instance_id": "x" * 250},
            {"rack_id": ""},
            {"epoch": -3},
            {"epoch": -2},
            {"epoch": -1, "member_id": ""},
            {"epoch": 5, "member_id": ""},
            {"topics": ("x" * 40_000,)},
            {"member_id": "x" * 40_000},
        ],
        ids=str,
    )
    def test_a_request_that_makes_no_sense_is_refused(
        self, world: GroupWorld, fields: dict[str, Any]
    ) -> None:
        member = ConsumerMember(world)
        answer = member.send(**{**member.fields, "owned": NOTHING, **fields})
        assert answer.error is ErrorCode.INVALID_REQUEST
        assert (world.log, world.shard.group_ids()) == ([], [])

    def test_an_unknown_assignor_is_refused(self, world: GroupWorld) -> None:
        assert ConsumerMember(world, assignor="mine").join() is ErrorCode.UNSUPPORTED_ASSIGNOR

    def test_a_group_has_an_id(self, world: GroupWorld) -> None:
        member = ConsumerMember(world)
        for group in ("", "x" * 40_000):
            member.group = group
            assert member.join() is ErrorCode.INVALID_REQUEST

    def test_a_member_of_a_missing_group_joins_again(self, world: GroupWorld) -> None:
        member = ConsumerMember(world)
        assert member.send(epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert member.send(epoch=-1).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert told(world).error is ErrorCode.GROUP_ID_NOT_FOUND


class TestOtherProtocols:
    def test_managed_groups_are_refused(self, world: GroupWorld) -> None:
        assert world.create_group("managed") is ErrorCode.NONE
        member = ConsumerMember(world)
        member.group = "managed"
        assert member.join() is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_consumer_group_with_members_becomes_no_managed_group(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        assert world.create_group() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert member.beat() is ErrorCode.NONE

    @pytest.mark.parametrize("fails_over", [False, True])
    def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(
        self, world: GroupWorld, fails_over: bool
    ) -> None:
        def step() -> None:
            if fails_over:
                world.fail_over()

        (classic,) = world.stable_group(1)
        world.commit(5, classic)
        world.leave((classic.member_id, None))
        step()
        (member,) = group_of(world, "a")
        step()
        assert world.commit(6, Member("a", member.epoch)) is ErrorCode.NONE
        member.leave()
        step()
        (classic,) = world.stable_group(1)
        step()
        assert world.heartbeat(classic) is ErrorCode.NONE
        assert world.committed() == {("orders", 0): 6}
        assert told(world).error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_refused_change_of_protocol_is_undone(self, world: GroupWorld) -> None:
        (classic,) = world.stable_group(1)
        world.leave((classic.member_id, None))
        world.refuse_appends = True
        assert ConsumerMember(world).join() is ErrorCode.NOT_ENOUGH_REPLICAS
        world.refuse_appends = False
        assert world.shard.groups()[0].type.value == "classic"
        (member,) = group_of(world, "a")
        member.leave()
        world.refuse_appends = True
        world.send_first_join()
        world.refuse_appends = False
        assert told(world).error is ErrorCode.NONE
