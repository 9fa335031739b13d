"""Rebalances of the classic protocol: join phase, assignment, heartbeats, departures, deadlines.

A rebalance begins when a member joins, leaves or changes its protocols (`prepare`). Its join phase ends when
every member has joined or the rebalance timeout has passed (`complete_join`); the new generation is stable
when the leader has sent the assignment (`sync`). Behaviour follows Kafka's coordinator, including KIP-62,
KIP-134, KIP-345, KIP-389 and KIP-394.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_log.coordinator.groups.classic_group import ClassicCaller, ClassicGroup, ClassicMember
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import (
    ErrorAnswer,
    JoinAnswer,
    LeaveAnswer,
    LeftMember,
    ShardResult,
    SyncAnswer,
)
from holdfast_log.coordinator.groups.records import group_record
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request. Only the leader sends `assignments`, by member id. Versions before 5 do not name
    the protocol."""

    request: RequestToken
    caller: ClassicCaller
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class ClassicRebalancer:
    """Handles the events of classic groups, except JoinGroup, which `Joiner` handles."""

    def __init__(self, config: GroupSettings, timers: Timers[TimerKey]) -> None:
        self.config = config
        self.timers = timers

    # Requests

    def sync(self, group: ClassicGroup, result: ShardResult, sync: Sync, now_ms: int) -> None:
        """SyncGroup: the leader sends all assignments, each member gets its own."""
        error = self._check(group, sync.caller)
        if error is ErrorCode.NONE:
            is_type = sync.protocol_type in (None, group.protocol_type)
            if not is_type or sync.protocol_name not in (None, group.protocol_name):
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            result.reply(sync.request, SyncAnswer(error))
            return
        member_id = sync.caller.member_id
        member = group.members[member_id]
        group.unsynced_members.pop(member_id, None)
        self.keep_alive(group, member, now_ms)
        if group.state is GroupState.STABLE:
            result.reply(sync.request, self._sync_answer(group, member))
            self._stop_waiting_for_sync(group)
            return
        if member.syncing is not None:  # the member gave up on an earlier request and sent a new one
            result.reply(member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = sync.request
        if member_id == group.leader_id:
            self._assign(group, result, sync.assignments, now_ms)
        self._stop_waiting_for_sync(group)

    def heartbeat(
        self,
        group: ClassicGroup,
        result: ShardResult,
        request: RequestToken,
        caller: ClassicCaller,
        now_ms: int,
    ) -> None:
        """Heartbeat: REBALANCE_IN_PROGRESS asks the member to join again."""
        error = self._check(group, caller)
        if error is ErrorCode.NONE:
            self.keep_alive(group, group.members[caller.member_id], now_ms)
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        result.reply(request, ErrorAnswer(error))

    def leave(
        self,
        group: ClassicGroup,
        result: ShardResult,
        request: RequestToken,
        members: Iterable[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        """LeaveGroup of (member id, instance id) pairs; an empty member id means the instance's current
        member."""
        left: list[LeftMember] = []
        for member_id, instance_id in members:
            error = ErrorCode.NONE
            leaving_id = member_id
            if not member_id and instance_id is not None:
                leaving_id = group.static_members.get(instance_id, "")
            if instance_id is None and leaving_id in group.pending_members:
                self.timers.cancel(TimerKey(group.group_id, TimerKind.PENDING, leaving_id))
                del group.pending_members[leaving_id]
                self.complete_join_if_all_joined(group, result, now_ms)
            else:
                error = group.check_member(leaving_id, instance_id)
                if error is ErrorCode.NONE:
                    self._remove(group, result, leaving_id)
                    self._rebalance_after_departure(group, result, now_ms)
            left.append(LeftMember(member_id, instance_id, error))
        result.reply(request, LeaveAnswer(left))

    # The join phase

    def prepare(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Begin a rebalance: members learn of it from their heartbeats and join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, result, ErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel(TimerKey(group.group_id, TimerKind.SYNC))
        wait_ms = group.rebalance_timeout_ms()
        group.initial_delay_left_ms = None
        if group.state is GroupState.EMPTY:
            # More members are probably starting: wait for them, so that the first of many is not assigned all
            # partitions only to give them up at once (KIP-134).
            delay_ms = self.config.initial_rebalance_delay_ms
            group.initial_delay_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        self.timers.set(TimerKey(group.group_id, TimerKind.JOIN), now_ms + wait_ms)
        self.complete_join_if_all_joined(group, result, now_ms)

    def complete_join_if_all_joined(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay_left_ms is None
            and group.all_have_joined()
        ):
            self.complete_join(group, result, now_ms)

    def complete_join(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """End the join phase: the new generation has the joined members and all static members.

        Static members may be away until their session expires.
        """
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(group, result, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, none has joined, so none can assign: wait for them or their
            # sessions.
            wait_ms = max(group.rebalance_timeout_ms(), 1)
            self.timers.set(TimerKey(group.group_id, TimerKind.JOIN), now_ms + wait_ms)
            return
        self.timers.cancel(TimerKey(group.group_id, TimerKind.JOIN))
        group.initial_delay_left_ms = None
        group.generation += 1
        group.unsynced_members.clear()
        if group.members:
            self._start_generation(group, result, now_ms)
        else:
            group.protocol_name = None
            group.topics = None
            group.transition_to(GroupState.EMPTY, now_ms)
            self.persist(group, result)

    # Deadlines

    def session_expired(self, group: ClassicGroup, result: ShardResult, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        waiting = member.joining is not None or member.syncing is not None
        if waiting and not member.is_new:
            # It cannot send heartbeats while its connection waits for our answer.
            self.keep_alive(group, member, now_ms)
            return
        self._remove(group, result, member_id)
        self._rebalance_after_departure(group, result, now_ms)

    def pending_expired(self, group: ClassicGroup, result: ShardResult, member_id: str, now_ms: int) -> None:
        if member_id in group.pending_members:
            del group.pending_members[member_id]
            self.complete_join_if_all_joined(group, result, now_ms)

    def join_timed_out(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        left_ms = group.initial_delay_left_ms
        if left_ms and group.new_member_added:
            delay_ms = min(self.config.initial_rebalance_delay_ms, left_ms)
            group.new_member_added = False
            group.initial_delay_left_ms = left_ms - delay_ms
            self.timers.set(TimerKey(group.group_id, TimerKind.JOIN), now_ms + delay_ms)
            return
        group.new_member_added = False
        self.complete_join(group, result, now_ms)

    def sync_timed_out(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Remove members that never sent SyncGroup, and rebalance without them."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        if not group.unsynced_members:
            return
        for member_id in list(group.unsynced_members):
            self._remove(group, result, member_id)
        self.prepare(group, result, now_ms)

    # Shared with `Joiner` and `GroupStore`

    def keep_alive(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        key = TimerKey(group.group_id, TimerKind.SESSION, member.member_id)
        self.timers.set(key, now_ms + member.session_timeout_ms)

    def persist(self, group: ClassicGroup, result: ShardResult) -> None:
        """Write the group's record."""
        result.groups_before.setdefault(group.group_id, group.durable)
        group.durable = group.to_value()
        result.records.append(group_record(group.group_id, group.durable))

    def forget_timers(self, group: ClassicGroup) -> None:
        """Cancel all deadlines of a group."""
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self.timers.cancel(TimerKey(group.group_id, kind))
        for member_id in group.members:
            self.timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member_id))
        for member_id in group.pending_members:
            self.timers.cancel(TimerKey(group.group_id, TimerKind.PENDING, member_id))

    def answer_waiting(
        self, result: ShardResult, member: ClassicMember, group: ClassicGroup, error: ErrorCode
    ) -> None:
        """Answer the waiting requests of `member` with `error`."""
        joining = group.unpark_join(member)
        if joining is not None:
            result.reply(joining, JoinAnswer(error))
        if member.syncing is not None:
            result.reply(member.syncing, SyncAnswer(error))
            member.syncing = None

    def _check(self, group: ClassicGroup, caller: ClassicCaller) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(caller.member_id, caller.instance_id)
        if error is ErrorCode.NONE and caller.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _start_generation(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        group.protocol_name = group.choose_protocol()
        group.topics = group.subscribed_topics()
        group.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in group.members.values():
            member.assignment = b""
            member.is_new = False
            group.unsynced_members[member.member_id] = None
            self.keep_alive(group, member, now_ms)
            request = group.unpark_join(member)
            if request is None:
                continue
            is_leader = member.member_id == group.leader_id
            answer = JoinAnswer(
                ErrorCode.NONE,
                member.member_id,
                group.generation,
                group.protocol_type,
                group.protocol_name,
                group.leader_id or "",
                members=group.joined_members() if is_leader else (),
            )
            result.reply(request, answer)
        sync_by_ms = now_ms + group.rebalance_timeout_ms()
        self.timers.set(TimerKey(group.group_id, TimerKind.SYNC), sync_by_ms)

    def _assign(
        self, group: ClassicGroup, result: ShardResult, assignments: Mapping[str, bytes], now_ms: int
    ) -> None:
        group.transition_to(GroupState.STABLE, now_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.persist(group, result)
        for member in group.members.values():
            if member.syncing is not None:
                result.reply(member.syncing, self._sync_answer(group, member))
                member.syncing = None
                self.keep_alive(group, member, now_ms)

    def _sync_answer(self, group: ClassicGroup, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)

    def _stop_waiting_for_sync(self, group: ClassicGroup) -> None:
        if not group.unsynced_members:
            self.timers.cancel(TimerKey(group.group_id, TimerKind.SYNC))

    def _fail_syncs(self, group: ClassicGroup, result: ShardResult, error: ErrorCode) -> None:
        for member in group.members.values():
            if member.syncing is not None:
                result.reply(member.syncing, SyncAnswer(error))
                member.syncing = None

    def _remove(self, group: ClassicGroup, result: ShardResult, member_id: str) -> None:
        """Remove a member. Its waiting requests are answered with UNKNOWN_MEMBER_ID, so that it joins
        again."""
        self.answer_waiting(result, group.members[member_id], group, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        self.timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member_id))

    def _rebalance_after_departure(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Rebalance after a member has left, or complete a join phase that only waited for it."""
        if group.can_rebalance:
            self.prepare(group, result, now_ms)
        else:
            self.complete_join_if_all_joined(group, result, now_ms)
