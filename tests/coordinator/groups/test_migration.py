"""Classic groups that become consumer groups while their members read, and back (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.settings import GroupSettings, MigrationPolicy
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.classic_consumers import PARTITIONS, SILENCE_MS, ClassicConsumer
from tests.coordinator.groups.consumers import NOTHING, ConsumerMember, group_of, told
from tests.coordinator.groups.world import SESSION_MS, GroupWorld, Member

CONFIG = GroupSettings(initial_rebalance_delay_ms=0)
ALL = list(range(PARTITIONS))
AnyMember: TypeAlias = ClassicConsumer | ConsumerMember


@pytest.fixture
def world() -> GroupWorld:
    return new_world()


def new_world(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **changes: int) -> GroupWorld:
    return GroupWorld(replace(CONFIG, consumer_migration_policy=policy, **changes), orders=PARTITIONS)


def rounds(world: GroupWorld, *members: AnyMember, count: int = 30) -> None:
    """All members take steps; whatever they do, no partition has two readers."""
    for _ in range(count):
        for member in members:
            step(member)
            no_partition_has_two_readers(members)
        world.wait(100)


def step(member: AnyMember) -> None:
    if isinstance(member, ClassicConsumer):
        member.step()
    elif member.epoch == 0:
        member.join()
    elif member.beat() is not ErrorCode.NONE:
        member.epoch, member.owned = 0, NOTHING


def no_partition_has_two_readers(members: Sequence[AnyMember]) -> None:
    readers = Counter(number for member in members for number in member.numbers)
    assert max(readers.values(), default=0) <= 1, [member.numbers for member in members]


def every_partition_is_read_by(*members: AnyMember) -> None:
    assert sorted(number for member in members for number in member.numbers) == ALL
    assert all(member.numbers for member in members)


def type_of(world: GroupWorld) -> str:
    (group,) = world.shard.groups()
    return group.type.value


def classic_group(world: GroupWorld, count: int = 2, **how: bool) -> list[ClassicConsumer]:
    members = [ClassicConsumer(world, **how) for _ in range(count)]
    rounds(world, *members)
    every_partition_is_read_by(*members)
    assert type_of(world) == "classic"
    return members


@pytest.mark.parametrize("is_cooperative", [False, True])
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_classic_group_becomes_a_consumer_group_and_back(
    world: GroupWorld, is_cooperative: bool, fails_over: bool
) -> None:
    old = classic_group(world, is_cooperative=is_cooperative)
    new = [ConsumerMember(world, name) for name in ("a", "b")]

    def fail_over() -> None:
        if fails_over:
            world.fail_over()
            for member in old:
                member.reconnect()

    assert new[0].join() is ErrorCode.NONE
    assert type_of(world) == "consumer"
    fail_over()
    rounds(world, *old, new[0])
    every_partition_is_read_by(*old, new[0])
    fail_over()
    for left, joined in zip(old, new, strict=True):
        left.leave()
        rounds(world, *[each for each in old if each is not left and each.numbers], *new[: new.index(joined)])
        step(joined)
        old = [each for each in old if each is not left]
        rounds(world, *old, *new[: new.index(joined) + 1])
    every_partition_is_read_by(*new)
    assert told(world).state == "Stable"
    fail_over()
    back = [ClassicConsumer(world, is_cooperative=is_cooperative) for _ in range(2)]
    rounds(world, *new, *back)
    every_partition_is_read_by(*new, *back)
    new[0].leave()
    rounds(world, new[1], *back)
    assert type_of(world) == "consumer"
    new[1].leave()
    assert type_of(world) == "classic"
    old = back
    fail_over()
    rounds(world, *back)
    every_partition_is_read_by(*back)
    every_commit_has_held(back)


def every_commit_has_held(members: Sequence[ClassicConsumer]) -> None:
    """No classic member has lost its partitions, and what it committed as it gave them up was stored."""
    for member in members:
        assert member.losses == []
        assert set(member.commits) <= {ErrorCode.NONE}


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_nobody_loses_what_it_has_read_in_a_migration(world: GroupWorld, is_cooperative: bool) -> None:
    old = classic_group(world, is_cooperative=is_cooperative)
    new = ConsumerMember(world, "a")
    rounds(world, *old, new)
    new.leave()
    rounds(world, *old)
    every_partition_is_read_by(*old)
    every_commit_has_held(old)


def test_a_partition_moves_only_after_its_classic_reader_has_given_it_up(world: GroupWorld) -> None:
    old = classic_group(world, is_cooperative=True)
    had = [list(member.numbers) for member in old]
    new = ConsumerMember(world, "a")
    new.join()
    new.beat()
    assert new.numbers == []
    assert [member.numbers for member in old] == had


def test_members_keep_the_partitions_of_their_target(world: GroupWorld) -> None:
    old = classic_group(world, is_cooperative=True)
    had = {number for member in old for number in member.numbers}
    new = ConsumerMember(world, "a")
    new.join()
    for _ in range(20):
        for member in old:
            member.step()
            assert member.numbers
        new.beat()
    assert len(had.difference(*(member.numbers for member in old))) == 1


# What happens to a group, by its state and the policy: whether the newcomer may join
UPGRADES = [
    (policy, state, state is GroupState.EMPTY or policy.allows_upgrade)
    for policy in MigrationPolicy
    for state in list(GroupState)[:4]
]


@pytest.mark.parametrize(("policy", "state", "is_admitted"), UPGRADES)
def test_the_policy_says_whether_a_classic_group_is_upgraded(
    policy: MigrationPolicy, state: GroupState, is_admitted: bool
) -> None:
    world = new_world(policy)
    leader, follower = world.stable_group(2)
    waiting: list[int] = []
    if state is GroupState.EMPTY:
        world.leave((leader.member_id, None), (follower.member_id, None))
    elif state is not GroupState.STABLE:
        waiting.append(world.send_join(leader))
    if state is GroupState.COMPLETING_REBALANCE:
        follower = follower.after(world.join_answer(world.send_join(follower)))
        waiting = [world.send_sync(follower)]
    assert world.shard.groups()[0].state is state
    new = ConsumerMember(world, "a")
    assert new.join() is (ErrorCode.NONE if is_admitted else ErrorCode.GROUP_ID_NOT_FOUND)
    assert type_of(world) == ("consumer" if is_admitted else "classic")
    if is_admitted:
        assert [world.answers[each].error for each in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS] * len(
            waiting
        )
        assert len(told(world).members) == (1 if state is GroupState.EMPTY else 3)
    else:
        assert all(map(world.is_waiting, waiting))
        assert world.heartbeat(follower) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("policy", MigrationPolicy)
@pytest.mark.parametrize("how", ["leaves", "is removed", "dies"])
def test_the_policy_says_whether_a_consumer_group_is_downgraded(policy: MigrationPolicy, how: str) -> None:
    world = new_world(policy)
    new = ConsumerMember(world, "a")
    new.join()
    old = [ClassicConsumer(world) for _ in range(2)]
    rounds(world, new, *old)
    every_partition_is_read_by(new, *old)
    match how:
        case "leaves":
            assert new.leave() is ErrorCode.NONE
        case "is removed":
            assert world.leave(("a", None)) == [ErrorCode.NONE]
        case "dies":
            new.owned = NOTHING
            for _ in range(10):
                rounds(world, *old, count=50)
    assert type_of(world) == ("classic" if policy.allows_downgrade else "consumer")
    rounds(world, *old)
    every_partition_is_read_by(*old)
    every_commit_has_held(old)


class TestUpgrades:
    def test_a_group_of_another_protocol_type_is_not_upgraded(self, world: GroupWorld) -> None:
        world.stable_group(1, protocol_type="connect")
        assert ConsumerMember(world).join() is ErrorCode.GROUP_ID_NOT_FOUND

    @pytest.mark.parametrize("data", [b"", b"\x00\x01\xff", b"\xff\xff"])
    def test_a_group_whose_subscriptions_cannot_be_read_is_not_upgraded(
        self, world: GroupWorld, data: bytes
    ) -> None:
        world.join_empty(Member(protocols=(("range", data),)))
        answer = ConsumerMember(world).send(**ConsumerMember(world).fields, owned=NOTHING)
        assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "subscription" in (answer.message or "")  # type: ignore[union-attr]
        assert type_of(world) == "classic"

    def test_a_group_that_is_too_large_is_not_upgraded(self) -> None:
        world = new_world(consumer_max_size=1)
        old = classic_group(world)
        assert ConsumerMember(world).join() is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.heartbeat(old[0].member) is ErrorCode.NONE

    def test_a_member_that_is_refused_changes_nothing(self) -> None:
        world = new_world(consumer_max_size=2)
        old = classic_group(world)
        assert ConsumerMember(world).join() is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert type_of(world) == "classic"
        rounds(world, *old)
        every_commit_has_held(old)
        world.wait(SILENCE_MS)
        assert world.heartbeat(old[0].member) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_refused_upgrade_is_undone(self, world: GroupWorld) -> None:
        old = classic_group(world)
        world.refuse_appends = True
        assert ConsumerMember(world).join() is ErrorCode.NOT_ENOUGH_REPLICAS
        world.refuse_appends = False
        assert type_of(world) == "classic"
        assert [world.heartbeat(each.member) for each in old] == [ErrorCode.NONE] * 2

    def test_a_member_that_waits_for_its_first_answer_joins_the_new_group(self, world: GroupWorld) -> None:
        old = classic_group(world)
        third = ClassicConsumer(world)
        for _ in range(3):
            third.step()  # until its JoinGroup waits for the others
        new = ConsumerMember(world, "a")
        new.join()
        assert len(told(world).members) == 3
        rounds(world, *old, third, new)
        every_partition_is_read_by(*old, third, new)
        assert len(told(world).members) == 4

    def test_partitions_that_no_longer_exist_are_left_behind(self, world: GroupWorld) -> None:
        old = classic_group(world)
        world.topics["orders"] = 2
        new = ConsumerMember(world, "a")
        new.join()
        assert all(number < 2 for each in told(world).members for _, number in each.assigned)
        rounds(world, *old, new)
        assert sorted(number for each in (*old, new) for number in each.numbers) == [0, 1]

    def test_administrators_see_who_uses_which_protocol(self, world: GroupWorld) -> None:
        old = classic_group(world)
        ConsumerMember(world, "a").join()
        kinds = {member.member_id: member.is_classic for member in told(world).members}
        assert kinds == {"a": False, **{each.member.member_id: True for each in old}}

    def test_what_classic_members_say_of_themselves_survives_a_new_coordinator(
        self, world: GroupWorld
    ) -> None:
        classic_group(world)
        ConsumerMember(world, "a").join()
        before = told(world)
        (group,) = world.shard.groups()
        world.fail_over()
        (again,) = world.shard.groups()
        assert told(world) == before
        assert again.durable == group.durable


class TestClassicMembers:
    @pytest.fixture
    def group(self, world: GroupWorld) -> tuple[ClassicConsumer, ConsumerMember]:
        return self.pair(world)

    def pair(self, world: GroupWorld) -> tuple[ClassicConsumer, ConsumerMember]:
        """A classic member and one of the newer protocol, settled."""
        new = ConsumerMember(world, "a")
        old = ClassicConsumer(world)
        rounds(world, new, old)
        every_partition_is_read_by(new, old)
        return old, new

    def test_its_generation_is_its_epoch(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        member = group[0].member
        assert world.heartbeat(member) is ErrorCode.NONE
        for wrong in (replace(member, generation=member.generation + 1), replace(member, generation=-1)):
            assert world.heartbeat(wrong) is ErrorCode.ILLEGAL_GENERATION
            assert world.sync_answer(world.send_sync(wrong)).error is ErrorCode.ILLEGAL_GENERATION
            assert world.commit(1, wrong) is ErrorCode.ILLEGAL_GENERATION
        assert world.commit(1, member) is ErrorCode.NONE

    @pytest.mark.parametrize("name", ["a", "nobody"])
    def test_who_is_no_classic_member_is_unknown(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember], name: str
    ) -> None:
        stranger = Member(name, group[1].epoch)
        assert world.heartbeat(stranger) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.sync_answer(world.send_sync(stranger)).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_protocol_that_others_do_not_support_is_refused(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        data = group[0].member.protocols[0][1]
        for refused in (
            {"protocols": (("mine", data),)},
            {"protocols": ()},
            {"protocols": (("range", b"\x00"),)},
        ):
            answer = world.join_answer(world.send_join(Member(**refused)))  # type: ignore[arg-type]
            assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        answer = world.join_answer(world.send_join(Member(), protocol_type="connect"))
        assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize(
        "named", [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}], ids=["type", "name"]
    )
    def test_a_sync_names_the_protocol_of_its_join(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember], named: dict[str, str]
    ) -> None:
        answer = world.sync_answer(world.send_sync(group[0].member, **named))
        assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_sync_is_told_of_a_change_since_its_join(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        ConsumerMember(world, "b").join()
        answer = world.sync_answer(world.send_sync(group[0].member))
        assert answer.error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_silent_member_is_removed_with_its_own_session(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        old, new = group
        old.numbers = []
        world.heartbeat(old.member)
        world.wait(SESSION_MS - 1)
        assert len(told(world).members) == 2
        world.wait(1)
        rounds(world, new)
        assert new.numbers == ALL

    def test_a_member_that_does_not_join_again_in_time_is_removed(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        old, new = group
        third = ConsumerMember(world, "b")
        third.join()
        for _ in range(60):
            assert world.heartbeat(old.member) is ErrorCode.REBALANCE_IN_PROGRESS
            for each in (new, third):
                each.beat()
            world.wait(1_000)
        assert world.heartbeat(old.member) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_does_not_sync_in_time_is_removed(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        old, new = group
        answer = world.join_answer(world.send_join(old.member))
        assert answer.error is ErrorCode.NONE
        for _ in range(60):
            world.heartbeat(old.member)
            new.beat()
            world.wait(1_000)
        assert world.heartbeat(old.member) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_members_get_ids_first(self, world: GroupWorld) -> None:
        group_of(world, "a")
        answer = world.join_answer(world.send_join(Member()))
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id
        assert len(told(world).members) == 1

    def test_a_group_has_a_maximum_size_and_of_bytes(self) -> None:
        world = new_world(consumer_max_size=1)
        group_of(world, "a")
        answer = world.join_answer(world.send_first_join())
        assert answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        world = new_world(group_bytes_max=2_000)
        group_of(world, "a")
        big = Member(protocols=(("range", bytes(2_000)),))
        assert world.join_answer(world.send_first_join(big)).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_refused_join_is_as_if_it_had_not_come(
        self, world: GroupWorld, group: tuple[ClassicConsumer, ConsumerMember]
    ) -> None:
        before = told(world)
        third = ClassicConsumer(world)
        for _ in range(2):
            third.step()
        world.refuse_appends = True
        third.step()
        world.refuse_appends = False
        assert told(world) == before
        rounds(world, *group, third)
        every_partition_is_read_by(*group, third)

    @pytest.mark.parametrize("name", ["client", "x" * 40_000])
    def test_names_that_no_record_can_hold_are_refused(self, world: GroupWorld, name: str) -> None:
        group_of(world, "a")
        answer = world.join_answer(world.send_join(Member(), client_id=name))
        is_short = len(name) < 100
        assert answer.error is (ErrorCode.MEMBER_ID_REQUIRED if is_short else ErrorCode.INVALID_REQUEST)


class TestStaticMembers:
    def test_a_restarted_static_member_may_change_its_protocol(self, world: GroupWorld) -> None:
        old = [ClassicConsumer(world, instance_id=name) for name in ("one", "two")]
        rounds(world, *old)
        had, old[0].numbers = list(old[0].numbers), []  # it stops without leaving
        new = ConsumerMember(world, "a", instance_id="one")
        assert new.join() is ErrorCode.NONE
        assert type_of(world) == "consumer"
        rounds(world, old[1], new)
        every_partition_is_read_by(old[1], new)
        assert new.numbers == had
        assert len(told(world).members) == 2
        assert world.heartbeat(old[0].member) is ErrorCode.FENCED_INSTANCE_ID

    def test_and_back_which_ends_the_consumer_group(self, world: GroupWorld) -> None:
        new = ConsumerMember(world, "a", instance_id="one")
        other = ClassicConsumer(world)
        rounds(world, new, other)
        new.owned = NOTHING
        back = ClassicConsumer(world, instance_id="one")
        back.step()
        assert type_of(world) == "classic"
        rounds(world, other, back)
        every_partition_is_read_by(other, back)
        assert new.beat() is not ErrorCode.NONE
        assert other.losses == []

    def test_a_restarted_classic_member_keeps_its_place(self, world: GroupWorld) -> None:
        new = ConsumerMember(world, "a")
        old = ClassicConsumer(world, instance_id="one")
        rounds(world, new, old)
        had, epoch = list(old.numbers), told(world).epoch
        again = ClassicConsumer(world, instance_id="one")
        rounds(world, new, again, count=5)
        assert again.numbers == had
        assert told(world).epoch == epoch
        assert world.heartbeat(old.member) is ErrorCode.FENCED_INSTANCE_ID
        answer = world.join_answer(world.send_join(old.member))
        assert answer.error is ErrorCode.FENCED_INSTANCE_ID


class TestDowngrades:
    def mixed(self, world: GroupWorld) -> tuple[ClassicConsumer, ConsumerMember]:
        new, old = ConsumerMember(world, "a"), ClassicConsumer(world)
        rounds(world, new, old)
        every_partition_is_read_by(new, old)
        return old, new

    def test_a_new_coordinator_lets_the_group_rebalance(self, world: GroupWorld) -> None:
        old, new = self.mixed(world)
        new.leave()
        world.fail_over()
        assert world.heartbeat(old.member) is ErrorCode.REBALANCE_IN_PROGRESS
        rounds(world, old)
        assert old.numbers == ALL
        every_commit_has_held([old])
        world.fail_over()
        assert world.heartbeat(old.member) is ErrorCode.NONE

    def test_what_a_member_gives_up_is_not_given_to_others(self, world: GroupWorld) -> None:
        """Down and up again, while a member has been told to give up partitions that it still reads."""
        old = ClassicConsumer(world, is_cooperative=True)
        new = ConsumerMember(world, "a")
        rounds(world, old, count=10)
        new.join()
        while len(told(world).members[0].assigned) == PARTITIONS:
            old.step()  # until it has been told; it has not heard of that
        had = list(old.numbers)
        assert had == ALL
        new.leave()
        assert type_of(world) == "classic"
        another = ConsumerMember(world, "b")
        another.join()
        another.beat()
        assert another.numbers == []
        rounds(world, old, another)
        every_partition_is_read_by(old, another)

    def test_a_refused_downgrade_is_undone(self, world: GroupWorld) -> None:
        old, new = self.mixed(world)
        before = told(world)
        world.refuse_appends = True
        assert new.leave() is ErrorCode.NOT_ENOUGH_REPLICAS
        world.refuse_appends = False
        assert told(world) == before
        rounds(world, old, new)
        every_partition_is_read_by(old, new)

    def test_a_group_that_is_too_large_stays_a_consumer_group(self) -> None:
        world = new_world(max_size=1)
        new, old = ConsumerMember(world, "a"), [ClassicConsumer(world) for _ in range(2)]
        rounds(world, new, *old)
        new.leave()
        assert type_of(world) == "consumer"
        rounds(world, *old)
        every_partition_is_read_by(*old)

    def test_only_tombstones_are_left_of_the_consumer_group(self, world: GroupWorld) -> None:
        old, new = self.mixed(world)
        new.leave()
        rounds(world, old)
        old.leave()
        last = dict(world.log)
        assert all(value is None for key, value in last.items() if 3 <= int.from_bytes(key[:2], "big") <= 8)

    def test_offsets_stay(self, world: GroupWorld) -> None:
        old, new = self.mixed(world)
        assert world.commit(7, Member("a", new.epoch), partition=new.numbers[0]) is ErrorCode.NONE
        number = new.numbers[0]
        new.leave()
        assert world.committed()["orders", number] == 7  # type: ignore[index]
        world.fail_over()
        assert world.committed()["orders", number] == 7  # type: ignore[index]
        rounds(world, old)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["step"] * 6 + ["leave", "crash", "fail over", "refuse", "lose", "wait"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps=STEPS, is_cooperative=st.booleans())
@example(steps=[("step", 4), ("step", 3), ("lose", 4), ("wait", 0)], is_cooperative=False)
@example(steps=[("step", 0), ("step", 0), ("step", 3), ("step", 0), ("lose", 3)], is_cooperative=False)
def test_whatever_happens_no_partition_has_two_readers_and_in_the_end_each_has_one(
    steps: list[tuple[str, int]], is_cooperative: bool
) -> None:
    """Members of both protocols come, go and die; coordinators change, and the log refuses records."""
    world = new_world()
    members = [new_member(world, n, is_cooperative) for n in range(5)]
    started: set[int] = set()
    for what, n in steps:
        member = members[n]
        if what == "step":
            started.add(n)
            step(member)
        elif what == "fail over":
            fail_over(world, members)
        elif what == "wait":
            world.wait(100)
        elif n not in started:
            continue
        elif what == "leave":
            member.leave()
        elif what == "refuse":
            world.refuse_appends = True
            step(member)
            world.refuse_appends = False
        elif what == "lose" and isinstance(member, ConsumerMember):
            member.lose()
        if what in ("leave", "crash") and n in started:
            started.discard(n)
            members[n] = new_member(world, n, is_cooperative, f"{n}-{len(world.log)}")
        no_partition_has_two_readers(members)
    alive = [members[n] for n in sorted(started)]
    for _ in range(10):
        rounds(world, *alive, count=60)
    if alive:
        assert sorted(number for member in alive for number in member.numbers) == ALL
        is_new = any(isinstance(member, ConsumerMember) for member in alive)
        assert type_of(world) == ("consumer" if is_new else "classic")


def new_member(world: GroupWorld, n: int, is_cooperative: bool, name: str = "") -> AnyMember:
    if n < 3:
        return ClassicConsumer(world, is_cooperative=is_cooperative)
    return ConsumerMember(world, name or str(n))


def fail_over(world: GroupWorld, members: Sequence[AnyMember]) -> None:
    world.fail_over()
    for member in members:
        if isinstance(member, ClassicConsumer):
            member.reconnect()
