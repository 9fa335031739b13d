"""Groups under the client rewrite's protocol, as a shard sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast_log.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    encode_assignment,
    encode_subscription,
)
from holdfast_log.coordinator.groups.deadlines import TimerKey, TimerKind
from holdfast_log.coordinator.groups.effects import DescribeAnswer, DescribedMember, ShardResult
from holdfast_log.coordinator.groups.kinds import Expiry, GroupKind
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.managed_rebalance import ManagedRebalancer
from holdfast_log.coordinator.groups.member_memory import managed_bytes
from holdfast_log.coordinator.groups.records import ManagedGroupValue
from holdfast_log.coordinator.groups.states import GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


class ManagedKind(GroupKind[ManagedGroup]):
    """Groups whose members register, and whose partitions the coordinator assigns.

    A managed group and the offsets of its topics stay until the group is deleted.
    """

    group_type = GroupType.MANAGED
    value = ManagedGroupValue

    def __init__(self, rebalancer: ManagedRebalancer) -> None:
        self._rebalancer = rebalancer

    def restored(self, group_id: str, value: ManagedGroupValue) -> ManagedGroup:
        return ManagedGroup.from_value(group_id, value)

    def resume(self, group: ManagedGroup, result: ShardResult, now_ms: int) -> None:
        self._rebalancer.resume(group, result, now_ms)

    def abandon(self, group: ManagedGroup) -> Sequence[RequestToken]:
        self._rebalancer.forget_timers(group)
        waiting = [member.registering for member in group.members.values()]
        return [*waiting, *(rewind.request for rewind in group.rewinds)]

    def leave(
        self,
        group: ManagedGroup,
        result: ShardResult,
        request: RequestToken,
        members: Sequence[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        self._rebalancer.leave(group, result, request, members, now_ms)

    def topics_changed(
        self, group: ManagedGroup, result: ShardResult, topics: Collection[str], now_ms: int
    ) -> None:
        self._rebalancer.topics_changed(group, result, topics, now_ms)

    def fall_due(self, group: ManagedGroup, key: TimerKey, result: ShardResult, now_ms: int) -> None:
        match key.kind:
            case TimerKind.SESSION:
                self._rebalancer.session_expired(group, result, key.member_id, now_ms)
            case TimerKind.UNUSED:
                self._rebalancer.unused_expired(group, result)

    def delete(self, group: ManagedGroup, result: ShardResult) -> ErrorCode:
        if group.ephemeral:
            return ErrorCode.INVALID_REQUEST
        self._rebalancer.delete(group, result)
        return ErrorCode.NONE

    def may_commit(self, group: ManagedGroup, member_id: str, partition: TopicPartition) -> bool:
        return group.may_commit(member_id, partition)

    def topics_in_use(self, group: ManagedGroup) -> Collection[str]:
        return group.partitions

    def expiry(self, group: ManagedGroup) -> Expiry:
        return Expiry(still_read=frozenset(group.partitions))

    def is_vacant(self, group: ManagedGroup) -> bool:
        return False

    def describe(self, group: ManagedGroup) -> DescribeAnswer:
        subscription = encode_subscription(group.partitions)
        return DescribeAnswer(
            group.group_id,
            group.state.value,
            CONSUMER_PROTOCOL_TYPE,
            group.assignment_strategy,
            tuple(
                DescribedMember(
                    member.consumer_id,
                    None,
                    member.client_id,
                    member.client_host,
                    subscription,
                    encode_assignment(member.owned),
                )
                for member in group.members.values()
            ),
        )

    def protocol_type(self, group: ManagedGroup) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def member_bytes(self, group: ManagedGroup, *, without: str = "") -> int:
        return managed_bytes(group, without=without)
