"""The group coordinator as a pure machine: one shard for each partition of `__consumer_offsets`.

Requests, deadlines and changes of topics go in; each returns one `ShardResult` of records, claims and
answers, performed in the order given in effects.py. Three protocols share the offsets: Kafka's classic
protocol, that of KIP-848, and the client rewrite's; in the last two the server assigns partitions. The
request that creates a group sets its type; an offsets-only group gets its type from its first member or its
CreateGroup, and a group of one of Kafka's protocols may change to the other (migration.py).

State changes in memory at once, so that later requests see it; no answer is sent before the records that it
depends on are durable. If the log refuses a result's records, the groups concerned return to their last
record, as after a change of coordinator, and all their waiting requests are answered with the error
(`refused`).

The shard uses no clock, network or log. Times are ms since the epoch and must not decrease.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast_log.coordinator.groups.classic_group import ClassicGroup
from holdfast_log.coordinator.groups.classic_requests import ClassicRequests
from holdfast_log.coordinator.groups.consumer_requests import ConsumerRequests
from holdfast_log.coordinator.groups.consumer_topics import ClusterTopics
from holdfast_log.coordinator.groups.effects import (
    DescribeAnswer,
    FetchedOffset,
    LeaveAnswer,
    LeftMember,
    ListAnswer,
    OffsetsAnswer,
    PartitionErrorsAnswer,
    ShardResult,
)
from holdfast_log.coordinator.groups.managed_requests import ManagedRequests
from holdfast_log.coordinator.groups.member_memory import MemberMemory
from holdfast_log.coordinator.groups.offsets import GroupOffsets, OffsetMemory
from holdfast_log.coordinator.groups.records import CommittedOffset, fits
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState, GroupType
from holdfast_log.coordinator.groups.store import GroupStore
from holdfast_log.coordinator.groups.views import Group, listed
from holdfast_log.coordinator.shards.effects import OversizedRecords, ProducerStamp, RequestToken
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition of an OffsetCommit. Only v1 of the request has a `commit_timestamp_ms`."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int | None = None


class GroupShard:
    """The groups and offsets of one partition of `__consumer_offsets`.

    `new_id` makes the random part of member ids. `partition_count(topic)` is a topic's number of partitions,
    0 if it does not exist; it has to know the cluster's topics when `loaded` is called. `memory` counts the
    members of all shards together, `offset_memory` their offsets. `cluster` has the topics for consumer
    groups. `backlog_began` is called when there is more to do than a turn's work: `work_off` is to be called,
    in later turns, until `has_backlog` is False.
    """

    def __init__(
        self,
        config: GroupSettings,
        *,
        new_id: Callable[[], str],
        partition_count: Callable[[str], int],
        memory: MemberMemory | None = None,
        offset_memory: OffsetMemory | None = None,
        cluster: ClusterTopics | None = None,
        backlog_began: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._store = GroupStore(config, partition_count, memory, offset_memory, cluster, backlog_began)
        self.member_bytes = self._store.member_bytes
        self._offsets = self._store.offsets
        self._timers = self._store.timers
        self.classic = ClassicRequests(self._store, new_id)
        """JoinGroup, SyncGroup, Heartbeat."""
        self.managed = ManagedRequests(self._store)
        """The requests of the client rewrite's protocol."""
        self.consumers = ConsumerRequests(self._store, new_id)
        """ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

    def close(self) -> None:
        """Another broker has the groups: they count no more in the memory of all shards."""
        self._offsets.close()

    # To look at

    def groups(self) -> list[Group]:
        return list(self._store.groups.values())

    @property
    def offsets(self) -> GroupOffsets:
        """The committed offsets; read only."""
        return self._offsets

    # The log

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Restore one record of the log; see `GroupStore.replay`. Raises `MalformedRecord`."""
        self._store.replay(key, value)

    def replay_open(self, stamp: ProducerStamp, key: bytes, value: bytes | None) -> None:
        """Restore one record of a transaction that the log's end leaves open. Raises `MalformedRecord`."""
        self._store.replay_open(stamp, key, value)

    def transaction_ended(self, producer_id: int, *, is_commit: bool, now_ms: int) -> ShardResult:
        """The log has the end marker of a producer's transaction: its offsets count, or are gone."""
        result = ShardResult()
        self._store.transaction_ended(result, producer_id, is_commit=is_commit, now_ms=now_ms)
        return result

    def loaded(self, now_ms: int) -> ShardResult:
        """All records have been replayed; requests may follow."""
        result = ShardResult()
        self._store.loaded(result, now_ms)
        return result

    def refused(self, result: ShardResult, error: ErrorCode, now_ms: int) -> ShardResult:
        """The log refused the records of `result`, the last one that this shard returned.

        The returned result replaces it and is performed in the same way.
        """
        return self._store.refused(result, error, now_ms)

    def too_large(self, result: ShardResult) -> OversizedRecords:
        if not result.groups_before:
            return OversizedRecords("offsets", ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return OversizedRecords(", ".join(result.groups_before), ErrorCode.UNKNOWN_SERVER_ERROR)

    def closed(self, error: ErrorCode) -> ShardResult:
        """Another broker leads the partition: answer all waiting requests. The shard cannot be used again."""
        result = ShardResult()
        for group in self._store.groups.values():
            if not self._store.kind(group).is_vacant(group):
                self._store.abandon(group, result, error)
        self._store.abandon_deletions(result, error)
        return result

    # Time and topics

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`, or None; may change with every event."""
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> ShardResult:
        """Handle all deadlines that have passed."""
        result = ShardResult()
        while (key := self._timers.pop_due(now_ms)) is not None:
            group = self._store.groups.get(key.group_id)
            if group is not None:
                self._store.kind(group).fall_due(group, key, result, now_ms)
                self._store.settle(key.group_id, result, now_ms)
        return result

    @property
    def has_backlog(self) -> bool:
        """Whether `work_off` has something to do."""
        return self._offsets.has_backlog

    def work_off(self, now_ms: int) -> ShardResult:
        """Do a step of what takes more than one turn."""
        result = ShardResult()
        self._store.work_off(result, now_ms)
        return result

    def group_ids(self) -> list[str]:
        """The ids of all groups, for calls of `expire_offsets`."""
        return list(self._store.groups)

    def expire_offsets(self, group_id: str, now_ms: int) -> ShardResult:
        """Delete the offsets of one group that are past `offsets.retention.minutes` (KIP-211)."""
        result = ShardResult()
        self._store.expire_offsets(group_id, result, now_ms)
        return result

    def topics_changed(self, topics: Collection[str], now_ms: int) -> ShardResult:
        """`topics` have been created or given more partitions."""
        result = ShardResult()
        # Classic groups, of which there may be a hundred thousand, learn of topics from their members.
        for group in [each for each in self._store.groups.values() if each.type is not GroupType.CLASSIC]:
            self._store.kind(group).topics_changed(group, result, topics, now_ms)
        return result

    def topics_deleted(self, topics: Collection[str], now_ms: int) -> ShardResult:
        """`topics` have been deleted: delete their offsets, which new topics of the same names must not
        inherit."""
        result = self.topics_changed(topics, now_ms)
        self._offsets.delete_topics(result, frozenset(topics))
        for group_id in dict.fromkeys(group_id for group_id, _ in result.offsets_before):
            self._store.drop_if_unused(group_id)
        return result

    # Requests for groups of all types

    def leave(
        self, request: RequestToken, group_id: str, members: Sequence[tuple[str, str | None]], now_ms: int
    ) -> ShardResult:
        """LeaveGroup of (member id, instance id) pairs."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        if group is not None:
            self._store.kind(group).leave(group, result, request, members, now_ms)
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            left = [LeftMember(member_id, instance_id, error) for member_id, instance_id in members]
            result.reply(request, LeaveAnswer(left))
        self._store.settle(group_id, result, now_ms)
        return result

    def commit_offsets(
        self,
        request: RequestToken,
        group_id: str,
        offsets: Sequence[OffsetToCommit],
        *,
        now_ms: int,
        generation: int = NO_GENERATION,
        member_id: str = "",
        instance_id: str | None = None,
        retention_ms: int | None = None,
        stamp: ProducerStamp | None = None,
    ) -> ShardResult:
        """OffsetCommit. `retention_ms` comes from v2-4 of the request. With a `stamp` it is TxnOffsetCommit:
        the offsets count once that producer's transaction is committed.

        The caller refuses partitions that do not exist.
        """
        result = ShardResult(stamp=stamp)
        error, group = self._check_commit(group_id, generation, member_id, instance_id)
        if stamp is not None and group is not None:
            error = _in_transaction(error, group, generation, member_id, instance_id)
        if error is not ErrorCode.NONE:
            result.reply(request, PartitionErrorsAnswer(error, [(o.partition, error) for o in offsets]))
            return result
        if group is None:
            group = self._store.groups[group_id] = ClassicGroup(group_id)
        kind = self._store.kind(group)
        kind.has_committed(group, member_id, now_ms)
        expire_timestamp_ms = None if retention_ms is None else now_ms + retention_ms
        outcomes: list[tuple[TopicPartition, ErrorCode]] = []
        for offset in offsets:
            if not kind.may_commit(group, member_id, offset.partition):
                outcomes.append((offset.partition, ErrorCode.ILLEGAL_GENERATION))
                continue
            if stamp is not None and self._offsets.is_doomed(group_id, offset.partition):
                # What the topic or group of the same name had committed is still being deleted.
                outcomes.append((offset.partition, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                continue
            if len(offset.metadata.encode()) > self._config.metadata_max_bytes:
                outcomes.append((offset.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            if not self._store.has_room_for_offset(group_id, offset.partition, offset.metadata, stamp):
                outcomes.append((offset.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            committed = CommittedOffset(
                offset.offset,
                offset.leader_epoch,
                offset.metadata,
                now_ms if offset.commit_timestamp_ms is None else offset.commit_timestamp_ms,
                expire_timestamp_ms,
            )
            if stamp is None:
                self._offsets.commit(result, group_id, offset.partition, committed)
            else:
                self._offsets.commit_pending(result, stamp.producer_id, group_id, offset.partition, committed)
            outcomes.append((offset.partition, ErrorCode.NONE))
        self._store.drop_if_unused(group_id)
        result.reply(request, PartitionErrorsAnswer(ErrorCode.NONE, outcomes))
        if stamp is None:
            self._store.offsets_settled(group_id, result, now_ms)
        return result

    def fetch_offsets(
        self,
        request: RequestToken,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        epoch: int = NO_GENERATION,
    ) -> ShardResult:
        """OffsetFetch of one group; `partitions` None means all. An unknown group has no offsets. With
        `require_stable`, one that an open transaction may replace has the error UNSTABLE_OFFSET_COMMIT
        (KIP-447). A member of a consumer group may say who it is, from v9 of the request."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        error = ErrorCode.NONE
        if group is not None:
            error = self._store.kind(group).check_fetch(group, member_id, epoch)
        if error is not ErrorCode.NONE:
            result.reply(request, OffsetsAnswer(group_id, (), error))
            return result
        pending = self._offsets.pending
        offsets: list[FetchedOffset] = []
        if partitions is None:
            unstable = pending.partitions_of(group_id) if require_stable else ()
            partitions = dict.fromkeys([*self._offsets.of_group(group_id), *unstable])
        for partition in partitions:
            if require_stable and pending.has(group_id, partition):
                offsets.append(FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            found = self._offsets.get(group_id, partition)
            offsets.append(
                FetchedOffset(partition)
                if found is None
                else FetchedOffset(partition, found.offset, found.leader_epoch, found.metadata)
            )
        result.reply(request, OffsetsAnswer(group_id, offsets))
        return result

    def committed_partitions(
        self, request: RequestToken, group_id: str, *, require_stable: bool = False
    ) -> ShardResult:
        """The partitions that OffsetFetch of all partitions of a group answers."""
        result = ShardResult()
        unstable = self._offsets.pending.partitions_of(group_id) if require_stable else ()
        result.reply(request, dict.fromkeys([*self._offsets.of_group(group_id), *unstable]))
        return result

    def delete_offsets(
        self, request: RequestToken, group_id: str, partitions: Sequence[TopicPartition]
    ) -> ShardResult:
        """OffsetDelete: any offsets of an empty group; with members only those of topics that no member
        reads."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        if group is None:
            result.reply(request, PartitionErrorsAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
            return result
        is_read = group.state is not GroupState.EMPTY
        still_read = self._store.kind(group).topics_in_use(group) if is_read else ()
        if still_read is None:
            result.reply(request, PartitionErrorsAnswer(ErrorCode.NON_EMPTY_GROUP))
            return result
        outcomes: list[tuple[TopicPartition, ErrorCode]] = []
        for partition in partitions:
            if partition.topic in still_read:
                outcomes.append((partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            else:
                self._offsets.delete(result, group_id, partition)
                outcomes.append((partition, ErrorCode.NONE))
        self._store.drop_if_unused(group_id)
        result.reply(request, PartitionErrorsAnswer(ErrorCode.NONE, outcomes))
        return result

    def describe_group(self, request: RequestToken, group_id: str) -> ShardResult:
        """DescribeGroups, one group at a time."""
        result = ShardResult()
        group = self._store.groups.get(group_id)
        missing = DescribeAnswer(group_id, GroupState.DEAD.value)
        result.reply(request, missing if group is None else self._store.kind(group).describe(group))
        return result

    def list_groups(
        self, request: RequestToken, states: Collection[str] = (), types: Collection[str] = ()
    ) -> ShardResult:
        """ListGroups: the groups of this shard."""
        result = ShardResult()
        result.reply(
            request, ListAnswer(listed(self._store.groups.values(), states, types, self._protocol_type))
        )
        return result

    def delete_groups(self, request: RequestToken, group_ids: Sequence[str]) -> ShardResult:
        """DeleteGroups, and the client rewrite's DeleteGroup: empty groups only, and not ephemeral ones."""
        result = ShardResult()
        self._store.delete_all(request, group_ids, result)
        return result

    def _check_commit(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> tuple[ErrorCode, Group | None]:
        group = self._store.groups.get(group_id)
        if group is not None:
            return group.check_commit(generation, member_id, instance_id), group
        if not fits(group_id):
            return ErrorCode.INVALID_GROUP_ID, None
        # A caller with a generation was a member once; without one it only stores offsets
        return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE, None

    def _protocol_type(self, group: Group) -> str:
        return self._store.kind(group).protocol_type(group)


def _in_transaction(
    error: ErrorCode, group: Group, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    """The outcome of `check_commit` for offsets in a transaction: a producer may be no member, as before
    KIP-447, and one that is commits also while the group assigns partitions."""
    is_nobody = generation < 0 and not member_id and instance_id is None
    if is_nobody and group.state is not GroupState.DEAD:
        return ErrorCode.NONE
    if error is ErrorCode.STALE_MEMBER_EPOCH:
        return ErrorCode.ILLEGAL_GENERATION  # which producers know
    return ErrorCode.NONE if error is ErrorCode.REBALANCE_IN_PROGRESS else error
