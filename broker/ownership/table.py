"""The ownership table: a machine without network, clock or disk (own API, PIP-68).

Something happens (an operation is submitted, a connection closes, a write is durable, time passes), and
`take_effects` returns what is to be done about it. Operations on the same resource take turns in the order in
which they were submitted (`operation_queues`): each sees what the one before it has made durable. What they
change in the table's `state` is in `grants`, `queueing` and `restoring`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast_log.broker.ownership import grants, queueing, restoring, sessions, standings
from holdfast_log.broker.ownership.deadlines import NamesDeadline, OwnerDeadline
from holdfast_log.broker.ownership.effects import Fence, OwnershipEffect
from holdfast_log.broker.ownership.forgetting import LOOK_PAUSE_MS, next_look_ms
from holdfast_log.broker.ownership.operation_queues import OperationQueues
from holdfast_log.broker.ownership.operations import FlushUnwritten, Operation
from holdfast_log.broker.ownership.resources import (
    NO_ZNODE,
    Counts,
    Holdings,
    NamedGrant,
    Requester,
    Resource,
)
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.broker.ownership.state import LogEnd, TableState
from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.coordinator.ownership.records import (
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    record_bytes,
)
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.ownership import Access, LossReason, ResourceStanding

DEADLINES_AT_ONCE = 200
"""Maximum number of sessions and waits that one `tick` ends, in a few ms. The sessions of all owners that a
broker has read from ZooKeeper may end together, and the broker must renew its lease meanwhile."""
_FLUSHED_TOGETHER = 50
"""Maximum number of resources in one write for which no request waits."""
_FLUSHED_MAX = 1000
"""Maximum number of resources that one `flush` writes; the next one writes the others."""
_FLUSHED_BYTES_MAX = 512 * 1024
"""Maximum size, in bytes, of one write for which no request waits."""


class OwnershipTable:
    """What this broker knows of the resources that it decides about.

    The caller ensures that this broker does decide about the resources of an operation, and that their
    records have been loaded.
    """

    def __init__(
        self,
        log_end: Callable[[PartitionKey], LogEnd],
        last_heard_ms: Callable[[int], int],
        date_ms: TimeOfDay,
        settings: OwnershipSettings | None = None,
    ) -> None:
        self._state = TableState(log_end, last_heard_ms, date_ms, settings or OwnershipSettings())
        self._queues = OperationQueues(self._state)

    # -- reading ---------------------------------------------------------------------------------------

    def resource(self, key: ResourceKey) -> Resource | None:
        """The resource; None if it was never owned, and has neither waiters nor sharers."""
        return self._state.resources.get(key)

    def access(self, group: str, key: ResourceKey) -> Access:
        """What the resource's last owner in the group may do, or might do, to it; NONE if there was none."""
        resource = self.resource(key)
        grant = None if resource is None else resource.peek(group).last
        return Access.NONE if grant is None else grant.owner.access

    def resources(self) -> list[Resource]:
        """All resources in the table."""
        return list(self._state.resources.values())

    def names_of(self, group: str) -> list[NameKey]:
        """The names of a group that are in the table."""
        return list(self._state.names_by_group.get(group, ()))

    def holdings(self, connection: int) -> Holdings | None:
        """What an open connection owns, shares and waits for; None if it has never submitted anything."""
        return self._state.connections.get(connection)

    def totals(self) -> Counts:
        """The counts over all resources since this table was made."""
        return self._state.totals

    def losses(self) -> Mapping[LossReason, int]:
        """How many grants have ended since this table was made, by reason."""
        return self._state.losses

    @property
    def record_bytes(self) -> int:
        """Bytes of all records in ZooKeeper, those included that are being written."""
        return self._state.sizes.total

    @property
    def record_bytes_left(self) -> int:
        """How many bytes more the records may take before claims of further resources are refused."""
        return max(0, self._state.settings.records_bytes_max - self._state.sizes.total)

    def standing(self, requester: Requester, named: NamedGrant) -> ResourceStanding:
        """How an owner, a waiter or a sharer stands with a resource."""
        resource = self._state.resources.get(named.key) or Resource(named.key)
        return standings.current(
            resource, requester, named, self._state.leader_epoch(named.key), self._state.settings
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None: never."""
        return self._state.deadlines.next_ms()

    @property
    def has_unwritten(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._state.unwritten) or self._queues.has_failed_promotions

    def take_effects(self) -> list[OwnershipEffect]:
        """What is to be done now, in this order."""
        return self._state.take_effects()

    def take_changed_partitions(self) -> list[PartitionKey]:
        """Partitions whose writer or readers have changed: refresh their guards before anything else."""
        changed, self._state.changed_partitions = self._state.changed_partitions, {}
        return list(changed)

    # -- incarnations ----------------------------------------------------------------------------------

    def count_from(self, incarnations_from: int) -> None:
        """Begin the incarnations of resources without a record above `incarnations_from`, or above a higher
        number that was given before."""
        self._state.incarnations_from = max(self._state.incarnations_from, incarnations_from)

    def count_anew(self, key: ResourceKey) -> None:
        """The record of a resource that was never owned here may have been written and deleted elsewhere:
        begin its incarnations above the highest number known now."""
        resource = self._state.resources.get(key)
        if resource is not None:
            resource.incarnation = max(resource.incarnation, self._state.incarnations_from)

    # -- operations ------------------------------------------------------------------------------------

    def submit(self, operation: Operation, now_ms: int, ticket: int | None = None) -> None:
        """Have an operation carried out when its turn has come, and answer `ticket` with its result."""
        self._queues.submit(operation, now_ms, ticket)

    def give_up(self, ticket: int, now_ms: int) -> None:
        """The request no longer waits for its answer: an operation that has not begun never will."""
        self._queues.give_up(ticket, now_ms)

    # -- durability ------------------------------------------------------------------------------------

    def written(self, number: int, versions: Mapping[ResourceKey, int], now_ms: int) -> None:
        """The records of a write are durable, under these versions of their znodes."""
        self._queues.written(number, versions, now_ms)

    def not_written(self, number: int, error: BrokerError, now_ms: int) -> None:
        """The records of a write are not durable, and never will be: nothing has changed."""
        self._queues.not_written(number, error, now_ms)

    def fence_committed(self, fence: Fence) -> None:
        """The fence is settled."""
        resource = self._state.resources.get(fence.key)
        entry = None if resource is None else resource.entries.get(fence.group)
        if entry is not None and entry.last is not None and entry.last.incarnation == fence.incarnation:
            entry.is_complete = True
            self._state.notify(entry.connection)
            if not entry.is_fence_final:
                entry.is_fence_final = True
                self._state.unwritten[fence.key] = None

    def flush(self, now_ms: int) -> None:
        """Write changes for which no request waits, and try again to promote waiters where a write failed."""
        unwritten = list(itertools.islice(self._state.unwritten, _FLUSHED_MAX))
        for key in unwritten:
            del self._state.unwritten[key]
        for keys in self._portions(unwritten):
            self.submit(FlushUnwritten(keys), now_ms)
        self._queues.retry_promotions(now_ms)

    def _portions(self, keys: Sequence[ResourceKey]) -> Iterator[list[ResourceKey]]:
        """The keys, in portions that fit into one write each."""
        portion: list[ResourceKey] = []
        taken = 0
        for key in keys:
            resource = self._state.resources.get(key)
            size = 0 if resource is None else record_bytes(resource.record())
            if portion and (len(portion) == _FLUSHED_TOGETHER or taken + size > _FLUSHED_BYTES_MAX):
                yield portion
                portion, taken = [], 0
            portion.append(key)
            taken += size
        if portion:
            yield portion

    # -- records loaded and unloaded -------------------------------------------------------------------

    def load(self, key: ResourceKey, record: OwnershipRecord, version: int, now_ms: int) -> None:
        """Take over the record of a resource, unless this or a later one is known already.

        Versions count from 0 again after a name was forgotten; its incarnations are higher then.
        """
        known = self._state.resources.get(key) or Resource(key)
        if known.version != NO_ZNODE and (known.incarnation, known.version) >= (record.incarnation, version):
            return
        restoring.restore(self._state, key, record, version, now_ms)
        self._queues.settle(now_ms)

    def unload(
        self, key: ResourceKey, error: BrokerError, now_ms: int, reason: LossReason = LossReason.NONE
    ) -> None:
        """Another broker decides about the resource from now on; with `reason` DELETED, no broker does.

        Requests that wait for the resource fail with `error`.
        """
        self._queues.abandon(key, error)
        restoring.unload(self._state, key, reason)
        self._queues.settle(now_ms)

    def reserve(self, key: PartitionKey, owner: Owner | None, now_ms: int) -> None:
        """Keep a partition for the owner of its whole topic, who has not claimed it yet. With None, or where
        the partition has had a writer, the partition is kept for nobody."""
        if owner is None and not self.is_reserved(key):
            return
        queueing.reserve(self._state, key, owner, now_ms)
        self._queues.settle(now_ms)

    def is_reserved(self, key: ResourceKey) -> bool:
        """Whether a partition is kept for the owner of its whole topic."""
        resource = self._state.resources.get(key)
        return resource is not None and resource.reserved_for is not None

    # -- connections and time --------------------------------------------------------------------------

    def connection_opened(self, connection: int) -> None:
        """Keep the holdings of a connection from now on, until `connection_closed`."""
        self._state.connections.setdefault(connection, Holdings())

    def connection_closed(self, connection: int, now_ms: int) -> None:
        """Detach the connection's owners. Resources that other owners have been granted since are left
        alone."""
        state = self._state
        holdings = state.connections.pop(connection, None)
        if holdings is None:
            return
        state.held -= len(holdings.keys)
        for key in holdings.keys:
            resource = state.resources.get(key)
            if resource is None:
                continue
            resource.former_owners.pop(connection, None)
            for entry in resource.held_by(connection):
                grants.detach(state, resource, entry, now_ms)
            waiting = [each for each in resource.waiters if each.connection == connection]
            if waiting:
                queueing.dequeue(state, resource, *waiting)
            queueing.unshare(state, resource, connection)
        self._queues.settle(now_ms)

    def pinged(self, connection: int, now_ms: int) -> None:
        """The owners on a connection were asked to send a request within `own.ping.timeout.ms`."""
        holdings = self._state.connections.get(connection)
        for key in holdings.keys if holdings is not None else ():
            resource = self._state.resources.get(key)
            for entry in resource.held_by(connection) if resource is not None else ():
                if entry.pinged_ms < 0 and entry.last is not None:
                    entry.pinged_ms = now_ms
                    deadline = OwnerDeadline(key, entry.group, entry.last.incarnation)
                    self._state.watch(deadline, now_ms + self._state.settings.ping_timeout_ms)

    def renewed(self, requester: Requester, named: Sequence[NamedGrant]) -> None:
        """A Renew was answered: its owner knows that other clients want its resources."""
        for each in named:
            resource = self._state.resources.get(each.key)
            entry = None if resource is None else resource.entries.get(requester.group)
            if entry is not None and entry.connection == requester.connection:
                entry.is_contended = False

    def renewed_elsewhere(self, requester: Requester, named: Sequence[NamedGrant], now_ms: int) -> None:
        """A Renew has arrived: it keeps the sessions of those grants whose owner proves itself by its secret,
        although it is not attached to this connection."""
        for each in named:
            resource = self._state.resources.get(each.key)
            entry = None if resource is None else resource.entries.get(requester.group)
            grant = None if entry is None else entry.grant
            if entry is None or grant is None or entry.connection == requester.connection:
                continue
            is_named = grant.incarnation == each.incarnation
            if is_named and grant.owner.secret_digest and requester.owns(grant, entry.connection):
                entry.renewed_ms = now_ms

    def append_refused(self, resource: Resource) -> None:
        """A client that does not own a partition has tried to write to it."""
        self._state.totals.fenced_appends += 1
        writer = resource.writer
        if writer is not None:
            writer.counts.fenced_appends += 1

    def tick(self, now_ms: int) -> None:
        """End the sessions and the waits that have run out, `DEADLINES_AT_ONCE` at most. If there are more,
        the next deadline is past."""
        deadlines = self._state.deadlines
        for _ in range(DEADLINES_AT_ONCE):
            due = deadlines.pop_due(now_ms)
            if due is None:
                break
            if isinstance(due, NamesDeadline):
                self._look_for_names(now_ms)
                continue
            again_ms = sessions.end_or_extend(self._state, due, now_ms)
            if again_ms is not None:
                self._state.watch(due, again_ms)
        self._queues.settle(now_ms)

    def _look_for_names(self, now_ms: int) -> None:
        look_ms = next_look_ms(self._state, now_ms)
        if look_ms == now_ms:
            self._queues.forget_names(now_ms)
            look_ms += LOOK_PAUSE_MS
        if look_ms is not None:
            self._state.watch(NamesDeadline(), look_ms)
