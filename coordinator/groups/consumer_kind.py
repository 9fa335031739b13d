"""Consumer groups of KIP-848, as a shard sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from holdfast_log.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    encode_assignment,
    encode_subscription,
)
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer
from holdfast_log.coordinator.groups.consumer_records import ConsumerGroupValue
from holdfast_log.coordinator.groups.deadlines import TimerKey
from holdfast_log.coordinator.groups.effects import (
    ConsumerGroupInfo,
    ConsumerInfo,
    DescribeAnswer,
    DescribedMember,
    LeaveAnswer,
    LeftMember,
    ShardResult,
)
from holdfast_log.coordinator.groups.kinds import Expiry, GroupKind
from holdfast_log.coordinator.groups.member_memory import consumer_group_bytes
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.states import GroupState, GroupType
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode


class ConsumerKind(GroupKind[ConsumerGroup]):
    """Groups whose members send ConsumerGroupHeartbeat; some may still use the classic protocol. No request
    waits in them."""

    group_type = GroupType.CONSUMER
    value = ConsumerGroupValue

    def __init__(self, rebalancer: ConsumerRebalancer, offsets: GroupOffsets) -> None:
        self._rebalancer = rebalancer
        self._offsets = offsets

    def restored(self, group_id: str, value: ConsumerGroupValue) -> ConsumerGroup:
        return ConsumerGroup.from_value(group_id, value)

    def resume(self, group: ConsumerGroup, result: ShardResult, now_ms: int) -> None:
        self._rebalancer.resume(group, now_ms)

    def abandon(self, group: ConsumerGroup) -> Sequence[RequestToken]:
        self._rebalancer.forget_timers(group)
        return ()

    def leave(
        self,
        group: ConsumerGroup,
        result: ShardResult,
        request: RequestToken,
        members: Sequence[tuple[str, str | None]],
        now_ms: int,
    ) -> None:
        """How an administrator removes members, static ones by their instance ids."""
        left: list[LeftMember] = []
        for member_id, instance_id in members:
            found_id = member_id
            if instance_id is not None:
                found_id = group.static_members.get(instance_id, "")
            error = ErrorCode.NONE if found_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
            if error is ErrorCode.NONE and member_id not in ("", found_id):
                error = ErrorCode.FENCED_INSTANCE_ID
            if error is ErrorCode.NONE:
                self._rebalancer.remove(group, result, found_id, now_ms)
            left.append(LeftMember(member_id, instance_id, error))
        result.reply(request, LeaveAnswer(left))

    def topics_changed(
        self, group: ConsumerGroup, result: ShardResult, topics: Collection[str], now_ms: int
    ) -> None:
        self._rebalancer.topics_changed(group, result, topics, now_ms)

    def fall_due(self, group: ConsumerGroup, key: TimerKey, result: ShardResult, now_ms: int) -> None:
        if key.member_id in group.members:  # whatever it has not done in time
            self._rebalancer.remove(group, result, key.member_id, now_ms)

    def delete(self, group: ConsumerGroup, result: ShardResult) -> ErrorCode:
        self._offsets.delete_group(result, group.group_id)
        self._rebalancer.delete(group, result)
        return ErrorCode.NONE

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        return group.check_member(member_id or "", epoch)

    def topics_in_use(self, group: ConsumerGroup) -> Collection[str]:
        return group.subscribed()

    def expiry(self, group: ConsumerGroup) -> Expiry:
        if group.state is GroupState.EMPTY:
            return Expiry(group.empty_since_ms)
        return Expiry(still_read=group.subscribed())

    def is_vacant(self, group: ConsumerGroup) -> bool:
        return group.state is GroupState.EMPTY

    def describe(self, group: ConsumerGroup) -> DescribeAnswer:
        return DescribeAnswer(
            group.group_id,
            group.state.value,
            CONSUMER_PROTOCOL_TYPE,
            self._rebalancer.assignor_name(group),
            tuple(
                DescribedMember(
                    member.member_id,
                    member.meta.instance_id,
                    member.meta.client_id,
                    member.meta.client_host,
                    encode_subscription(sorted(member.subscribed())),
                    encode_assignment(group.named(member.current.assigned)),
                )
                for member in group.members.values()
            ),
        )

    def info(self, group: ConsumerGroup) -> ConsumerGroupInfo:
        """The answer to ConsumerGroupDescribe."""
        return ConsumerGroupInfo(
            group.group_id,
            ErrorCode.NONE,
            None,
            group.state.value,
            group.epoch,
            group.assignment_epoch,
            self._rebalancer.assignor_name(group),
            {topic.topic_id: topic.name for topic in group.topics},
            tuple(map(_info, group.members.values())),
        )

    def protocol_type(self, group: ConsumerGroup) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def member_bytes(self, group: ConsumerGroup, *, without: str = "") -> int:
        return consumer_group_bytes(group, without=without)


def _info(member: ConsumerMember) -> ConsumerInfo:
    meta = member.meta
    return ConsumerInfo(
        member.member_id,
        meta.instance_id,
        meta.rack_id,
        member.current.epoch,
        meta.client_id,
        meta.client_host,
        meta.topics,
        meta.regex,
        sorted(member.current.assigned),
        sorted(member.target),
        meta.classic is not None,
    )
