"""Where resources are decided about: at the leader of the partition, or of that which keeps the group.

Keeps what has been read of them in step with what this broker leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, DeferredList, ensureDeferred, succeed
from twisted.python.failure import Failure

from broker.metadata import ZERO_ID
from broker.ownership.resources import NO_ZNODE, partition_key
from broker.ownership.table import OwnershipTable
from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from broker.replication.replicas import Replicas
from coordinator.groups.partitions import OFFSETS_TOPIC
from coordinator.ownership.records import NameKey, PartitionKey, ResourceKey
from coordinator.ownership.store import FoundRecord, OwnershipStore, PartitionHome
from coordinator.zookeeper.interface import SessionExpired
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.ownership import NO_PARTITION, LossReason

_log = logging.getLogger(__name__)

_GROUPS_MAX = 10_000
"""Groups of one partition whose names have been read, beyond which those without any are forgotten."""

_GROUPS_AT_A_TIME = 50
"""Groups that are read at once where all are asked for."""

_Where = tuple[str, int]


@dataclass(slots=True)
class _Group:
    """The names of one group, and those who wait until they have been read."""

    is_read: bool = False
    waiting: list[Deferred[None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Led:
    """A partition that this broker leads, in one leader epoch, and the groups that it keeps the names of."""

    partition: Partition
    leader_epoch: int
    groups: dict[str, _Group] = field(default_factory=dict)


class Homes:
    """Which resources this broker decides about.

    `names_partition` says which partition of `__consumer_offsets` keeps a group, None while there is none.
    `changed` is called after the table has been.
    """

    def __init__(
        self,
        replicas: Replicas,
        table: OwnershipTable,
        store: OwnershipStore,
        names_partition: Callable[[str], int | None],
        now_ms: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._table = table
        self._store = store
        self._names_partition = names_partition
        self._now_ms = now_ms
        self._changed = changed
        self._led: dict[_Where, _Led] = {}
        self._read: dict[PartitionKey, FoundRecord] = {}
        """What was read for the controller's word that is about to be applied."""
        self._unreadable: dict[ResourceKey, None] = {}

    # -- what this broker leads ----------------------------------------------------------------------------

    def prepare(self, request: LeaderAndIsrRequest) -> Deferred[None]:
        """Read what is written of the partitions that this broker is to lead: to be awaited before it does.

        What the leader before has granted is written by then, for since the controller has written of the new
        one it can write no more. Fails with `SessionExpired` where ZooKeeper is closed.
        """
        keys = [
            PartitionKey(topic.topic_id, state.partition_index, topic.topic_name)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.leader == self._replicas.local_id
            and topic.topic_id != ZERO_ID
            and self._is_new(topic.topic_name, state.partition_index, state.leader_epoch)
        ]
        if not keys:
            return succeed(None)
        return ensureDeferred(self._store.read_partitions(keys)).addCallback(self._prepared)

    def _is_new(self, topic: str, index: int, leader_epoch: int) -> bool:
        led = self._led.get((topic, index))
        return led is None or led.leader_epoch != leader_epoch

    def _prepared(self, found: Sequence[FoundRecord]) -> None:
        self._read = {each.key: each for each in found if isinstance(each.key, PartitionKey)}

    def role_changed(self, partition: Partition) -> None:
        """The leadership of a partition has begun, or may have ended."""
        where = partition.key
        led = self._led.pop(where, None)
        if not isinstance(partition.role, Leadership):
            if led is not None:
                self._unload(led)
            return
        key = partition_key(partition)
        if led is not None:
            # It led before, and perhaps others between: what it knows is compared with what is written.
            self._unload_names(led)
        self._led[where] = _Led(partition, partition.leader_epoch)
        found = self._read.pop(key, None)
        if found is not None:
            self._take_over(found)
        elif led is not None:
            self._drop(key)
        self._changed()

    def _unload(self, led: _Led) -> None:
        is_deleted = led.partition.is_deleted
        reason = LossReason.DELETED if is_deleted else LossReason.NONE
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._unload_names(led)
        key = partition_key(led.partition)
        self._unreadable.pop(key, None)
        self._table.unload(key, BrokerError(code), self._now_ms(), reason)
        self._changed()

    def _unload_names(self, led: _Led) -> None:
        """The names of groups are read again when they are asked for."""
        groups, led.groups = led.groups, {}
        if not groups:
            return
        known = [*self._table.state.resources, *self._unreadable]
        for key in known:
            if isinstance(key, NameKey) and key.group in groups:
                self._unreadable.pop(key, None)
                self._table.unload(key, BrokerError(ErrorCode.NOT_COORDINATOR), self._now_ms())
        for group in groups.values():
            waiting, group.waiting = group.waiting, []
            for deferred in waiting:
                deferred.errback(BrokerError(ErrorCode.NOT_COORDINATOR))

    def _drop(self, key: ResourceKey) -> None:
        """Nothing is written of what was known here: it was not durable. Of those who share or wait nothing
        ever is."""
        self._unreadable.pop(key, None)
        known = self._table.state.resources.get(key)
        if known is not None and known.version == NO_ZNODE:
            return
        self._table.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), self._now_ms())

    def _take_over(self, found: FoundRecord) -> None:
        if found.record is None:
            self._unreadable[found.key] = None
            return
        self._unreadable.pop(found.key, None)
        self._table.load(found.key, found.record, found.version, self._now_ms())

    # -- who is asked about what -----------------------------------------------------------------------------

    def locate(self, group: str, name: str, index: int) -> ResourceKey:
        """The resource, if this broker decides about it.

        Raises BrokerError: what `Replicas.partition` raises, NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS for a name of a group that is not `ready`, and
        KAFKA_STORAGE_ERROR where what is written of it cannot be read.
        """
        key: ResourceKey
        if index == NO_PARTITION:
            key = NameKey(group, name)
            self._check_read(key)
        else:
            partition = self._replicas.partition(name, index)
            self._led_at((name, index), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            key = partition_key(partition)
        if key in self._unreadable:
            raise error_for(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"what is written of {key} in ZooKeeper cannot be read; the broker's log says why",
            )
        return key

    def refusal(self, key: ResourceKey) -> BrokerError | None:
        """Why this broker can say nothing of a resource that it was asked about before; None: it can."""
        try:
            if isinstance(key, NameKey):
                self._check_read(key)
            elif self.partition(key) is None:
                return BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except BrokerError as error:
            return error
        return None

    def _check_read(self, key: NameKey) -> None:
        group = self._home_of_group(key.group).groups.get(key.group)
        if group is None or not group.is_read:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def ready(self, group: str) -> Deferred[None]:
        """Fires once the names of a group have been read. Fails as `locate` raises."""
        led = self._home_of_group(group)
        known = led.groups.get(group)
        if known is not None and known.is_read:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if known is None:
            self._make_room(led)
            known = led.groups[group] = _Group()
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

    def all_ready(self) -> Deferred[None]:
        """Fires once the names of all groups that this broker coordinates have been read, as far as that can
        be done."""
        return ensureDeferred(self._ready_all())

    async def _ready_all(self) -> None:
        groups = await self._store.named_groups()
        for start in range(0, len(groups), _GROUPS_AT_A_TIME):
            reading = []
            for group in groups[start : start + _GROUPS_AT_A_TIME]:
                try:
                    reading.append(self.ready(group))
                except BrokerError:
                    continue  # Another broker coordinates it.
            await DeferredList(reading, consumeErrors=True)

    def _make_room(self, led: _Led) -> None:
        """Forget groups of which nothing was found and nobody owns anything: they can be read again."""
        if len(led.groups) < _GROUPS_MAX:
            return
        owning = {key.group for key in self._table.state.resources if isinstance(key, NameKey)}
        for name, group in list(led.groups.items()):
            if name not in owning and group.is_read:
                del led.groups[name]

    def _names_read(self, found: Sequence[FoundRecord], led: _Led, group: str, loading: _Group) -> None:
        if led.groups.get(group) is not loading:
            return  # This broker coordinates the group no more; those who waited know.
        for each in found:
            self._take_over(each)
        loading.is_read = True
        self._changed()
        waiting, loading.waiting = loading.waiting, []
        for done in waiting:
            done.callback(None)

    def _names_unread(self, failure: Failure, led: _Led, group: str, loading: _Group) -> None:
        if failure.check(SessionExpired) is None:
            _log.error("The owners of group %r cannot be read: %s", group, failure.value)
        if led.groups.get(group) is loading:
            del led.groups[group]
        waiting, loading.waiting = loading.waiting, []
        for done in waiting:
            done.errback(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _home_of_group(self, group: str) -> _Led:
        index = self._names_partition(group)
        if index is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not there yet")
        return self._led_at((OFFSETS_TOPIC, index), ErrorCode.NOT_COORDINATOR)

    def _led_at(self, where: _Where, otherwise: ErrorCode) -> _Led:
        led = self._led.get(where)
        if led is None:
            raise BrokerError(otherwise)
        return led

    def home(self, key: ResourceKey) -> PartitionHome:
        """By what right this broker writes about a resource. Raises BrokerError where it has none."""
        if isinstance(key, NameKey):
            led = self._home_of_group(key.group)
        else:
            led = self._led_at((key.topic, key.index), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition = led.partition
        return PartitionHome(
            partition.topic, partition.index, partition.local_id, led.leader_epoch, partition.partition_epoch
        )

    def partition(self, key: PartitionKey) -> Partition | None:
        """The partition, if this broker leads it."""
        led = self._led.get((key.topic, key.index))
        return None if led is None or led.partition.topic_id != key.topic_id else led.partition

    def reread(self, key: ResourceKey) -> Deferred[None]:
        """Read one resource again, of which nobody knows what is written."""
        return ensureDeferred(self._reread(key))

    async def _reread(self, key: ResourceKey) -> None:
        try:
            leader_epoch = self.home(key).leader_epoch
            found = await self._store.read(key)
            if self.home(key).leader_epoch != leader_epoch:
                return
        except BrokerError:
            return  # Others decide about it now.
        if found is None:
            self._drop(key)
        else:
            self._take_over(found)
        self._changed()
