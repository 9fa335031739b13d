"""Scenarios of consumer groups (KIP-848): members, reconciliation, epochs, static ones, topics, offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.consumer_assignment import IdPartition
from holdfast_log.coordinator.groups.effects import DeleteAnswer, OffsetsAnswer
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.consumers import NOTHING, ConsumerMember, group_of, settle, told
from tests.coordinator.groups.world import REBALANCE_MS, GroupWorld, Member

CONFIG = GroupSettings()
SESSION_MS = CONFIG.consumer_session_timeout_ms


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(CONFIG, orders=4)


class TestMembers:
    def test_the_first_member_gets_everything_at_once(self, world: GroupWorld) -> None:
        member = ConsumerMember(world)
        assert member.join() is ErrorCode.NONE
        assert (member.epoch, member.numbers) == (1, [0, 1, 2, 3])
        assert told(world).state == "Stable"

    def test_a_partition_moves_only_after_its_reader_has_given_it_up(self, world: GroupWorld) -> None:
        (first,) = group_of(world, "a")
        second = ConsumerMember(world, "b")
        second.join()
        assert second.numbers == []
        assert told(world).state == "Reconciling"
        answer = first.send()
        assert answer.assignment is not None
        assert len(answer.assignment) == 2
        second.beat()
        assert second.numbers == []  # the first has been told, and has not said that it has stopped
        first.owned = frozenset(IdPartition(*each) for each in answer.assignment)
        first.beat()
        second.beat()
        assert sorted(first.numbers + second.numbers) == [0, 1, 2, 3]
        assert told(world).state == "Stable"

    def test_a_heartbeat_that_changes_nothing_writes_nothing(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        written = len(world.log)
        assert member.send().assignment is None
        assert len(world.log) == written

    def test_the_coordinator_names_members_of_version_0(self, world: GroupWorld) -> None:
        member = ConsumerMember(world, "")
        assert member.join() is ErrorCode.NONE
        assert member.member_id == "1"

    def test_a_member_that_leaves_frees_its_partitions(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        assert first.leave() is ErrorCode.NONE
        settle(second)
        assert second.numbers == [0, 1, 2, 3]
        assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_silent_member_is_removed_with_its_session(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        world.wait(SESSION_MS - 1)
        second.beat()
        world.wait(1)
        assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
        settle(second)
        assert second.numbers == [0, 1, 2, 3]

    def test_a_member_that_does_not_give_up_its_partitions_is_removed(self, world: GroupWorld) -> None:
        (first,) = group_of(world, "a")
        second = ConsumerMember(world, "b")
        second.join()
        had = first.owned
        for _ in range(REBALANCE_MS // 20_000):
            assert first.send(owned=had).error is ErrorCode.NONE
            second.beat()
            world.wait(20_000)
        assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
        settle(second)
        assert second.numbers == [0, 1, 2, 3]

    def test_a_group_has_a_maximum_size(self) -> None:
        world = GroupWorld(replace(CONFIG, consumer_max_size=2), orders=4)
        first, _ = group_of(world, "a", "b")
        assert ConsumerMember(world, "c").join() is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert first.beat() is ErrorCode.NONE

    def test_subscriptions_have_a_maximum_size(self) -> None:
        world = GroupWorld(replace(CONFIG, subscription_bytes_max=2_000), orders=4)
        topics = tuple(f"{n:0100}" for n in range(20))
        member = ConsumerMember(world, topics=topics)
        assert member.join() is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.shard.group_ids() == []
        assert member.join(topics=("orders",)) is ErrorCode.NONE
        assert member.beat(topics=topics) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert member.beat() is ErrorCode.NONE

    def test_a_group_and_all_groups_have_a_maximum_of_bytes(self) -> None:
        for limit in ({"group_bytes_max": 2_500}, {"all_groups_bytes_max": 2_500}):
            world = GroupWorld(replace(CONFIG, **limit), orders=4)
            errors = [ConsumerMember(world, f"m{n}").join() for n in range(9)]
            assert errors[0] is ErrorCode.NONE
            assert errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED


class TestEpochs:
    def test_a_member_with_a_wrong_epoch_is_fenced(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        assert member.send(epoch=member.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert member.beat() is ErrorCode.NONE

    def test_a_member_whose_answer_was_lost_comes_with_its_previous_epoch(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        had, epoch = second.owned, second.epoch
        first.leave()
        second.send()  # its answer is lost
        answer = second.send(epoch=epoch, owned=had)
        assert answer.error is ErrorCode.NONE
        assert answer.assignment is not None
        assert len(answer.assignment) == 4
        assert second.send(
            epoch=epoch, owned=frozenset([IdPartition(world.topic_id("orders"), 9)])
        ).error is (ErrorCode.FENCED_MEMBER_EPOCH)
        assert second.send(epoch=epoch, owned=None).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert second.send(epoch=epoch - 1, owned=NOTHING).error is ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_joins_again_under_its_id(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        assert first.join() is ErrorCode.NONE
        settle(first, second)
        assert sorted(first.numbers + second.numbers) == [0, 1, 2, 3]

    def test_offsets_are_committed_in_the_members_epoch(self, world: GroupWorld) -> None:
        first, _ = group_of(world, "a", "b")
        assert world.commit(5, Member("a", first.epoch)) is ErrorCode.NONE
        assert world.commit(6, Member("a", first.epoch - 1)) is ErrorCode.STALE_MEMBER_EPOCH
        assert world.commit(6, Member("x", first.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.commit(6) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.committed() == {("orders", 0): 5}

    def test_tools_commit_for_a_group_without_members(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        member.leave()
        assert world.commit(7) is ErrorCode.NONE

    @pytest.mark.parametrize(
        ("member_id", "epoch_added", "error"),
        [
            (None, -100, ErrorCode.NONE),
            ("a", 0, ErrorCode.NONE),
            ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("x", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_offsets_are_fetched_in_the_members_epoch(
        self, world: GroupWorld, member_id: str | None, epoch_added: int, error: ErrorCode
    ) -> None:
        (member,) = group_of(world, "a")
        request = world.new_request()
        epoch = member.epoch + epoch_added
        world.perform(world.shard.fetch_offsets(request, "g", None, member_id=member_id, epoch=epoch))
        assert world.answer(request, OffsetsAnswer).error is error


class TestStaticMembers:
    def test_a_member_that_leaves_for_now_gets_its_partitions_back(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a")[0], ConsumerMember(world, "b", instance_id="two")
        second.join()
        settle(first, second)
        had, epoch = second.numbers, told(world).epoch
        assert second.leave(-2) is ErrorCode.NONE
        settle(first)
        assert second.numbers == had
        again = ConsumerMember(world, "b2", instance_id="two")
        assert again.join() is ErrorCode.NONE
        assert again.numbers == had
        assert told(world).epoch == epoch
        assert second.beat() is ErrorCode.FENCED_INSTANCE_ID

    def test_it_may_come_back_under_its_id(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a", instance_id="one")
        member.leave(-2)
        assert member.beat() is ErrorCode.FENCED_MEMBER_EPOCH
        assert member.join() is ErrorCode.NONE
        assert member.numbers == [0, 1, 2, 3]

    def test_an_instance_id_is_used_once_at_a_time(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a", instance_id="one")
        other = ConsumerMember(world, "b", instance_id="one")
        assert other.join() is ErrorCode.UNRELEASED_INSTANCE_ID
        assert member.beat() is ErrorCode.NONE
        world.wait(SESSION_MS)
        assert other.join() is ErrorCode.NONE

    def test_one_that_does_not_come_back_is_removed_with_its_session(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a")[0], ConsumerMember(world, "b", instance_id="two")
        second.join()
        settle(first, second)
        second.leave(-2)
        for _ in range(4):
            world.wait(SESSION_MS // 3)
            first.beat()
        assert first.numbers == [0, 1, 2, 3]

    def test_only_static_members_leave_for_now(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        assert member.leave(-2) is ErrorCode.INVALID_REQUEST
        assert member.send(epoch=-2, instance_id="one").error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_administrators_remove_members_by_either_id(self, world: GroupWorld) -> None:
        group_of(world, "a", instance_id="one")
        assert world.leave(("x", "one"), ("", "two"), ("z", None)) == [
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert world.leave(("", "one")) == [ErrorCode.NONE]
        assert told(world).state == "Empty"


class TestTopics:
    def test_new_partitions_are_assigned(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        world.topics["orders"] = 6
        world.perform(world.shard.topics_changed(["orders"], world.now_ms))
        settle(first, second)
        assert sorted(first.numbers + second.numbers) == [0, 1, 2, 3, 4, 5]

    def test_a_topic_may_be_created_later(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a", topics=("later", "orders"))
        world.topics["later"] = 2
        world.perform(world.shard.topics_changed(["later"], world.now_ms))
        settle(member)
        assert len(member.owned) == 6

    def test_a_topic_that_is_created_again_is_another_one(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        had = member.owned
        world.incarnations["orders"] = 2
        world.perform(world.shard.topics_deleted(["orders"], world.now_ms))
        world.perform(world.shard.topics_changed(["orders"], world.now_ms))
        settle(member)
        assert member.numbers == [0, 1, 2, 3]
        assert had.isdisjoint(member.owned)

    def test_a_change_of_topics_while_there_was_no_coordinator_is_seen(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        world.topics["orders"] = 5
        world.fail_over()
        settle(member)
        assert member.numbers == [0, 1, 2, 3, 4]

    def test_a_new_subscription_is_followed(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        world.topics["prices"] = 2
        member.beat(topics=("prices",))
        settle(member)
        assert {topic_id for topic_id, _ in member.owned} == {world.topic_id("prices")}

    def test_offsets_of_topics_in_use_are_not_deleted(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        world.commit(5, Member("a", member.epoch))
        request = world.new_request()
        world.perform(world.shard.delete_offsets(request, "g", [*world.committed()]))
        assert [error for _, error in world.answers[request].partitions] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        ]
        world.now_ms += CONFIG.offsets_retention_ms * 2
        world.perform(world.shard.expire_offsets("g", world.now_ms))
        assert world.committed() == {("orders", 0): 5}


class TestTheLog:
    def test_a_new_coordinator_continues(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        third = ConsumerMember(world, "c", instance_id="three", rack_id="r", assignor="range")
        third.join()
        first.beat()
        before = told(world)
        world.fail_over()
        assert told(world) == before
        settle(first, second, third)
        assert sorted(first.numbers + second.numbers + third.numbers) == [0, 1, 2, 3]

    def test_a_new_coordinator_removes_members_that_are_gone(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        world.fail_over()
        world.wait(SESSION_MS - 1)
        second.beat()
        world.wait(1)
        settle(second)
        assert second.numbers == [0, 1, 2, 3]
        assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_refused_record_is_as_if_the_heartbeat_had_not_come(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        before = told(world)
        world.refuse_appends = True
        assert ConsumerMember(world, "c").join() is ErrorCode.NOT_ENOUGH_REPLICAS
        assert second.leave() is ErrorCode.NOT_ENOUGH_REPLICAS
        world.refuse_appends = False
        assert told(world) == before
        settle(first, second)

    def test_deleting_a_group_leaves_only_tombstones(self, world: GroupWorld) -> None:
        first, second = group_of(world, "a", "b")
        world.commit(5, Member("a", first.epoch))
        request = world.new_request()
        world.perform(world.shard.delete_groups(request, ["g"]))
        assert world.answer(request, DeleteAnswer).groups == [("g", ErrorCode.NON_EMPTY_GROUP)]
        first.leave()
        second.leave()
        request = world.new_request()
        world.perform(world.shard.delete_groups(request, ["g"]))
        assert world.answer(request, DeleteAnswer).groups == [("g", ErrorCode.NONE)]
        assert set(dict(world.log).values()) == {None}
        world.fail_over()
        assert world.shard.group_ids() == []

    def test_an_empty_group_ends_with_its_offsets(self, world: GroupWorld) -> None:
        (member,) = group_of(world, "a")
        world.commit(5, Member("a", member.epoch))
        member.leave()
        world.now_ms += CONFIG.offsets_retention_ms - 1
        world.perform(world.shard.expire_offsets("g", world.now_ms))
        assert world.committed() != {}
        world.now_ms += 1
        world.perform(world.shard.expire_offsets("g", world.now_ms))
        assert world.shard.group_ids() == []
        assert set(dict(world.log).values()) == {None}


def test_a_group_is_described_and_listed_for_tools_of_the_classic_protocol(world: GroupWorld) -> None:
    group_of(world, "a", "b")
    described = world.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == (
        "Stable",
        "consumer",
        "uniform",
    )
    assert [member.member_id for member in described.members] == ["a", "b"]
    assert all(member.assignment for member in described.members)
    request = world.new_request()
    world.perform(world.shard.list_groups(request, ["stable"], ["Consumer"]))
    (listed,) = world.answers[request].groups
    assert (listed.group_id, listed.protocol_type, listed.state, listed.type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "beat", "beat", "beat", "lose", "leave", "away", "crash", "fail over", "refuse"]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps=STEPS)
def test_whatever_happens_no_partition_has_two_readers_and_in_the_end_each_has_one(
    steps: list[tuple[str, int]],
) -> None:
    """Members join, answer, lose answers, leave and die; coordinators change, and the log refuses records."""
    world = GroupWorld(CONFIG, orders=5)
    members = [ConsumerMember(world, f"m{n}", instance_id="static" if n == 3 else None) for n in range(4)]

    def check() -> None:
        readers = Counter(partition for member in members for partition in member.owned)
        assert max(readers.values(), default=0) <= 1

    alive: set[int] = set()
    for step, n in steps:
        member = members[n]
        if step == "join":
            if n in alive:
                member.owned = NOTHING
            if member.join() is ErrorCode.NONE:
                alive.add(n)
        elif step == "beat" and n in alive:
            if member.beat() not in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH):
                alive.discard(n)
                member.owned = NOTHING
        elif step == "lose" and n in alive:
            member.lose()
        elif step in ("leave", "away") and n in alive:
            member.owned = NOTHING
            if step == "leave" or n == 3:
                member.leave(-1 if step == "leave" else -2)
                alive.discard(n)
        elif step == "crash":
            member.owned = NOTHING
            alive.discard(n)
        elif step == "fail over":
            world.fail_over()
        elif step == "refuse" and n in alive:
            world.refuse_appends = True
            member.send()
            world.refuse_appends = False
        check()
    for n in alive:
        assert members[n].join() is ErrorCode.NONE
    remaining = [members[n] for n in sorted(alive)]
    for _ in range(4):
        world.wait(SESSION_MS // 3)
        for member in remaining:
            member.beat()
        check()
    if remaining:
        settle(*remaining, check=check)
        assert sorted(number for member in remaining for number in member.numbers) == [0, 1, 2, 3, 4]
