"""The base of simulated group members of both protocols.

A member finds its coordinator, joins the group, advances its position in each partition by counting, and
commits the positions with its generation. A paused or cut-off member later continues from where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.sim.client import RETRY_S, Client, Surroundings
from tests.sim.group_history import GroupHistory
from tests.sim.history import TopicPartition

R = TypeVar("R", bound=Response)

SESSION_TIMEOUT_MS = 3000
REBALANCE_TIMEOUT_MS = 3000
_HEARTBEAT_S = 0.8
_COMMIT_S = 1.0
_STEP_MAX = 5

FIND = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which a member looks the coordinator up again."""
WAIT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors after which a member asks the same broker again."""
_JOIN_ANEW = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Member(Client):
    """One member of one group. The protocols differ in `take_part` and `heartbeat`."""

    def __init__(self, around: Surroundings, name: str, group: str, topic: str, told: GroupHistory) -> None:
        super().__init__(around, name)
        self.group = group
        self.topic = topic
        self.told = told
        self.member_id = ""
        self.generation = -1
        self.positions: dict[TopicPartition, int] | None = None
        """The member's position in each of its partitions; None without an assignment."""
        self.has_left = False
        self._coordinator: Address | None = None
        self._is_finding = False
        self._attempt = 0  # counts attempts to join: answers to earlier attempts are ignored
        self._turn = 0  # counts assignments: timers and answers of earlier assignments are ignored
        self._is_committing = False

    def begin(self) -> None:
        super().begin()
        self.find()

    def leave(self) -> None:
        """Leave the group and stop."""
        self.process.run(self._leave)

    def _leave(self) -> None:
        coordinator, self.has_left = self._coordinator, True
        if coordinator is not None and self.member_id:
            members = [MemberIdentity(member_id=self.member_id)]
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id, members=members)
            self.send(coordinator, request).addErrback(lambda failure: None)
        self.stop_working()

    # The coordinator

    def find(self) -> None:
        """Look up the coordinator, then join if the member has no assignment."""
        if not self._is_finding and not self.has_left:
            self._is_finding = True
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            self.send(self.anyone(), request, 3).addCallbacks(self._found, self._not_found)

    def _found(self, response: FindCoordinatorResponse) -> None:
        self.history.operations += 1
        self._is_finding = False
        if response.error_code != ErrorCode.NONE:
            self.later(RETRY_S, self.find)
            return
        self._coordinator = Address(response.host, response.port)
        if self.positions is None:
            self.join()

    def _not_found(self, failure: Failure) -> None:
        self._is_finding = False
        self.refresh()
        self.later(RETRY_S, self.find)

    # Joining

    def join(self) -> None:
        """Start a new attempt to join the group, and abandon any earlier attempt."""
        self._attempt += 1
        if not self.has_left:
            self.take_part()

    def _join_later(self) -> None:
        self.later(RETRY_S, self._join_unless_changed, self._attempt)

    def _join_unless_changed(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.join()

    def ask(self, request: Request[R], answered: Callable[[R], None], version: int | None = None) -> None:
        """Send the coordinator a request as part of joining. If it fails, look up the coordinator again."""
        assert self._coordinator is not None
        attempt = self._attempt

        def answer(response: R) -> None:
            self.history.operations += 1
            if attempt == self._attempt and not self.has_left:
                answered(response)

        def failed(failure: Failure) -> None:
            if attempt == self._attempt:
                self.later(RETRY_S, self.find)

        self.send(self._coordinator, request, version).addCallbacks(answer, failed)

    def not_joined(self, code: int) -> None:
        """Called when joining has failed."""
        if code in FIND:
            self.later(RETRY_S, self.find)
        elif code in WAIT or code in _JOIN_ANEW:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.forget_member_id()
            self._join_later()
        else:
            self.history.violation(f"{self.name} could not join {self.group}: {ErrorCode(code).name}")

    def take_part(self) -> None:
        raise NotImplementedError

    def forget_member_id(self) -> None:
        """Called when the coordinator does not know this member."""

    # Work

    def begin_work(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start working on the partitions assigned to this member, each from the given offset."""
        for at, offset in positions.items():
            self.told.began(self.name, self.group, self.generation, at, offset)
        self.positions = {at: max(offset, 0) for at, offset in positions.items()}
        self._turn += 1
        self._is_committing = False
        self._heartbeat_later(self._turn)
        self._commit_later(self._turn)

    def stop_working(self) -> None:
        self.positions = None
        self._turn += 1

    def _heartbeat_later(self, turn: int) -> None:
        self.later(_HEARTBEAT_S * self.rng.uniform(0.5, 1.2), self._heartbeat, turn)

    def _heartbeat(self, turn: int) -> None:
        if turn == self._turn and self._coordinator is not None:
            self.heartbeat(self._coordinator, turn)

    def heartbeat(self, coordinator: Address, turn: int) -> None:
        raise NotImplementedError

    def heard(self, turn: int, code: int) -> None:
        """Called when a heartbeat was answered."""
        self.history.operations += 1
        if turn != self._turn:
            return
        if code == ErrorCode.NONE:
            self._heartbeat_later(turn)
        else:
            self._stumble(turn, code)

    def not_heard(self, turn: int) -> None:
        if turn == self._turn:
            self.find()
            self._heartbeat_later(turn)

    def _stumble(self, turn: int, code: int) -> None:
        """React to an error code: look up the coordinator, wait, or join again."""
        if code in FIND:
            self.find()
            self._heartbeat_later(turn)
        elif code in WAIT:
            self._heartbeat_later(turn)
        elif code in _JOIN_ANEW:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.forget_member_id()
            self.stop_working()
            self.join()
        else:
            self.history.violation(f"{self.name} of {self.group} got error {ErrorCode(code).name}")

    def _commit_later(self, turn: int) -> None:
        self.later(_COMMIT_S * self.rng.uniform(0.3, 1.5), self._commit, turn)

    def _commit(self, turn: int) -> None:
        if turn != self._turn or self.positions is None or self._coordinator is None:
            return
        self._commit_later(turn)
        if self._is_committing or not self.positions:
            return
        self._is_committing = True
        for at in self.positions:
            self.positions[at] += self.rng.randrange(_STEP_MAX)
        offsets, generation = dict(self.positions), self.generation
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=at[1], committed_offset=offset, committed_metadata=""
                        )
                        for at, offset in offsets.items()
                    ],
                )
            ],
        )
        self.send(self._coordinator, request).addCallbacks(
            lambda response: self._committed(turn, generation, offsets, response),
            lambda failure: self._not_committed(turn),
        )

    def _committed(
        self,
        turn: int,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        response: OffsetCommitResponse,
    ) -> None:
        self.history.operations += 1
        errors = [row.error_code for topic in response.topics for row in topic.partitions]
        for topic in response.topics:
            for row in topic.partitions:
                at = (topic.name, row.partition_index)
                if row.error_code == ErrorCode.NONE:
                    self.told.committed(self.name, self.group, generation, at, offsets[at])
        if turn != self._turn:
            return
        self._is_committing = False
        wrong = next((code for code in errors if code != ErrorCode.NONE), ErrorCode.NONE)
        if wrong in _JOIN_ANEW:
            self._stumble(turn, wrong)
        elif wrong in FIND:
            self.find()
        elif wrong != ErrorCode.NONE and wrong not in WAIT:
            self.history.violation(f"{self.name} of {self.group} could not commit: {ErrorCode(wrong).name}")

    def _not_committed(self, turn: int) -> None:
        if turn == self._turn:
            self._is_committing = False
            self.find()
