"""The resources that this broker decides about.

The leader of a partition decides about that partition, and the leader of the partition of
`__consumer_offsets` that keeps a group decides about the group's names (`group_names`). Records are loaded
into the table when this broker begins to lead, and unloaded when it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.ownership.group_names import GroupNames, NamedGroup, NamedGroups
from holdfast_log.broker.ownership.record_loading import RecordLoading
from holdfast_log.broker.ownership.resources import partition_key
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.coordinator.clock import Clock, now_ms
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.ownership.records import NameKey, Owner, PartitionKey, ResourceKey, topic_owner
from holdfast_log.coordinator.ownership.store import (
    DecidingPartition,
    FoundRecord,
    FoundRecords,
    OwnershipStore,
)
from holdfast_log.coordinator.shared_reads import SharedReads
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.ownership import NO_PARTITION, LossReason
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class _LedPartition:
    """A partition that this broker leads in one leader epoch, and the groups whose names it decides about."""

    partition: Partition
    leader_epoch: int
    groups: NamedGroups = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _LoadedAgain:
    """Groups whose names have been loaded again before the partition `led` is led in a new leader epoch."""

    led: _LedPartition
    groups: dict[str, None]


class DecidedResources:
    """Knows which resources this broker decides about, and keeps their records in the table.

    `names_partition` returns the partition of `__consumer_offsets` that keeps a group, None while that topic
    does not exist. `table_changed` is called after each change of the table.
    """

    def __init__(
        self,
        replicas: Replicas,
        table: OwnershipTable,
        store: OwnershipStore,
        names_partition: Callable[[str], int | None],
        clock: Clock,
        table_changed: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._table = table
        self._store = store
        self._names_partition = names_partition
        self._clock = clock
        self._table_changed = table_changed
        self._records = RecordLoading(table, self._now_ms)
        self._names = GroupNames(store, table, self._records, clock, table_changed)
        self._all_names = SharedReads(clock, self._read_all_names)
        self._led: dict[TopicPartition, _LedPartition] = {}
        self._prepared: dict[PartitionKey, FoundRecord] = {}
        """Records read for the LeaderAndIsr request that is about to be applied."""
        self._topic_owners: dict[PartitionKey, Owner | None] = {}
        """The owner of the whole topic for each partition read with them."""
        self._loaded_again: dict[TopicPartition, _LoadedAgain] = {}
        """The groups whose names are known as they are recorded now, for the same request."""

    # -- leadership ------------------------------------------------------------------------------------

    def prepare(self, request: LeaderAndIsrRequest) -> Deferred[None]:
        """Read the records of the partitions that this broker is about to lead. The caller waits for this
        before the broker leads.

        The records contain all grants of the leader before: it cannot write any more, since the controller
        has written the new leader. Fails with `SessionExpired` once ZooKeeper is closed.
        """
        keys = {
            PartitionKey(topic.topic_id, state.partition_index, topic.topic_name): state.leader_epoch
            for topic in request.topic_states
            for state in topic.partition_states
            if state.leader == self._replicas.local_id
            and topic.topic_id != ZERO_ID
            and self._is_new(topic.topic_name, state.partition_index, state.leader_epoch)
        }
        if not keys:
            return succeed(None)
        return ensureDeferred(self._prepare(keys))

    async def _prepare(self, keys: Mapping[PartitionKey, int]) -> None:
        """Prepare for leading partitions in these leader epochs."""
        # Of very many partitions few are first ones: to look for these by topic takes a turn much less.
        firsts = {topic_id: PartitionKey(topic_id, 0, topic) for topic_id, topic in _topics_of(keys).items()}
        wanted = [*keys, *(first for first in firsts.values() if first not in keys)]
        self._records_read(await self._store.read_partitions(wanted), keys, firsts)
        self._loaded_again = {}
        for key, leader_epoch in keys.items():
            where = TopicPartition(key.topic, key.index)
            led = self._led_before(where, leader_epoch)
            if led is not None and led.groups:
                await self._load_again(where, led, await self._names.read_again(led.groups))

    def _led_before(self, where: TopicPartition, leader_epoch: int) -> _LedPartition | None:
        """This broker's leadership of a partition in an epoch before `leader_epoch`; None if it has none.

        A late order for an earlier epoch is refused, and this broker goes on writing names meanwhile: what it
        reads for that order may be out of date.
        """
        led = self._led.get(where)
        return led if led is not None and led.leader_epoch < leader_epoch else None

    async def _load_again(
        self, where: TopicPartition, led: _LedPartition, found: Mapping[str, FoundRecords]
    ) -> None:
        """Take over the names of groups as they are recorded now. Their waiters keep their places.

        This broker has led before, and other brokers may have led in between. It does not lead again yet, but
        nobody can write under an earlier leadership any more: what was read stays true.
        """
        is_led = partial(self._is_led_by, where, led)
        if not await self._names.load_again(found, is_led):
            return  # It has stopped leading, which unloads all names.
        self._loaded_again[where] = _LoadedAgain(led, dict.fromkeys(found))

    def _is_led_by(self, where: TopicPartition, led: _LedPartition) -> bool:
        return self._led.get(where) is led

    def _is_new(self, topic: str, index: int, leader_epoch: int) -> bool:
        led = self._led.get(TopicPartition(topic, index))
        return led is None or led.leader_epoch != leader_epoch

    def _records_read(
        self, found: FoundRecords, keys: Collection[PartitionKey], firsts: Mapping[UUID, PartitionKey]
    ) -> None:
        self._table.count_from(found.incarnations_from)
        records = {each.key: each for each in found.records if isinstance(each.key, PartitionKey)}
        owners = {topic_id: _topic_owner(records.get(first)) for topic_id, first in firsts.items()}
        self._prepared = {key: records[key] for key in keys if key in records} if records else {}
        self._topic_owners = {key: owners[key.topic_id] for key in keys if key.index > 0}

    def role_changed(self, partition: Partition) -> None:
        """This broker leads the partition now, or has stopped leading it: load its record, or unload it."""
        where = TopicPartition(partition.topic, partition.index)
        led = self._led.pop(where, None)
        if not isinstance(partition.role, Leadership):
            if led is not None:
                self._unload(led)
            return
        key = partition_key(partition)
        again = self._loaded_again.pop(where, None)
        kept = again.groups if again is not None and again.led is led else {}
        if led is not None:
            # It led before, and other brokers may have led in between: what it has not loaded again may be
            # out of date.
            self._names.unload(led.groups, kept)
        groups = {name: NamedGroup(is_read=True) for name in kept}
        self._led[where] = _LedPartition(partition, partition.leader_epoch, groups)
        found = self._prepared.pop(key, None)
        if found is not None:
            self._records.load(found)
        elif led is not None:
            self._records.unload_unwritten(key)
        if key in self._topic_owners:
            # Before this broker leads: nobody can have written to a partition that was just added.
            self._table.reserve(key, self._topic_owners.pop(key), self._now_ms())
        self._table_changed()

    def _unload(self, led: _LedPartition) -> None:
        is_deleted = led.partition.is_deleted
        reason = LossReason.DELETED if is_deleted else LossReason.NONE
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._names.unload(led.groups)
        key = partition_key(led.partition)
        self._records.unload(key, BrokerError(code), reason)
        self._table_changed()

    # -- requests --------------------------------------------------------------------------------------

    def locate(self, group: str, name: str, index: int) -> ResourceKey:
        """The key of a resource that this broker decides about.

        Raises BrokerError: what `Replicas.partition` raises, NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS for a name of a group whose names have not
        been read (`read_names`), and KAFKA_STORAGE_ERROR if the resource's record cannot be decoded.
        """
        key: ResourceKey
        if index == NO_PARTITION:
            key = NameKey(group, name)
            self._check_read(key)
        else:
            partition = self._replicas.partition(name, index)
            self._led_at(TopicPartition(name, index), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            key = partition_key(partition)
        if self._records.is_unreadable(key):
            raise error_for(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the ownership record of {key} in ZooKeeper cannot be decoded; the broker's log says why",
            )
        return key

    def refusal(self, key: ResourceKey) -> BrokerError | None:
        """Why this broker no longer decides about a resource; None if it still does."""
        try:
            if isinstance(key, NameKey):
                self._check_read(key)
            elif self.partition(key) is None:
                return BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except BrokerError as error:
            return error
        return None

    def _check_read(self, key: NameKey) -> None:
        group = self._led_of_group(key.group).groups.get(key.group)
        if group is None or not group.is_read:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def read_names(self, group: str) -> Deferred[None]:
        """Fires once the names of a group have been read. Raises, and fails with, what `locate` raises."""
        return self._names.read(self._led_of_group(group).groups, group)

    def read_all_names(self) -> Deferred[None]:
        """Fires once the names of all groups that this broker coordinates are read, or their reading failed.

        Those who ask meanwhile share the next reading. Fails with `SessionExpired` once ZooKeeper is closed.
        """
        return self._all_names.ask()

    def _read_all_names(self) -> Deferred[None]:
        return ensureDeferred(self._names.read_all(lambda group: self._led_of_group(group).groups))

    def _now_ms(self) -> int:
        return now_ms(self._clock)

    def _led_of_group(self, group: str) -> _LedPartition:
        index = self._names_partition(group)
        if index is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} has not been created yet")
        return self._led_at(TopicPartition(OFFSETS_TOPIC, index), ErrorCode.NOT_COORDINATOR)

    def _led_at(self, where: TopicPartition, otherwise: ErrorCode) -> _LedPartition:
        led = self._led.get(where)
        if led is None:
            raise BrokerError(otherwise)
        return led

    def led_for(self, key: ResourceKey) -> Partition:
        """The partition by whose leadership this broker decides about a resource.

        Raises BrokerError if this broker does not decide about it.
        """
        return self._led_for(key).partition

    def _led_for(self, key: ResourceKey) -> _LedPartition:
        if isinstance(key, NameKey):
            return self._led_of_group(key.group)
        return self._led_at(TopicPartition(key.topic, key.index), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def deciding_partition(self, key: ResourceKey) -> DecidingPartition:
        """The leadership by which this broker decides about a resource; its record is written under it.

        Raises BrokerError if this broker does not decide about it, or not yet: COORDINATOR_LOAD_IN_PROGRESS
        while the table still has names of the group from an earlier leadership.
        """
        led = self._led_for(key)
        if isinstance(key, NameKey) and self._names.is_leaving(key.group):
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        partition = led.partition
        return DecidingPartition(
            partition.topic, partition.index, partition.local_id, led.leader_epoch, partition.partition_epoch
        )

    def partition(self, key: PartitionKey) -> Partition | None:
        """The partition, if this broker leads it."""
        led = self._led.get(TopicPartition(key.topic, key.index))
        return None if led is None or led.partition.topic_id != key.topic_id else led.partition

    async def examine_reservation(self, key: PartitionKey) -> None:
        """Read who owns the whole topic of a reserved partition, and keep the partition for that owner."""
        try:
            leader_epoch = self.deciding_partition(key).leader_epoch
            found = await self._store.read(key.first)
            if self.deciding_partition(key).leader_epoch != leader_epoch:
                return
        except BrokerError:
            return  # Another broker decides about it now.
        owner = _topic_owner(found.records[0]) if found.records else None
        self._table.reserve(key, owner, self._now_ms())
        self._table_changed()

    def reload(self, key: ResourceKey) -> Deferred[None]:
        """Read and load the record of one resource, after a write whose outcome is unknown."""
        return ensureDeferred(self._reload(key))

    async def _reload(self, key: ResourceKey) -> None:
        try:
            leader_epoch = self.deciding_partition(key).leader_epoch
            found = await self._store.read(key)
            if self.deciding_partition(key).leader_epoch != leader_epoch:
                return
        except BrokerError:
            return  # Another broker decides about it now.
        self._table.count_from(found.incarnations_from)
        if not found.records:
            self._records.unload_unwritten(key)
        for each in found.records:
            self._records.load(each)
        self._table_changed()


def _topics_of(keys: Iterable[PartitionKey]) -> dict[UUID, str]:
    """The topics of these partitions, by id."""
    return {key.topic_id: key.topic for key in keys}


def _topic_owner(first: FoundRecord | None) -> Owner | None:
    """The owner of a whole topic, by the record of its partition 0; None if there is none."""
    return None if first is None or first.record is None else topic_owner(first.record)
