"""JoinGroup of the classic protocol: admits members, assigns member ids, and starts rebalances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from holdfast_log.coordinator.groups.classic_rebalance import ClassicRebalancer
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import JoinAnswer, ShardResult
from holdfast_log.coordinator.groups.records import fits
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode

_INSTANCE_ID_LENGTH_MAX = 249  # the limit of Kafka's own clients


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request of any version.

    `asks_member_id` (v4 and up): a dynamic member without an id gets one and has to join again with it
    (KIP-394). `can_skip_assignment` (v9 and up): a static leader that returns may be told to keep the group's
    assignment (KIP-814). In v0 `rebalance_timeout_ms` is the session timeout.
    """

    request: RequestToken
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    asks_member_id: bool = True
    can_skip_assignment: bool = True

    def new_member_id(self, random: str) -> str:
        """An id for a member that has none; people can tell by it whose it is."""
        return f"{self.client_id if self.instance_id is None else self.instance_id}-{random}"

    def is_well_formed(self) -> bool:
        """Whether all strings fit the group's record."""
        return fits(self.client_id, self.client_host, self.member_id, self.protocol_type) and fits(
            *(name for name, _ in self.protocols)
        )


class Joiner:
    """Handles JoinGroup of classic groups. `new_id` makes the random part of member ids."""

    def __init__(self, rebalancer: ClassicRebalancer, new_id: Callable[[], str]) -> None:
        self._rebalancer = rebalancer
        self._config = rebalancer.config
        self._timers = rebalancer.timers
        self._new_id = new_id

    def check(self, join: Join) -> ErrorCode:
        """The error of a request that is invalid for any group, or NONE."""
        if not self._config.allows_session_timeout(join.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if join.instance_id is not None and not 0 < len(join.instance_id) <= _INSTANCE_ID_LENGTH_MAX:
            return ErrorCode.INVALID_REQUEST
        if not join.is_well_formed():
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def join(self, group: ClassicGroup, result: ShardResult, join: Join, now_ms: int) -> None:
        """Answer at once, or keep the request waiting for the end of the join phase."""
        if group.state is GroupState.DEAD:
            self._refuse(result, join, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room(group, join.member_id):
            self._refuse(result, join, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(join.protocol_type, (name for name, _ in join.protocols)):
            self._refuse(result, join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not join.member_id:
            self._join_unknown(group, result, join, now_ms)
        elif join.instance_id is None and join.member_id in group.pending_members:
            self._timers.cancel(TimerKey(group.group_id, TimerKind.PENDING, join.member_id))
            self._add(group, result, join, join.member_id, now_ms)
        else:
            self._join_known(group, result, join, now_ms)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group takes this member under `group.max.size` (KIP-389).

        During the join phase the members that joined first stay; the rest of an oversized group is refused.
        """
        if group.state is GroupState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.joining is not None) or (
                group.joining_count < self._config.max_size
            )
        return (
            group.state is GroupState.EMPTY
            or member_id in group.members
            or len(group.members) < self._config.max_size
        )

    def _join_unknown(self, group: ClassicGroup, result: ShardResult, join: Join, now_ms: int) -> None:
        member_id = join.new_member_id(self._new_id())
        if not fits(member_id):
            self._refuse(result, join, ErrorCode.INVALID_REQUEST)
        elif join.instance_id is not None:
            current_id = group.static_members.get(join.instance_id)
            if current_id is None:
                self._add(group, result, join, member_id, now_ms)
            else:
                self._return_static(group, result, join, group.members[current_id], member_id, now_ms)
        elif not join.asks_member_id:
            self._add(group, result, join, member_id, now_ms)
        elif len(group.pending_members) >= self._config.max_size:
            self._refuse(result, join, ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            group.pending_members[member_id] = None
            key = TimerKey(group.group_id, TimerKind.PENDING, member_id)
            self._timers.set(key, now_ms + join.session_timeout_ms)
            result.reply(join.request, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_known(self, group: ClassicGroup, result: ShardResult, join: Join, now_ms: int) -> None:
        error = group.check_member(join.member_id, join.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(result, join, error)
            return
        member = group.members[join.member_id]
        unchanged = member.protocols == join.protocols
        answer_stands = unchanged and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and member.member_id != group.leader_id)
        )
        if answer_stands:
            # The answer to its first request was lost. The leader of a stable group, however, joins again
            # because it has noticed something to reassign.
            self._rebalancer.keep_alive(group, member, now_ms)
            result.reply(join.request, self._standing_answer(group, member))
        else:
            self._update(group, result, join, member, now_ms)

    def _add(self, group: ClassicGroup, result: ShardResult, join: Join, member_id: str, now_ms: int) -> None:
        member = ClassicMember(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            join.protocol_type,
            join.protocols,
            is_new=True,
        )
        if group.initial_delay_left_ms is not None:
            group.new_member_added = True
        group.add(member)
        group.park_join(member, join.request)
        key = TimerKey(group.group_id, TimerKind.SESSION, member_id)
        self._timers.set(key, now_ms + self._config.new_member_join_timeout_ms)
        self._rebalance(group, result, now_ms)

    def _update(
        self, group: ClassicGroup, result: ShardResult, join: Join, member: ClassicMember, now_ms: int
    ) -> None:
        abandoned = group.unpark_join(member)
        if abandoned is not None:  # the member gave up on its first request and sent another
            result.reply(abandoned, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms)
        group.park_join(member, join.request)
        if not member.is_new:
            self._rebalancer.keep_alive(group, member, now_ms)
        self._rebalance(group, result, now_ms)

    def _return_static(
        self,
        group: ClassicGroup,
        result: ShardResult,
        join: Join,
        member: ClassicMember,
        member_id: str,
        now_ms: int,
    ) -> None:
        """A static member returns under a new id (KIP-345); its old id is fenced."""
        former_leader_id = group.leader_id or ""
        self._rebalancer.answer_waiting(result, member, group, ErrorCode.FENCED_INSTANCE_ID)
        self._timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member.member_id))
        group.replace_static_member(member, member_id)
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.session_timeout_ms)
        member.client_id = join.client_id
        member.client_host = join.client_host
        self._rebalancer.keep_alive(group, member, now_ms)
        if group.state is not GroupState.STABLE or group.choose_protocol() != group.protocol_name:
            group.park_join(member, join.request)
            self._rebalance(group, result, now_ms)
            return
        # Other members are not affected: it keeps its assignment. The record has the new id, so the old id
        # stays fenced after a failover.
        group.topics = group.subscribed_topics()
        self._rebalancer.persist(group, result)
        result.reply(join.request, self._returned_answer(group, join, member, former_leader_id))

    def _returned_answer(
        self, group: ClassicGroup, join: Join, member: ClassicMember, former_leader_id: str
    ) -> JoinAnswer:
        if join.can_skip_assignment:
            return self._standing_answer(group, member, skip_assignment=member.member_id == group.leader_id)
        # Older clients cannot be told to skip the assignment, so the member must not know that it leads: it
        # gets its old id as the leader's.
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            former_leader_id,
        )

    def _standing_answer(
        self, group: ClassicGroup, member: ClassicMember, skip_assignment: bool = False
    ) -> JoinAnswer:
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader_id or "",
            skip_assignment,
            group.joined_members() if member.member_id == group.leader_id else (),
        )

    def _rebalance(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        if group.can_rebalance:
            self._rebalancer.prepare(group, result, now_ms)
        else:
            self._rebalancer.complete_join_if_all_joined(group, result, now_ms)

    def _refuse(self, result: ShardResult, join: Join, error: ErrorCode) -> None:
        result.reply(join.request, JoinAnswer(error, join.member_id))
