"""The groups and offsets of a shard: restoring them from the log, undoing changes, deleting unused ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.classic_kind import ClassicKind
from holdfast_log.coordinator.groups.classic_rebalance import ClassicRebalancer
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.consumer_kind import ConsumerKind
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer
from holdfast_log.coordinator.groups.consumer_records import ConsumerKey, ReplayedGroup
from holdfast_log.coordinator.groups.consumer_topics import ClusterTopics, NoTopics
from holdfast_log.coordinator.groups.deadlines import TimerKey
from holdfast_log.coordinator.groups.effects import DeleteAnswer, ShardResult
from holdfast_log.coordinator.groups.kinds import GroupKind
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.managed_kind import ManagedKind
from holdfast_log.coordinator.groups.managed_rebalance import ManagedRebalancer
from holdfast_log.coordinator.groups.member_memory import MemberMemory
from holdfast_log.coordinator.groups.migration import Migration
from holdfast_log.coordinator.groups.offsets import GroupOffsets, OffsetMemory
from holdfast_log.coordinator.groups.records import (
    GroupKey,
    ManagedGroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_managed_group_value,
    decode_offset_value,
)
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState, GroupType
from holdfast_log.coordinator.groups.views import Group
from holdfast_log.coordinator.shards.effects import ProducerStamp, RecordsRefused, RequestToken
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True)
class Deletion:
    """A request to delete groups whose offsets are deleted in steps. `left`: the groups that have some."""

    request: RequestToken
    answer: DeleteAnswer
    left: set[str]


class GroupStore:
    """All groups of one shard with their offsets and deadlines, and the machines that handle their events."""

    def __init__(
        self,
        config: GroupSettings,
        partition_count: Callable[[str], int],
        memory: MemberMemory | None = None,
        offset_memory: OffsetMemory | None = None,
        cluster: ClusterTopics | None = None,
        backlog_began: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.offset_memory = offset_memory or OffsetMemory()
        self.memory = memory or MemberMemory(config.all_groups_bytes_max, self.member_bytes)
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets(self.offset_memory, config.offsets_step, backlog_began)
        self._step: ShardResult | None = None
        """What `work_off` has returned last."""
        self._deletions: list[Deletion] = []
        self.timers: Timers[TimerKey] = Timers()
        self.rebalancer = ClassicRebalancer(config, self.timers)
        self.managed_rebalancer = ManagedRebalancer(config, self.timers, self.offsets, partition_count)
        self.cluster = cluster or NoTopics()
        self.consumer_rebalancer = ConsumerRebalancer(config, self.timers, self.cluster)
        self.migration = Migration(config, self.rebalancer, self.consumer_rebalancer, self.cluster)
        self._replayed: dict[str, ReplayedGroup] = {}
        """The records of consumer groups while they are read: a group has several."""
        kinds: tuple[GroupKind[Any], ...] = (
            ClassicKind(self.rebalancer, self.offsets),
            ManagedKind(self.managed_rebalancer),
            ConsumerKind(self.consumer_rebalancer, self.offsets),
        )
        self._kinds = {kind.group_type: kind for kind in kinds}

    def kind(self, group: Group) -> GroupKind[Any]:
        """What handles whatever concerns a group of any protocol."""
        return self._kinds[group.type]

    def member_bytes(self) -> int:
        """Bytes of the subscriptions and assignments of all members, and of managed groups' topics."""
        return sum(self.kind(group).member_bytes(group) for group in self.groups.values())

    def has_room_for_offset(
        self, group_id: str, partition: TopicPartition, metadata: str, stamp: ProducerStamp | None = None
    ) -> bool:
        """Whether an offset fits the limits of a group's offsets and of all, also one in a producer's
        transaction. One that does not grow always fits."""
        grown = self.offsets.growth(group_id, partition, metadata, stamp)
        return grown <= 0 or (
            self.offsets.bytes_of(group_id) + grown <= self.config.group_offsets_bytes_max
            and self.offset_memory.bytes + grown <= self.config.all_offsets_bytes_max
        )

    # Restoring

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Restore one record; called in the order of the log. Keys of unknown versions are skipped.

        Raises `MalformedRecord`, without a change.
        """
        match decode_key(key):
            case OffsetKey(group_id, partition):
                committed = None if value is None else decode_offset_value(value)
                self.offsets.restore(group_id, partition, committed)
                if committed is None:
                    self.drop_if_unused(group_id)
                elif group_id not in self.groups:
                    self.groups[group_id] = ClassicGroup(group_id)
            case GroupKey(group_id):
                classic = None if value is None else decode_group_value(value)
                self._restore(group_id, classic, GroupType.CLASSIC)
            case ManagedGroupKey(group_id):
                managed = None if value is None else decode_managed_group_value(value)
                self._restore(group_id, managed, GroupType.MANAGED)
            case ConsumerKey(_, group_id) as consumer_key:
                self._replayed.setdefault(group_id, ReplayedGroup()).take(consumer_key, value)

    def replay_open(self, stamp: ProducerStamp, key: bytes, value: bytes | None) -> None:
        """Restore one record of an open transaction, an offset. Raises `MalformedRecord`."""
        match decode_key(key):
            case OffsetKey(group_id, partition) if value is not None:
                key_of_offset = self.offsets.pending.key(stamp.producer_id, group_id, partition)
                pending = self.offsets.pending.next(decode_offset_value(value))
                self.offsets.restore_pending(key_of_offset, pending)

    def transaction_ended(
        self, result: ShardResult, producer_id: int, *, is_commit: bool, now_ms: int
    ) -> None:
        """A producer's transaction has ended, by the marker in the log: no record is written for that."""
        self._offsets_changed(self.offsets.end_transaction(producer_id, is_commit=is_commit), result, now_ms)

    def work_off(self, result: ShardResult, now_ms: int) -> None:
        """Do a step of what takes more than one turn, and answer the requests that are done with it."""
        self._step = result
        self._offsets_changed(self.offsets.work_off(result), result, now_ms)
        self._end_deletions(result)

    def _offsets_changed(self, group_ids: Iterable[str], result: ShardResult, now_ms: int) -> None:
        for group_id in group_ids:
            if self.offsets.has_any(group_id):
                self.groups.setdefault(group_id, ClassicGroup(group_id))
            self.drop_if_unused(group_id)
            self.offsets_settled(group_id, result, now_ms)

    def offsets_settled(self, group_id: str, result: ShardResult, now_ms: int) -> None:
        """Go on with what may have waited until no open transaction can replace offsets of a group."""
        group = self.groups.get(group_id)
        if isinstance(group, ManagedGroup):
            self.managed_rebalancer.offsets_settled(group, result, now_ms)

    def loaded(self, result: ShardResult, now_ms: int) -> None:
        """All records have been replayed: each member has one session timeout from now to send a
        heartbeat."""
        replayed, self._replayed = self._replayed, {}
        for group_id, found in replayed.items():
            consumer = found.value()
            if consumer is not None:
                self.groups[group_id] = ConsumerGroup.from_value(group_id, consumer)
        for group_id in [*self.offsets.group_ids(), *self.offsets.pending.group_ids()]:
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)
        for group in [each for each in self.groups.values() if each.durable is not None]:
            self.kind(group).resume(group, result, now_ms)

    # Undoing

    def refused(self, refused: ShardResult, error: ErrorCode, now_ms: int) -> ShardResult:
        """The log refused the records of `refused`: undo it, and answer with `error`.

        Offsets return to their previous values. A group returns to its last record, as a new coordinator
        would restore it; all requests that wait in it are answered with `error` too.
        """
        result = ShardResult()
        for request, _ in refused.replies:
            result.reply(request, RecordsRefused(error))
        self.offsets.undo(refused)
        if refused is self._step:
            self.offsets.give_up()
            self._end_deletions(result, RecordsRefused(error))
        for group_id, value in refused.groups_before.items():
            group = self.groups.pop(group_id, None)
            if group is not None:
                self.abandon(group, result, error)
            if value is not None:
                kind = next(each for each in self._kinds.values() if isinstance(value, each.value))
                self.groups[group_id] = kind.restored(group_id, value)
        touched = [group_id for group_id, _ in refused.offsets_before]
        touched += [key.group_id for key in refused.pending_before]
        for group_id in dict.fromkeys([*touched, *refused.groups_before]):
            if self.offsets.has_any(group_id) or self.offsets.pending.has_any(group_id):
                self.groups.setdefault(group_id, ClassicGroup(group_id))
            self.drop_if_unused(group_id)
        for group_id in refused.groups_before:
            restored = self.groups.get(group_id)
            if restored is not None:
                self.kind(restored).resume(restored, result, now_ms)
        return result

    def abandon(self, group: Group, result: ShardResult, error: ErrorCode) -> None:
        """Discard a group in memory, answering all its waiting requests with `error`."""
        for request in self.kind(group).abandon(group):
            if request is not None:
                result.reply(request, RecordsRefused(error))

    # After an event

    def settle(self, group_id: str, result: ShardResult, now_ms: int) -> None:
        """What may follow an event that has changed the members of a group: its last member of the newer
        protocol is gone, or it is unused."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and self.migration.must_downgrade(group):
            self.groups[group_id] = self.migration.downgrade(group, result, now_ms)
        self.drop_if_unused(group_id)

    # Deleting

    def drop_if_unused(self, group_id: str) -> None:
        """Forget a group that is dead, or has neither members, offsets nor a record."""
        group = self.groups.get(group_id)
        if group is None:
            return
        is_unused = (
            self.kind(group).is_vacant(group)
            and group.durable is None
            and not self.offsets.has_any(group_id)
            and not self.offsets.pending.has_any(group_id)
        )
        if is_unused or group.state is GroupState.DEAD:
            del self.groups[group_id]

    def delete(self, group_id: str, result: ShardResult) -> ErrorCode:
        """Delete a group with its offsets: only an empty one, and not an ephemeral one."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        error = self.kind(group).delete(group, result)
        self.drop_if_unused(group_id)
        return error

    def delete_all(self, request: RequestToken, group_ids: Sequence[str], result: ShardResult) -> None:
        """Delete groups, and answer once all their offsets are deleted, too."""
        outcomes = [(group_id, self.delete(group_id, result)) for group_id in group_ids]
        answer = DeleteAnswer(outcomes)
        left = {group_id for group_id in group_ids if self.offsets.is_deleting(group_id)}
        if left:
            self._deletions.append(Deletion(request, answer, left))
        else:
            result.reply(request, answer)

    def abandon_deletions(self, result: ShardResult, error: ErrorCode) -> None:
        """Another broker has the groups: it may find some of the offsets that were to be deleted."""
        self._end_deletions(result, RecordsRefused(error))

    def _end_deletions(self, result: ShardResult, refusal: RecordsRefused | None = None) -> None:
        """Answer the deletions of groups that have no offsets any more, or all of them with `refusal`."""
        for deletion in list(self._deletions):
            deletion.left = {each for each in deletion.left if self.offsets.is_deleting(each)}
            if refusal is not None or not deletion.left:
                self._deletions.remove(deletion)
                result.reply(deletion.request, refusal or deletion.answer)

    def expire_offsets(self, group_id: str, result: ShardResult, now_ms: int) -> None:
        """Delete the expired offsets of a group, and a group that existed for them only."""
        group = self.groups.get(group_id)
        expiry = None if group is None else self.kind(group).expiry(group)
        if group is None or expiry is None:
            return
        expired = self.offsets.expired(
            group_id,
            retention_ms=self.config.offsets_retention_ms,
            unused_since_ms=expiry.unused_since_ms,
            still_read=expiry.still_read,
            now_ms=now_ms,
        )
        for partition in expired[: self.config.offsets_step]:
            self.offsets.delete(result, group_id, partition)
        self.offsets.expire_later(group_id, expired[self.config.offsets_step :])
        is_left_with_nothing = (
            self.kind(group).is_vacant(group)
            and not self.offsets.has_any(group_id)
            and not self.offsets.pending.has_any(group_id)
        )
        if is_left_with_nothing:
            self.delete(group_id, result)

    def _restore(self, group_id: str, value: Any, group_type: GroupType) -> None:
        if value is not None:
            self.groups[group_id] = self._kinds[group_type].restored(group_id, value)
        elif group_id in self.groups and self.groups[group_id].type is group_type:
            del self.groups[group_id]
