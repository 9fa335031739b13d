"""Kafka's classic protocol: joins, rebalances, assignments, sessions, departures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.coordinator.groups.consumer_protocol import encode_subscription
from holdfast_log.coordinator.groups.effects import JoinAnswer
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.world import REBALANCE_MS, SESSION_MS, SUBSCRIPTION, GroupWorld, Member

AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(AT_ONCE, orders=8)


class TestFirstMember:
    def test_a_new_member_gets_an_id_first_and_joins_with_it(self, world: GroupWorld) -> None:
        """KIP-394: retries after lost answers must not leave members behind."""
        answer = world.join_answer(world.send_join(Member(), client_id="app"))
        assert answer.error == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("app-")
        join = world.send_join(Member(answer.member_id))
        world.wait(0)
        answer = world.join_answer(join)
        assert answer.error == ErrorCode.NONE
        assert answer.leader_id == answer.member_id
        assert answer.generation == 1
        assert [member.metadata for member in answer.members] == [SUBSCRIPTION]

    def test_old_clients_join_without_a_member_id(self, world: GroupWorld) -> None:
        answer = world.join_empty()
        assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)

    def test_an_unused_member_id_is_forgotten_after_the_session_timeout(self, world: GroupWorld) -> None:
        answer = world.join_answer(world.send_join(Member()))
        world.wait(SESSION_MS)
        late = world.join_answer(world.send_join(Member(answer.member_id)))
        assert late.error == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.shard.group_ids() == []

    def test_a_single_member_joins_after_the_initial_delay(self) -> None:
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=3_000))
        join = world.send_first_join()
        world.wait(2_999)
        assert world.is_waiting(join)
        world.wait(1)
        assert world.join_answer(join).generation == 1


class TestInitialDelay:
    """KIP-134: the members of a group usually start together."""

    def test_each_new_member_extends_the_initial_delay(self) -> None:
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=3_000))
        first = world.send_first_join()
        world.wait(2_000)
        second = world.send_first_join()
        world.wait(3_999)
        assert world.is_waiting(first)
        assert world.is_waiting(second)
        world.wait(1)
        assert world.join_answer(first).generation == world.join_answer(second).generation == 1

    def test_the_initial_delay_ends_at_the_rebalance_timeout(self) -> None:
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=3_000))
        first = world.send_first_join(rebalance_timeout_ms=7_000)
        for _ in range(6):
            world.wait(1_000)
            world.send_first_join(rebalance_timeout_ms=7_000)
            assert world.is_waiting(first)
        world.wait(1_000)
        assert len(world.join_answer(first).members) == 7

    def test_a_member_that_leaves_during_the_initial_delay_leaves_an_empty_group(self) -> None:
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=3_000))
        pending = world.join_answer(world.send_join(Member()))
        world.send_join(Member(pending.member_id))
        assert world.leave((pending.member_id, None)) == [ErrorCode.NONE]
        world.wait(3_000)
        assert world.describe().state == "Empty"


class TestRefusals:
    @pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, -1])
    def test_a_session_timeout_out_of_bounds_is_refused(
        self, world: GroupWorld, session_timeout_ms: int
    ) -> None:
        answer = world.join_answer(world.send_join(Member(), session_timeout_ms=session_timeout_ms))
        assert answer.error == ErrorCode.INVALID_SESSION_TIMEOUT

    @pytest.mark.parametrize("group", ["", "g" * 40_000])
    def test_an_invalid_group_id_is_refused(self, world: GroupWorld, group: str) -> None:
        assert world.join_answer(world.send_join(Member(), group)).error == ErrorCode.INVALID_GROUP_ID

    def test_an_unknown_member_id_is_refused(self, world: GroupWorld) -> None:
        stranger = Member("stranger", 1)
        for group in ("nobody's", "g"):
            world.stable_group(1)
            join = world.join_answer(world.send_join(stranger, group))
            assert join.error == ErrorCode.UNKNOWN_MEMBER_ID
            sync = world.sync_answer(world.send_sync(stranger, None, group))
            assert sync.error == ErrorCode.UNKNOWN_MEMBER_ID
            assert world.heartbeat(stranger, group) == ErrorCode.UNKNOWN_MEMBER_ID
            assert world.leave(("stranger", None), group=group) == [ErrorCode.UNKNOWN_MEMBER_ID]
            world = GroupWorld(AT_ONCE)

    @pytest.mark.parametrize("generation", [0, 2, -1])
    def test_another_generation_is_refused(self, world: GroupWorld, generation: int) -> None:
        (member,) = world.stable_group(1)
        stale = replace(member, generation=generation)
        assert world.heartbeat(stale) == ErrorCode.ILLEGAL_GENERATION
        assert world.sync_answer(world.send_sync(stale)).error == ErrorCode.ILLEGAL_GENERATION
        assert world.commit(5, stale) in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

    def test_a_member_without_a_common_protocol_is_refused(self, world: GroupWorld) -> None:
        world.stable_group(1)
        newcomer = Member(protocols=(("sticky", SUBSCRIPTION),))
        answer = world.join_answer(world.send_first_join(newcomer))
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_another_protocol_type_is_refused(self, world: GroupWorld) -> None:
        world.stable_group(1)
        answer = world.join_answer(world.send_first_join(protocol_type="connect"))
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize(("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())])
    def test_a_member_without_protocols_is_refused(
        self, world: GroupWorld, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        answer = world.join_answer(
            world.send_first_join(Member(protocols=protocols), protocol_type=protocol_type)
        )
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.shard.group_ids() == []

    def test_a_sync_with_another_protocol_is_refused(self, world: GroupWorld) -> None:
        member = Member().after(world.join_empty())
        for name, kind in (("sticky", None), (None, "connect")):
            sync = world.send_sync(member, {}, protocol_name=name, protocol_type=kind)
            assert world.sync_answer(sync).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_strings_too_long_for_the_groups_record_are_refused(self, world: GroupWorld) -> None:
        member = Member(protocols=(("p" * 40_000, b""),))
        assert world.join_answer(world.send_first_join(member)).error == ErrorCode.INVALID_REQUEST

    def test_classic_requests_for_a_managed_group_are_refused(self, world: GroupWorld) -> None:
        world.create_group()
        answer = world.join_answer(world.send_first_join())
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestRebalance:
    def test_a_new_member_makes_all_members_join_again(self, world: GroupWorld) -> None:
        (old,) = world.stable_group(1)
        newcomer = world.send_first_join()
        assert world.is_waiting(newcomer)
        assert world.heartbeat(old) == ErrorCode.REBALANCE_IN_PROGRESS
        rejoin = world.send_join(old)
        first, second = world.join_answer(rejoin), world.join_answer(newcomer)
        assert first.generation == second.generation == 2
        assert first.leader_id == second.leader_id == old.member_id
        assert len(first.members) == 2
        assert second.members == ()

    def test_followers_wait_for_the_leaders_assignment(self, world: GroupWorld) -> None:
        members = world.stable_group(2)
        newcomer = world.send_first_join()
        joins = [world.send_join(member) for member in members]
        leader, follower = (m.after(world.join_answer(j)) for m, j in zip(members, joins, strict=True))
        third = Member().after(world.join_answer(newcomer))
        waiting = world.send_sync(follower)
        assert world.is_waiting(waiting)
        written = len(world.log)
        world.send_sync(leader, {follower.member_id: b"yours", leader.member_id: b"mine"})
        assert world.sync_answer(waiting).assignment == b"yours"
        assert len(world.log) == written + 1
        late = world.send_sync(third)
        assert world.sync_answer(late).assignment == b""
        assert world.heartbeat(third) == ErrorCode.NONE

    def test_members_that_do_not_join_in_time_are_removed(self, world: GroupWorld) -> None:
        leader, slow = world.stable_group(2, rebalance_timeout_ms=8_000, session_timeout_ms=30_000)
        newcomer = world.send_first_join(rebalance_timeout_ms=8_000)
        rejoin = world.send_join(leader, rebalance_timeout_ms=8_000)
        world.wait(7_999)
        assert world.is_waiting(newcomer)
        world.wait(1)
        assert len(world.join_answer(rejoin).members) == 2
        assert world.heartbeat(slow) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_leader_that_does_not_join_is_replaced(self, world: GroupWorld) -> None:
        _, follower = world.stable_group(2, rebalance_timeout_ms=8_000, session_timeout_ms=30_000)
        newcomer = world.send_first_join(rebalance_timeout_ms=8_000)
        rejoin = world.send_join(follower, rebalance_timeout_ms=8_000)
        world.wait(8_000)
        assert world.join_answer(newcomer).leader_id == follower.member_id
        assert len(world.join_answer(rejoin).members) == 2

    def test_waiting_members_keep_their_session(self, world: GroupWorld) -> None:
        leader, slow = world.stable_group(2)
        rejoin = world.send_join(leader)
        for _ in range(5):
            world.wait(9_000)
            assert world.heartbeat(slow) == ErrorCode.REBALANCE_IN_PROGRESS
        world.send_join(slow)
        assert len(world.join_answer(rejoin).members) == 2

    def test_the_join_phase_waits_for_a_pending_member_id(self, world: GroupWorld) -> None:
        (leader,) = world.stable_group(1)
        required = world.join_answer(world.send_join(Member()))
        rejoin = world.send_join(leader)
        assert world.is_waiting(rejoin)
        joined = world.send_join(Member(required.member_id))
        assert world.join_answer(rejoin).generation == world.join_answer(joined).generation == 2

    def test_a_sync_during_the_join_phase_is_refused(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.send_first_join()
        assert world.sync_answer(world.send_sync(member)).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_rebalance_before_the_assignment_refuses_waiting_syncs(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        joins = [world.send_join(leader), world.send_join(follower)]
        leader, follower = (
            m.after(world.join_answer(j)) for m, j in zip((leader, follower), joins, strict=True)
        )
        sync = world.send_sync(follower)
        world.send_first_join()
        assert world.sync_answer(sync).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_an_abandoned_first_join_times_out(self) -> None:
        config = GroupSettings(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=30_000)
        world = GroupWorld(config)
        leader, slow = world.stable_group(2, session_timeout_ms=20_000, rebalance_timeout_ms=100_000)
        newcomer = world.send_first_join()
        rejoin = world.send_join(leader, rebalance_timeout_ms=100_000, session_timeout_ms=20_000)
        for _ in range(3):
            world.wait(10_000)
            world.heartbeat(slow)
        assert world.join_answer(newcomer).error == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.is_waiting(rejoin)

    def test_joining_twice_answers_both_requests(self, world: GroupWorld) -> None:
        leader, _ = world.stable_group(2)
        first = world.send_join(leader)
        second = world.send_join(leader)
        assert world.join_answer(first).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.is_waiting(second)


class TestJoiningAgain:
    def test_a_follower_that_joins_again_gets_the_current_generation(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        answer = world.join_answer(world.send_join(follower))
        assert (answer.generation, answer.leader_id) == (follower.generation, leader.member_id)
        assert world.heartbeat(leader) == ErrorCode.NONE

    def test_a_leader_that_joins_again_starts_a_rebalance(self, world: GroupWorld) -> None:
        """For example because it has noticed new partitions."""
        leader, follower = world.stable_group(2)
        assert world.is_waiting(world.send_join(leader))
        assert world.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_follower_with_a_new_subscription_starts_a_rebalance(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        changed = replace(follower, protocols=(("range", encode_subscription(["returns"])),))
        assert world.is_waiting(world.send_join(changed))
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_lost_join_answer_is_repeated_before_the_assignment(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        world.send_join(leader)
        rejoin = world.join_answer(world.send_join(follower))
        again = world.join_answer(world.send_join(follower))
        assert again == rejoin
        assert len(world.join_answer(world.send_join(leader)).members) == 2


class TestProtocolChoice:
    def test_the_common_protocol_with_most_votes_is_chosen(self) -> None:
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=1_000))
        votes = (("a", "b", "c"), ("b", "a"), ("c", "b", "a"), ("b", "a"))
        joins = [
            world.send_first_join(Member(protocols=tuple((name, name.encode()) for name in names)))
            for names in votes
        ]
        world.wait(10_000)
        answers = [world.join_answer(join) for join in joins]
        assert {answer.protocol_name for answer in answers} == {"b"}
        assert [member.metadata for member in answers[0].members] == [b"b"] * 4

    def test_a_group_changes_its_protocol_member_by_member(self) -> None:
        """As when two rolling restarts move clients from one assignor to another."""
        world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=1_000))
        both = (("cooperative", b"c"), ("range", b"r"))
        old = world.send_first_join(Member(protocols=(("range", b"r"),)))
        new = world.send_first_join(Member(protocols=both))
        world.wait(5_000)
        member = Member(protocols=both).after(world.join_answer(old))
        other = Member(protocols=both).after(world.join_answer(new))
        assert world.join_answer(new).protocol_name == "range"
        rejoins = [world.send_join(member), world.send_join(other)]
        assert {world.join_answer(join).protocol_name for join in rejoins} == {"cooperative"}


class TestSessions:
    def test_a_member_without_heartbeats_is_removed(self, world: GroupWorld) -> None:
        leader, silent = world.stable_group(2)
        world.wait(SESSION_MS - 1)
        assert world.heartbeat(leader) == ErrorCode.NONE
        world.wait(1)
        assert world.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.heartbeat(silent) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_heartbeats_commits_and_syncs_keep_a_member_alive(self, world: GroupWorld) -> None:
        (member,) = world.stable_group(1)
        world.wait(SESSION_MS - 1)
        assert world.heartbeat(member) == ErrorCode.NONE
        world.wait(SESSION_MS - 1)
        assert world.commit(1, member) == ErrorCode.NONE
        world.wait(SESSION_MS - 1)
        assert world.sync_answer(world.send_sync(member)).error == ErrorCode.NONE
        world.wait(SESSION_MS - 1)
        assert world.describe().state == "Stable"

    def test_a_group_without_members_is_empty_and_keeps_its_generation(self, world: GroupWorld) -> None:
        world.stable_group(2)
        world.wait(SESSION_MS)
        assert world.describe().state == "Empty"
        assert world.join_empty().generation == 3

    def test_members_that_never_send_sync_are_removed(self, world: GroupWorld) -> None:
        """KAFKA-10513: they send heartbeats, so their sessions would never expire."""
        member = Member().after(world.join_empty(rebalance_timeout_ms=20_000))
        world.wait(9_000)
        assert world.heartbeat(member) == ErrorCode.NONE
        world.wait(9_000)
        assert world.heartbeat(member) == ErrorCode.NONE
        world.wait(2_000)
        assert world.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


class TestLeaving:
    def test_a_departure_starts_a_rebalance_at_once(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        assert world.leave((leader.member_id, None)) == [ErrorCode.NONE]
        assert world.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
        answer = world.join_answer(world.send_join(follower))
        assert (answer.leader_id, len(answer.members)) == (follower.member_id, 1)

    def test_several_members_leave_each_with_its_own_error_code(self, world: GroupWorld) -> None:
        first, second = world.stable_group(2)
        outcomes = world.leave((first.member_id, None), ("stranger", None), (second.member_id, None))
        assert outcomes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
        assert world.describe().state == "Empty"

    def test_a_leaving_member_gets_its_waiting_join_answered(self, world: GroupWorld) -> None:
        leader, follower = world.stable_group(2)
        join = world.send_join(leader)
        world.leave((leader.member_id, None))
        assert world.join_answer(join).error == ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_pending_member_id_can_leave(self, world: GroupWorld) -> None:
        required = world.join_answer(world.send_join(Member()))
        assert world.leave((required.member_id, None)) == [ErrorCode.NONE]
        assert world.shard.group_ids() == []


class TestMaximumSize:
    CONFIG = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)

    def test_a_member_beyond_the_maximum_size_is_refused_and_the_group_stays(self) -> None:
        world = GroupWorld(self.CONFIG)
        members = world.stable_group(2)
        answer = world.join_answer(world.send_first_join())
        assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert [world.heartbeat(member) for member in members] == [ErrorCode.NONE] * 2

    def test_a_group_loaded_with_too_many_members_is_reduced(self) -> None:
        world = GroupWorld(AT_ONCE)
        members = world.stable_group(3)
        world.config = self.CONFIG
        world.fail_over()
        assert world.heartbeat(members[0]) == ErrorCode.REBALANCE_IN_PROGRESS
        joins = [world.send_join(member) for member in members]
        assert world.join_answer(joins[2]).error == ErrorCode.GROUP_MAX_SIZE_REACHED
        world.wait(REBALANCE_MS)
        assert len(world.join_answer(joins[0]).members) == 2

    def test_pending_member_ids_are_limited(self) -> None:
        world = GroupWorld(self.CONFIG)
        errors = [world.join_answer(world.send_join(Member())).error for _ in range(3)]
        assert errors == [
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ]


def test_ten_thousand_members_that_never_sync_leave_nothing_behind() -> None:
    world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=1_000, max_size=10_000))
    for number in range(5_000):
        world.send_join(Member(), client_id=f"pending{number}")
    joins = [world.send_first_join() for _ in range(5_000)]
    world.wait(REBALANCE_MS)
    assert {world.answer(join, JoinAnswer).error for join in joins} == {ErrorCode.NONE}
    world.wait(2 * REBALANCE_MS)
    assert world.describe().state == "Empty"
    assert world.shard.next_deadline_ms() is None
    world.perform(world.shard.expire_offsets("g", world.now_ms))
    assert world.shard.group_ids() == []
