"""Classic groups, as a shard sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.classic_rebalance import ClassicRebalancer
from holdfast_log.coordinator.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import DescribeAnswer, DescribedMember, ShardResult
from holdfast_log.coordinator.groups.kinds import Expiry, GroupKind
from holdfast_log.coordinator.groups.member_memory import classic_bytes
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.records import GroupValue, group_record
from holdfast_log.coordinator.groups.states import GroupState, GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode


class ClassicKind(GroupKind[ClassicGroup]):
    """Groups of Kafka's classic protocol, and those that only keep offsets."""

    group_type = GroupType.CLASSIC
    value = GroupValue

    def __init__(self, rebalancer: ClassicRebalancer, offsets: GroupOffsets) -> None:
        self._rebalancer = rebalancer
        self._offsets = offsets

    def restored(self, group_id: str, value: GroupValue) -> ClassicGroup:
        return ClassicGroup.from_value(group_id, value)

    def resume(self, group: ClassicGroup, result: ShardResult, now_ms: int) -> None:
        for member in group.members.values():
            self._rebalancer.keep_alive(group, member, now_ms)
        is_too_large = len(group.members) > self._rebalancer.config.max_size
        if is_too_large or (group.durable is not None and group.durable.is_interrupted):
            self._rebalancer.prepare(group, result, now_ms)

    def abandon(self, group: ClassicGroup) -> Sequence[RequestToken]:
        self._rebalancer.forget_timers(group)
        waiting = [member.joining for member in group.members.values()]
        return [*waiting, *(member.syncing for member in group.members.values())]

    def leave(
        self,
        group: ClassicGroup,
        result: ShardResult,
        request: RequestToken,
        members: Sequence[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        self._rebalancer.leave(group, result, request, members, now_ms)

    def fall_due(self, group: ClassicGroup, key: TimerKey, result: ShardResult, now_ms: int) -> None:
        match key.kind:
            case TimerKind.SESSION:
                self._rebalancer.session_expired(group, result, key.member_id, now_ms)
            case TimerKind.PENDING:
                self._rebalancer.pending_expired(group, result, key.member_id, now_ms)
            case TimerKind.JOIN:
                self._rebalancer.join_timed_out(group, result, now_ms)
            case TimerKind.SYNC:
                self._rebalancer.sync_timed_out(group, result, now_ms)

    def delete(self, group: ClassicGroup, result: ShardResult) -> ErrorCode:
        group.state = GroupState.DEAD
        self._rebalancer.forget_timers(group)
        self._offsets.delete_group(result, group.group_id)
        if group.durable is not None:
            result.groups_before.setdefault(group.group_id, group.durable)
            group.durable = None
            result.records.append(group_record(group.group_id, None))
        return ErrorCode.NONE

    def has_committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        if member_id in group.members:
            self._rebalancer.keep_alive(group, group.members[member_id], now_ms)

    def topics_in_use(self, group: ClassicGroup) -> Collection[str] | None:
        return group.topics if group.protocol_type == CONSUMER_PROTOCOL_TYPE else None

    def expiry(self, group: ClassicGroup) -> Expiry | None:
        if group.state is GroupState.EMPTY:
            return Expiry(None if group.is_simple else group.state_since_ms)
        if group.state is GroupState.STABLE and group.topics is not None:
            return Expiry(still_read=group.topics)
        return None  # rebalancing, or the subscriptions are unknown

    def is_vacant(self, group: ClassicGroup) -> bool:
        return group.state is GroupState.EMPTY and not group.pending_members

    def describe(self, group: ClassicGroup) -> DescribeAnswer:
        # During a rebalance the protocol and the members' metadata for it are not valid
        is_stable = group.state is GroupState.STABLE
        return DescribeAnswer(
            group.group_id,
            group.state.value,
            self.protocol_type(group),
            (group.protocol_name or "") if is_stable else "",
            tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(group.protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ),
        )

    def protocol_type(self, group: ClassicGroup) -> str:
        return group.protocol_type or ""

    def member_bytes(self, group: ClassicGroup, *, without: str = "") -> int:
        return classic_bytes(group, without=without)
