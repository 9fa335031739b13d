"""The resources that this broker decides about.

The leader of a partition decides about that partition, and the leader of the partition of
`__consumer_offsets` that keeps a group decides about the group's names. Records are loaded into the table
when this broker begins to lead, and unloaded when it stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, ensureDeferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.ownership.resources import NO_ZNODE, partition_key
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
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.ownership import NO_PARTITION, LossReason
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_GROUPS_MAX = 10_000
"""Maximum number of groups of one partition whose names stay read; beyond it, those without names are
forgotten."""

_GROUPS_AT_A_TIME = 50
"""Maximum number of groups whose names are read at the same time, for a request about all groups."""

NAMES_LOADED_AT_ONCE = 200
"""Names taken into the table in one turn of the reactor, a few ms: the broker must renew its lease
meanwhile."""


@dataclass(slots=True)
class _NamedGroup:
    """Whether the names of a group have been read, and the requests that wait for that."""

    is_read: bool = False
    waiting: list[Deferred[None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _LedPartition:
    """A partition that this broker leads in one leader epoch, and the groups whose names it decides about."""

    partition: Partition
    leader_epoch: int
    groups: dict[str, _NamedGroup] = field(default_factory=dict)


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
        self._led: dict[TopicPartition, _LedPartition] = {}
        self._prepared: dict[PartitionKey, FoundRecord] = {}
        """Records read for the LeaderAndIsr request that is about to be applied."""
        self._topic_owners: dict[PartitionKey, Owner | None] = {}
        """The owner of the whole topic for each partition read with them."""
        self._loaded_again: dict[TopicPartition, _LoadedAgain] = {}
        """The groups whose names are known as they are recorded now, for the same request."""
        self._unreadable: dict[ResourceKey, None] = {}
        """Resources whose records cannot be decoded: no client can claim them."""

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
        firsts = dict.fromkeys(key.first for key in keys)
        self._records_read(await self._store.read_partitions(list(dict.fromkeys([*keys, *firsts]))), keys)
        self._loaded_again = {}
        for key, leader_epoch in keys.items():
            where = TopicPartition(key.topic, key.index)
            led = self._led_before(where, leader_epoch)
            if led is not None and led.groups:
                await self._load_again(where, led, await self._read_again(led))

    async def _read_again(self, led: _LedPartition) -> dict[str, FoundRecords]:
        """The records of the names that this broker has decided about, and will decide about in the next
        leader epoch."""
        named = self._groups_with_names()
        groups = [name for name, group in led.groups.items() if group.is_read and name in named]
        found: dict[str, FoundRecords] = {}
        for start in range(0, len(groups), _GROUPS_AT_A_TIME):
            some = groups[start : start + _GROUPS_AT_A_TIME]
            reading = [ensureDeferred(self._store.read_names(group)) for group in some]
            outcomes: Any = await DeferredList(reading, consumeErrors=True)
            for group, (_, outcome) in zip(some, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    outcome.raiseException()
                found[group] = outcome
        return found

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
        for each in found.values():
            self._table.count_from(each.incarnations_from)
        recorded = [each for records in found.values() for each in records.records]
        names = {each.key for each in recorded}
        gone = [
            resource.key
            for resource in self._table.resources()
            if isinstance(resource.key, NameKey) and resource.key.group in found and resource.key not in names
        ]
        steps = [
            *(partial(self._load, each) for each in recorded),
            *(partial(self._unload_unwritten, key) for key in gone),
        ]
        for start in range(0, len(steps), NAMES_LOADED_AT_ONCE):
            if start:
                await self._next_turn()
            if self._led.get(where) is not led:
                return  # It has stopped leading, which has unloaded all names.
            for step in steps[start : start + NAMES_LOADED_AT_ONCE]:
                step()
            self._table_changed()
        self._loaded_again[where] = _LoadedAgain(led, dict.fromkeys(found))

    def _is_new(self, topic: str, index: int, leader_epoch: int) -> bool:
        led = self._led.get(TopicPartition(topic, index))
        return led is None or led.leader_epoch != leader_epoch

    def _records_read(self, found: FoundRecords, keys: Collection[PartitionKey]) -> None:
        self._table.count_from(found.incarnations_from)
        records = {each.key: each for each in found.records if isinstance(each.key, PartitionKey)}
        self._prepared = {key: records[key] for key in keys if key in records}
        self._topic_owners = {key: _topic_owner(records.get(key.first)) for key in keys if key.index > 0}

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
            self._unload_names(led, kept)
        groups = {name: _NamedGroup(is_read=True) for name in kept}
        self._led[where] = _LedPartition(partition, partition.leader_epoch, groups)
        found = self._prepared.pop(key, None)
        if found is not None:
            self._load(found)
        elif led is not None:
            self._unload_unwritten(key)
        if key in self._topic_owners:
            # Before this broker leads: nobody can have written to a partition that was just added.
            self._table.reserve(key, self._topic_owners.pop(key), self._now_ms())
        self._table_changed()

    def _unload(self, led: _LedPartition) -> None:
        is_deleted = led.partition.is_deleted
        reason = LossReason.DELETED if is_deleted else LossReason.NONE
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._unload_names(led)
        key = partition_key(led.partition)
        self._unreadable.pop(key, None)
        self._table.unload(key, BrokerError(code), self._now_ms(), reason)
        self._table_changed()

    def _unload_names(self, led: _LedPartition, kept: Collection[str] = ()) -> None:
        """Unload the names of all groups but those `kept`. They are read again when a request names their
        group."""
        groups = {name: group for name, group in led.groups.items() if name not in kept}
        led.groups = {}
        if not groups:
            return
        known = [resource.key for resource in self._table.resources()]
        for key in [*known, *self._unreadable]:
            if isinstance(key, NameKey) and key.group in groups:
                self._unreadable.pop(key, None)
                self._table.unload(key, BrokerError(ErrorCode.NOT_COORDINATOR), self._now_ms())
        for group in groups.values():
            waiting, group.waiting = group.waiting, []
            for deferred in waiting:
                deferred.errback(BrokerError(ErrorCode.NOT_COORDINATOR))

    def _unload_unwritten(self, key: ResourceKey) -> None:
        """Unload a resource whose record is no longer in ZooKeeper.

        A resource that was never written is kept: its sharers and waiters need no record.
        """
        self._unreadable.pop(key, None)
        known = self._table.resource(key)
        if known is not None and known.version == NO_ZNODE:
            self._table.count_anew(key)
            return
        self._table.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), self._now_ms())

    def _load(self, found: FoundRecord) -> None:
        if found.record is None:
            self._unreadable[found.key] = None
            return
        self._unreadable.pop(found.key, None)
        self._table.load(found.key, found.record, found.version, self._now_ms())

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
        if key in self._unreadable:
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
        led = self._led_of_group(group)
        known = led.groups.get(group)
        if known is not None and known.is_read:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if known is None:
            self._make_room(led)
            known = led.groups[group] = _NamedGroup()
            known.waiting.append(done)
            ensureDeferred(self._store.read_names(group)).addCallbacks(
                self._names_read,
                self._names_unread,
                callbackArgs=(led, group, known),
                errbackArgs=(led, group, known),
            )
        else:
            known.waiting.append(done)
        return done

    def read_all_names(self) -> Deferred[None]:
        """Fires once the names of all groups that this broker coordinates are read, or their reading failed.

        Fails with `SessionExpired` once ZooKeeper is closed.
        """
        return ensureDeferred(self._read_all_names())

    async def _read_all_names(self) -> None:
        groups = await self._store.named_groups()
        for start in range(0, len(groups), _GROUPS_AT_A_TIME):
            reading = []
            for group in groups[start : start + _GROUPS_AT_A_TIME]:
                try:
                    reading.append(self.read_names(group))
                except BrokerError:
                    continue  # Another broker coordinates it.
            await DeferredList(reading, consumeErrors=True)

    def _make_room(self, led: _LedPartition) -> None:
        """Forget groups without names: they can be read again."""
        if len(led.groups) < _GROUPS_MAX:
            return
        with_names = self._groups_with_names()
        for name, group in list(led.groups.items()):
            if name not in with_names and group.is_read:
                del led.groups[name]

    def _groups_with_names(self) -> set[str]:
        known = (resource.key for resource in self._table.resources())
        return {key.group for key in known if isinstance(key, NameKey)}

    def _names_read(self, found: FoundRecords, led: _LedPartition, group: str, loading: _NamedGroup) -> None:
        if led.groups.get(group) is not loading:
            return  # This broker has stopped coordinating the group; the requests that waited were answered.
        self._table.count_from(found.incarnations_from)
        ensureDeferred(self._load_in_turns(found.records, led, group, loading))

    async def _load_in_turns(
        self, records: Sequence[FoundRecord], led: _LedPartition, group: str, loading: _NamedGroup
    ) -> None:
        """Take over the names of a group. Requests about them wait until the last one is known."""
        for start in range(0, len(records), NAMES_LOADED_AT_ONCE):
            if start:
                await self._next_turn()
                if led.groups.get(group) is not loading:
                    return
            for each in records[start : start + NAMES_LOADED_AT_ONCE]:
                self._load(each)
            self._table_changed()
        loading.is_read = True
        waiting, loading.waiting = loading.waiting, []
        for done in waiting:
            done.callback(None)

    def _next_turn(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        return turn

    def _now_ms(self) -> int:
        return now_ms(self._clock)

    def _names_unread(self, failure: Failure, led: _LedPartition, group: str, loading: _NamedGroup) -> None:
        if failure.check(SessionExpired) is None:
            _log.error(
                "Could not read from ZooKeeper who owns the names of group %r; clients ask again: %s",
                group,
                failure.value,
            )
        if led.groups.get(group) is loading:
            del led.groups[group]
        waiting, loading.waiting = loading.waiting, []
        for done in waiting:
            done.errback(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

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

        Raises BrokerError if this broker does not decide about it.
        """
        led = self._led_for(key)
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
            self._unload_unwritten(key)
        for each in found.records:
            self._load(each)
        self._table_changed()


def _topic_owner(first: FoundRecord | None) -> Owner | None:
    """The owner of a whole topic, by the record of its partition 0; None if there is none."""
    return None if first is None or first.record is None else topic_owner(first.record)
