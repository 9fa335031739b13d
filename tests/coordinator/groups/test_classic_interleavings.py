"""Every order of a few requests of the classic protocol, among them late and repeated ones.

A member's requests may arrive late or twice, because clients give up on answers, send heartbeats beside other
requests, and reconnect. Whatever the order, Kafka's protocol demands:

- a caller that is no member gets UNKNOWN_MEMBER_ID, a member with another generation ILLEGAL_GENERATION, and
  during the join phase a member with the current generation REBALANCE_IN_PROGRESS;
- every request gets one answer: JoinGroup at the end of the join phase, SyncGroup with the assignment or when
  another join phase begins, and both before the last deadline has passed;
- an assignment is the one that the leader of the caller's generation made for the caller.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.effects import JoinAnswer, SyncAnswer
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld, Member

AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)
LENGTH = 3
ALL_DEADLINES_MS = 10 * REBALANCE_MS


class Walk:
    """A leader (0) and a follower (1) of a stable group, and a newcomer (2). The test makes their requests
    one by one.

    A member takes its new generation from the answer to its JoinGroup only when it sends SyncGroup, so a
    heartbeat between the two still has the older generation.
    """

    def __init__(self) -> None:
        self._world = GroupWorld(AT_ONCE)
        self._members = [*self._world.stable_group(2), Member()]
        self._joins: dict[int, int] = {}
        """The last JoinGroup of each member, until the member has read its answer."""
        self._syncs: dict[int, Member] = {}
        """The member that sent each SyncGroup, with its generation at that time."""
        self._requests: list[int] = []
        self._leads: set[tuple[str, int]] = {(self._members[0].member_id, self._members[0].generation)}
        self._shares: dict[tuple[str, int], bytes] = {}

    def join(self, number: int) -> None:
        request = self._world.send_join(self._members[number], asks_member_id=False)
        self._requests.append(request)
        self._joins[number] = request

    def sync(self, number: int) -> None:
        self._learn(number)
        member = self._members[number]
        expected = self._error_for(member)
        leads = (member.member_id, member.generation) in self._leads
        is_assigning = leads and self._group.state is GroupState.COMPLETING_REBALANCE
        shares = {each: f"{each} in {member.generation}".encode() for each in self._group.members}
        request = self._world.send_sync(member, shares if leads else None)
        self._requests.append(request)
        if expected is not ErrorCode.NONE:
            assert self._world.sync_answer(request).error is expected
            return
        self._syncs[request] = member
        if is_assigning:
            self._shares |= {(each, member.generation): share for each, share in shares.items()}

    def beat(self, number: int) -> None:
        member = self._members[number]
        assert self._world.heartbeat(member) is self._error_for(member)

    def leave(self, number: int) -> None:
        self._world.leave((self._members[number].member_id, None))

    def let_sessions_expire(self) -> None:
        self._world.wait(SESSION_MS)

    def check_waiting(self) -> None:
        """Check that JoinGroup requests wait only in the join phase, and SyncGroup requests only until the
        leader sends the assignment."""
        waiting = [request for request in self._requests if self._world.is_waiting(request)]
        match self._group.state:
            case GroupState.PREPARING_REBALANCE:
                assert not any(request in self._syncs for request in waiting)
            case GroupState.COMPLETING_REBALANCE:
                assert all(request in self._syncs for request in waiting)
            case _:
                assert not waiting

    def check(self) -> None:
        """Check, after all deadlines, that every request was answered and every assignment is the
        caller's."""
        self._world.wait(ALL_DEADLINES_MS)
        for request in self._requests:
            answer = self._world.answers[request]
            if isinstance(answer, JoinAnswer):
                is_leader = answer.leader_id == answer.member_id
                assert bool(answer.members) == (answer.error is ErrorCode.NONE and is_leader)
            elif request in self._syncs:
                self._check_assignment(answer, self._syncs[request])

    def _check_assignment(self, answer: SyncAnswer, member: Member) -> None:
        if answer.error is not ErrorCode.NONE:
            assert answer.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
        elif member.generation > 1:  # The first generation was assigned before the walk.
            assert answer.assignment == self._shares[member.member_id, member.generation]

    @property
    def _group(self) -> ClassicGroup:
        group = self._world.shard._store.groups["g"]
        assert isinstance(group, ClassicGroup)
        return group

    def _learn(self, number: int) -> None:
        """Let the member read the answer to its last JoinGroup, if there is one."""
        if number not in self._joins or self._world.is_waiting(self._joins[number]):
            return
        answer = self._world.join_answer(self._joins.pop(number))
        if answer.error is ErrorCode.NONE:
            self._members[number] = self._members[number].after(answer)
            if answer.leader_id == answer.member_id:
                self._leads.add((answer.member_id, answer.generation))

    def _error_for(self, member: Member) -> ErrorCode:
        """The error with which Kafka would answer a heartbeat or SyncGroup of this member now."""
        if member.member_id not in self._group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.generation != self._group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self._group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE


STEPS: tuple[tuple[str, Callable[[Walk], None]], ...] = (
    ("the leader joins", lambda walk: walk.join(0)),
    ("the leader syncs", lambda walk: walk.sync(0)),
    ("the leader beats", lambda walk: walk.beat(0)),
    ("the leader leaves", lambda walk: walk.leave(0)),
    ("the follower joins", lambda walk: walk.join(1)),
    ("the follower syncs", lambda walk: walk.sync(1)),
    ("the follower beats", lambda walk: walk.beat(1)),
    ("the newcomer joins", lambda walk: walk.join(2)),
    ("the newcomer syncs", lambda walk: walk.sync(2)),
    ("the newcomer beats", lambda walk: walk.beat(2)),
    ("sessions expire", Walk.let_sessions_expire),
)
JOIN_PHASE = ("the newcomer joins", "the leader joins")
ASSIGNMENT_AWAITED = (*JOIN_PHASE, "the follower joins")
BEGINNINGS = {
    "stable": (),
    "the join phase waits for the follower": JOIN_PHASE,
    "the new generation waits for its assignment": ASSIGNMENT_AWAITED,
    "a member waits for its assignment": (*ASSIGNMENT_AWAITED, "the follower syncs"),
    "some have the new assignment": (*ASSIGNMENT_AWAITED, "the leader syncs"),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_every_order_of_requests_is_answered_as_the_protocol_demands(beginning: str) -> None:
    by_name = dict(STEPS)
    for names in itertools.product(by_name, repeat=LENGTH):
        walk = Walk()
        try:
            for name in (*BEGINNINGS[beginning], *names):
                by_name[name](walk)
                walk.check_waiting()
            walk.check()
        except (AssertionError, KeyError) as error:
            error.add_note(f"{beginning}; then {', '.join(names)}")
            raise
