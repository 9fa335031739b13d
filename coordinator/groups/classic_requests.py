"""Requests of Kafka's classic group protocol: look up the group, and handle the request or answer an
error."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.coordinator.groups.classic_group import ClassicCaller, ClassicGroup
from holdfast_log.coordinator.groups.classic_join import Join, Joiner
from holdfast_log.coordinator.groups.classic_rebalance import Sync
from holdfast_log.coordinator.groups.consumer_classic import ClassicMembers
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.effects import ErrorAnswer, JoinAnswer, ShardResult, SyncAnswer
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.member_memory import classic_bytes, consumer_group_bytes, protocols_bytes
from holdfast_log.coordinator.groups.records import fits
from holdfast_log.coordinator.groups.store import GroupStore
from holdfast_log.coordinator.groups.views import Group
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.errors import ErrorCode


class ClassicRequests:
    """JoinGroup, SyncGroup and Heartbeat of one shard. Each returns one `ShardResult`."""

    def __init__(self, store: GroupStore, new_id: Callable[[], str]) -> None:
        self._store = store
        self._rebalancer = store.rebalancer
        self._joiner = Joiner(store.rebalancer, new_id)
        self._in_consumer_groups = ClassicMembers(
            store.consumer_rebalancer, store.timers, store.cluster, new_id
        )

    def join(self, group_id: str, join: Join, now_ms: int) -> ShardResult:
        """JoinGroup. A first member creates the group, or makes one without members a classic one."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        error = self._joiner.check(join)
        if not group_id or not fits(group_id):
            error = ErrorCode.INVALID_GROUP_ID
        elif error is ErrorCode.NONE and isinstance(group, ManagedGroup):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif error is ErrorCode.NONE and group is None and join.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE and not self._has_memory(group, join):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is not ErrorCode.NONE:
            result.reply(join.request, JoinAnswer(error, join.member_id))
            return result
        if isinstance(group, ConsumerGroup) and group.members:
            self._in_consumer_groups.join(group, result, join, now_ms)
        else:
            self._joiner.join(self._classic_group(group_id, group, result), result, join, now_ms)
        self._store.settle(group_id, result, now_ms)
        return result

    def _classic_group(self, group_id: str, group: Group | None, result: ShardResult) -> ClassicGroup:
        """The group, if it is a classic one; else a new one, in place of a consumer group without members."""
        if isinstance(group, ClassicGroup):
            return group
        if isinstance(group, ConsumerGroup):
            self._store.consumer_rebalancer.delete(group, result)
        created = self._store.groups[group_id] = ClassicGroup(group_id)
        return created

    def _has_memory(self, group: Group | None, join: Join) -> bool:
        """Whether the subscriptions of a member fit the limits of a member, a group and all groups."""
        config = self._store.config
        size = protocols_bytes(join.protocols)
        if size > config.subscription_bytes_max:
            return False
        if isinstance(group, ClassicGroup):
            member = group.members.get(join.member_id)
            if member is not None and member.protocols == join.protocols:
                return True
            if size and not self._has_group_memory(group, join.member_id, size):
                return False
        elif isinstance(group, ConsumerGroup):
            held = consumer_group_bytes(group, without=join.member_id)
            if held + size > config.group_bytes_max:
                return False
        return self._store.memory.has_room(size)

    def _has_group_memory(self, group: ClassicGroup, member_id: str, size: int) -> bool:
        """Whether `size` more bytes fit the limit of the group. Its members are counted only when what has
        joined since the last count would be over the limit."""
        bytes_max = self._store.config.group_bytes_max
        if group.held_bytes is None or group.held_bytes + size > bytes_max:
            group.held_bytes = classic_bytes(group, without=member_id)
            if group.held_bytes + size > bytes_max:
                return False
        group.held_bytes += size
        return True

    def sync(self, group_id: str, sync: Sync, now_ms: int) -> ShardResult:
        """SyncGroup."""
        result = ShardResult()
        match self._store.groups.get(group_id):
            case ConsumerGroup() as consumers:
                self._in_consumer_groups.sync(consumers, result, sync, now_ms)
            case ClassicGroup() as group:
                size = sum(map(len, sync.assignments.values()))
                is_too_large = size > self._store.config.group_bytes_max
                if is_too_large or (size and not self._store.memory.has_room(size)):
                    result.reply(sync.request, SyncAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
                    return result
                if group.held_bytes is not None:
                    group.held_bytes += size
                self._rebalancer.sync(group, result, sync, now_ms)
            case _:
                result.reply(sync.request, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        return result

    def heartbeat(
        self, request: RequestToken, group_id: str, caller: ClassicCaller, now_ms: int
    ) -> ShardResult:
        """Heartbeat."""
        result = ShardResult()
        match self._store.groups.get(group_id):
            case ConsumerGroup() as consumers:
                self._in_consumer_groups.heartbeat(consumers, result, request, caller, now_ms)
            case ClassicGroup() as group:
                self._rebalancer.heartbeat(group, result, request, caller, now_ms)
            case _:
                result.reply(request, ErrorAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        return result
