"""The classic protocol between two generations: rounds, assignments, heartbeats, departures, deadlines.

A round begins when a member comes, goes or wants another protocol (`prepare`), ends when everybody has
joined or the time is up (`complete_join`), and its generation is complete when the leader's assignment is in
(`sync`). Behaviour is that of Kafka's coordinator, KIP-62, KIP-134, KIP-345, KIP-389 and KIP-394 included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.groups.classic_group import ClassicGroup, ClassicMember
from coordinator.groups.deadlines import TimerKey, TimerKind
from coordinator.groups.effects import (
    ErrorAnswer,
    JoinAnswer,
    LeaveAnswer,
    LeftMember,
    RequestToken,
    ShardResult,
    SyncAnswer,
)
from coordinator.groups.records import group_record
from coordinator.groups.settings import GroupSettings
from coordinator.groups.states import GroupState
from coordinator.timers import Timers
from protocol.errors import ErrorCode


class ClassicRebalancer:
    """What happens to a `ClassicGroup`, but for JoinGroup, which is `Joiner`'s."""

    def __init__(self, config: GroupSettings, timers: Timers[TimerKey]) -> None:
        self.config = config
        self.timers = timers

    # Requests

    def sync(
        self,
        group: ClassicGroup,
        result: ShardResult,
        request: RequestToken,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
        now_ms: int,
    ) -> None:
        """SyncGroup: the leader brings the assignment, everybody takes theirs."""
        error = self._check(group, member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            named_otherwise = (protocol_type is not None and protocol_type != group.protocol_type) or (
                protocol_name is not None and protocol_name != group.protocol_name
            )
            if named_otherwise:
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            result.reply(request, SyncAnswer(error))
            return
        member = group.members[member_id]
        group.unsynced_members.pop(member_id, None)
        self.keep_alive(group, member, now_ms)
        if group.state is GroupState.STABLE:
            result.reply(request, self._sync_answer(group, member))
            self._stop_waiting_for_sync(group)
            return
        if member.syncing is not None:  # the member gave up on its first request and sent another
            result.reply(member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = request
        if member_id == group.leader_id:
            self._assign(group, result, assignments, now_ms)
        self._stop_waiting_for_sync(group)

    def heartbeat(
        self,
        group: ClassicGroup,
        result: ShardResult,
        request: RequestToken,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
    ) -> None:
        """Heartbeat: REBALANCE_IN_PROGRESS asks the member to join anew."""
        error = self._check(group, member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            self.keep_alive(group, group.members[member_id], now_ms)
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
        """LeaveGroup: (member id, instance id) each; an empty member id means whoever is the instance now."""
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

    # Rounds

    def prepare(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Begin a round: members learn of it from their heartbeats and join anew."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, result, ErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel(TimerKey(group.group_id, TimerKind.SYNC))
        wait_ms = group.rebalance_timeout_ms()
        group.initial_delay_left_ms = None
        if group.state is GroupState.EMPTY:
            # More members are likely to be starting: wait a little for each, so that the first of many does
            # not get everything only to give it up at once (KIP-134).
            delay_ms = self.config.initial_rebalance_delay_ms
            group.initial_delay_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        self.timers.set(TimerKey(group.group_id, TimerKind.ROUND), now_ms + wait_ms)
        self.complete_join_if_all_joined(group, result, now_ms)

    def complete_join_if_all_joined(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay_left_ms is None
            and group.all_have_joined()
        ):
            self.complete_join(group, result, now_ms)

    def complete_join(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Form a generation of those who have joined and of the static members, who may be away a while."""
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(group, result, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined: nobody could assign. Their sessions decide.
            wait_ms = max(group.rebalance_timeout_ms(), 1)
            self.timers.set(TimerKey(group.group_id, TimerKind.ROUND), now_ms + wait_ms)
            return
        self.timers.cancel(TimerKey(group.group_id, TimerKind.ROUND))
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
            # It cannot heartbeat while its socket waits for us: it is we who are slow.
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
            self.timers.set(TimerKey(group.group_id, TimerKind.ROUND), now_ms + delay_ms)
            return
        group.new_member_added = False
        self.complete_join(group, result, now_ms)

    def sync_timed_out(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Drop those who never asked for their assignment, or a round would wait for them for ever."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        if not group.unsynced_members:
            return
        for member_id in list(group.unsynced_members):
            self._remove(group, result, member_id)
        self.prepare(group, result, now_ms)

    # Parts of the above that JoinGroup needs too

    def keep_alive(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        key = TimerKey(group.group_id, TimerKind.SESSION, member.member_id)
        self.timers.set(key, now_ms + member.session_timeout_ms)

    def persist(self, group: ClassicGroup, result: ShardResult) -> None:
        """Write the group as it is now."""
        result.groups_before.setdefault(group.group_id, group.durable)
        group.durable = group.to_value()
        result.records.append(group_record(group.group_id, group.durable))

    def forget_timers(self, group: ClassicGroup) -> None:
        """Cancel every deadline of a group that is going."""
        for kind in (TimerKind.ROUND, TimerKind.SYNC):
            self.timers.cancel(TimerKey(group.group_id, kind))
        for member_id in group.members:
            self.timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member_id))
        for member_id in group.pending_members:
            self.timers.cancel(TimerKey(group.group_id, TimerKind.PENDING, member_id))

    def answer_waiting(
        self, result: ShardResult, member: ClassicMember, group: ClassicGroup, error: ErrorCode
    ) -> None:
        """Answer whatever waits on `member` with `error`."""
        joining = group.unpark_join(member)
        if joining is not None:
            result.reply(joining, JoinAnswer(error))
        if member.syncing is not None:
            result.reply(member.syncing, SyncAnswer(error))
            member.syncing = None

    def _check(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
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
        """Remove a member. One that still waits is told UNKNOWN_MEMBER_ID, so that it starts anew."""
        self.answer_waiting(result, group.members[member_id], group, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        self.timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member_id))

    def _rebalance_after_departure(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        """Redistribute after a departure."""
        if group.can_rebalance:
            self.prepare(group, result, now_ms)
        else:
            self.complete_join_if_all_joined(group, result, now_ms)
