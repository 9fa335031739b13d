"""The state of the ownership table: resources, connections, deadlines, and the effects that are due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.ownership.deadlines import NamesDeadline, OwnershipDeadline
from holdfast_log.broker.ownership.effects import Audit, Notify, OwnershipEffect
from holdfast_log.broker.ownership.record_sizes import RecordSizes, sizes_of, source_of
from holdfast_log.broker.ownership.resources import Counts, Entry, Holdings, Resource
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.coordinator.ownership.records import (
    GRANT_BYTES_MAX,
    NO_OFFSET,
    Grant,
    NameKey,
    PartitionKey,
    ResourceKey,
    grant_bytes,
)
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.messages.ownership import LossReason


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The log end offset of a partition that this broker leads, and the epoch in which it leads."""

    end_offset: int
    leader_epoch: int


class TableState:
    """What the table knows, for its operations to read and change.

    `log_end` returns the log end of a partition, `last_heard_ms` when a connection last sent anything, and
    `date_ms` the time of day. All other times are from a monotonic clock.
    """

    def __init__(
        self,
        log_end: Callable[[PartitionKey], LogEnd],
        last_heard_ms: Callable[[int], int],
        date_ms: TimeOfDay,
        settings: OwnershipSettings,
    ) -> None:
        self.resources: dict[ResourceKey, Resource] = {}
        self.connections: dict[int, Holdings] = {}
        self.deadlines: Timers[OwnershipDeadline] = Timers()
        self.effects: list[OwnershipEffect] = []
        """What is to be done outside the table, until `take_effects`."""
        self._to_notify: dict[int, bool] = {}
        """Connections whose standing has changed; True: they also have to show that they live."""
        self.totals = Counts()
        self.losses: dict[LossReason, int] = dict.fromkeys(LossReason, 0)
        """How many grants have ended, by reason."""
        self.incarnations_from = 0
        """Above this number begin the incarnations of resources that were never owned, or were forgotten."""
        self.waiters = 0
        """How many claims wait, for all resources together."""
        self.held = 0
        """How many resources all open connections own, share or wait for, each counted for each."""
        self.names = 0
        """How many of the resources are names."""
        self.sizes = RecordSizes()
        """Bytes of all records, those included that are being written."""
        self.names_by_group: dict[str, dict[NameKey, None]] = {}
        self.free_names: dict[NameKey, int] = {}
        """Names without an owner, the longest free first, and since when in ms: since the owner has left, or
        since this broker has begun to decide about the name."""
        self.changed_partitions: dict[PartitionKey, None] = {}
        """Partitions whose writer or readers have changed: their guards are out of date."""
        self.unwritten: dict[ResourceKey, None] = {}
        """Resources with changes still to be written, for which no request waits."""
        self.to_promote: dict[ResourceKey, None] = {}
        """Resources that may be free for one of their waiters."""
        self.settings = settings
        self.log_end = log_end
        self.last_heard_ms = last_heard_ms
        self.date_ms = date_ms

    def resource(self, key: ResourceKey) -> Resource:
        """The resource; a new one if it was never owned."""
        found = self.resources.get(key)
        if found is None:
            found = self.resources[key] = Resource(key, incarnation=self.incarnations_from)
            if isinstance(key, NameKey):
                self.names += 1
                self.names_by_group.setdefault(key.group, {})[key] = None
        return found

    def leader_epoch(self, key: ResourceKey) -> int:
        """The epoch in which this broker leads the partition; -1 for a name."""
        return self.log_end(key).leader_epoch if isinstance(key, PartitionKey) else -1

    def link(self, connection: int, key: ResourceKey) -> None:
        """Remember that a connection owns, shares or waits for a resource, if it is still open."""
        holdings = self.connections.get(connection)
        if holdings is not None and key not in holdings.keys:
            holdings.keys[key] = None
            self.held += 1

    def unlink(self, connection: int, resource: Resource) -> None:
        """Forget a name that a connection neither owns nor waits for. Partitions stay among its holdings."""
        holdings = self.connections.get(connection)
        if holdings is None or isinstance(resource.key, PartitionKey):
            return
        has_it = any(entry.connection == connection for entry in resource.entries.values())
        if not has_it and all(waiter.connection != connection for waiter in resource.waiters):
            self.held -= resource.key in holdings.keys
            holdings.keys.pop(resource.key, None)

    def watch(self, deadline: OwnershipDeadline, at_ms: int) -> None:
        """Look at a session at `at_ms`, unless it is to be looked at earlier anyway."""
        known_ms = self.deadlines.deadline_ms(deadline)
        if known_ms is None or at_ms < known_ms:
            self.deadlines.set(deadline, at_ms)

    def offer(self, resource: Resource) -> None:
        """The resource may be free: have its first waiter promoted."""
        if resource.waiters:
            self.to_promote[resource.key] = None

    def mark_contended(self, resource: Resource, group: str) -> None:
        """Another client wants the resource: notify its owners, who have to show that they live."""
        for entry in resource.entries.values():
            if entry.grant is not None and (entry.group == group or entry.writes):
                entry.is_contended = True
                if entry.connection is not None:
                    self._to_notify[entry.connection] = True

    def notify(self, connection: int | None) -> None:
        """Have the waiting Renew requests of a connection looked at; None for no connection."""
        if connection is not None:
            self._to_notify.setdefault(connection, False)

    def take_effects(self) -> list[OwnershipEffect]:
        """What is to be done now, in this order. Each connection is notified once, after everything else."""
        effects, self.effects = self.effects, []
        to_notify, self._to_notify = self._to_notify, {}
        return [*effects, *(Notify(connection, is_ping) for connection, is_ping in to_notify.items())]

    def forget_if_blank(self, key: ResourceKey) -> None:
        """Forget a resource that was never owned and has neither waiters nor sharers."""
        resource = self.resources.get(key)
        if resource is not None and resource.is_blank:
            self.forget(key)

    def share_of(self, source: str) -> int:
        """How many bytes of records the grants of a source may have: a part of what the grants of all others
        leave, so that one source never takes all, and needs no other to be there."""
        left = self.settings.records_bytes_max - self.sizes.total + self.sizes.of(source)
        return left * self.settings.records_source_percentage // 100

    def has_room(self, source: str) -> bool:
        """Whether the records of this broker may have another grant of a source, of the longest names."""
        is_within = self.sizes.total + GRANT_BYTES_MAX <= self.settings.records_bytes_max
        return is_within and self.sizes.of(source) + GRANT_BYTES_MAX <= self.share_of(source)

    def keeps_past(self, source: str) -> bool:
        """Whether what a source is granted keeps its past grants: the second half of its share is for
        resources that it does not have yet."""
        return self.has_room(source) and 2 * self.sizes.of(source) < self.share_of(source)

    def weigh(self, key: ResourceKey, group: str = "", coming: Grant | None = None) -> None:
        """Count the bytes of a resource's record anew, and those of a grant that is being written."""
        resource = self.resources.get(key)
        sizes = {} if resource is None else sizes_of(resource)
        if coming is not None:
            source = source_of(coming.owner)
            sizes[source] = sizes.get(source, 0) + grant_bytes(coming, group)
        self.sizes.put(key, sizes)

    def forget(self, key: ResourceKey) -> Resource | None:
        """Take a resource out of the table; None if it is not there."""
        self.sizes.forget(key)
        self.not_free(key)
        known = self.resources.pop(key, None)
        self.waiters -= 0 if known is None else len(known.waiters)
        if isinstance(key, NameKey) and known is not None:
            self.names -= 1
            of_group = self.names_by_group[key.group]
            del of_group[key]
            if not of_group:
                del self.names_by_group[key.group]
        return known

    def note_free(self, key: ResourceKey, now_ms: int) -> None:
        """Nobody owns the name from now on: it may be forgotten one day. Nothing to do for a partition."""
        if isinstance(key, NameKey):
            self.free_names.pop(key, None)
            self.free_names[key] = now_ms
            self.watch(NamesDeadline(), now_ms + self.settings.names_retention_ms)

    def not_free(self, key: ResourceKey) -> None:
        """The name has an owner, or is no longer known."""
        if isinstance(key, NameKey):
            self.free_names.pop(key, None)

    def put_off(self, key: NameKey, now_ms: int) -> None:
        """Treat a free name as if its owner had left now: it could not be forgotten."""
        if key in self.free_names:
            self.note_free(key, now_ms)

    def forget_name(self, key: NameKey) -> None:
        """Forget a name whose znode is gone. If it is claimed again, its incarnations begin above the last
        one."""
        resource = self.forget(key)
        if resource is not None:
            self.incarnations_from = max(self.incarnations_from, resource.incarnation)
            self.effects.append(
                Audit(f"forgotten: {key} in group {key.group!r}, which nobody owned for long")
            )

    def count_refusal(self, resource: Resource, group: str) -> None:
        """Count a refused claim."""
        self.totals.refusals += 1
        if group in resource.entries:
            resource.entries[group].counts.refusals += 1

    def mark_changed(self, key: ResourceKey) -> None:
        """The writer or the readers of a partition have changed. Nothing to do for a name."""
        if isinstance(key, PartitionKey):
            self.changed_partitions[key] = None

    def audit(self, resource: Resource, entry: Entry, event: str) -> None:
        """Have what happened to the latest grant written to the audit log."""
        grant = entry.last
        assert grant is not None
        owner = grant.owner
        fence = "" if grant.fence_offset == NO_OFFSET else f" from offset {grant.fence_offset}"
        self.effects.append(
            Audit(
                f"{event}: {resource.key} in group {entry.group!r}, generation {grant.generation}, "
                f"incarnation {grant.incarnation}{fence}, owner {owner.owner_id!r} client "
                f"{owner.client_id!r} {owner.principal} at {owner.host}"
            )
        )
