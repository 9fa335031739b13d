"""The state of the ownership table: resources, connections and deadlines, and the changes made to them.

Each change adds the effects that must follow from it outside the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast_log.broker.ownership.deadlines import (
    NamesDeadline,
    OwnerDeadline,
    OwnershipDeadline,
    ReservationDeadline,
    SharerDeadline,
    WaiterDeadline,
)
from holdfast_log.broker.ownership.effects import Audit, AwaitCommit, Fence, Notify, OwnershipEffect, Sever
from holdfast_log.broker.ownership.resources import (
    Counts,
    Entry,
    Holdings,
    Resource,
    Sharer,
    Waiter,
    interrupted,
    revived,
)
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.coordinator.ownership.records import (
    NEVER_MS,
    NO_OFFSET,
    Grant,
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
)
from holdfast_log.coordinator.timers import Timers
from holdfast_log.protocol.messages.ownership import Access, LossReason


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
        self.incarnations_from = 0
        """Above this number begin the incarnations of resources that were never owned, or were forgotten."""
        self.names = 0
        """How many of the resources are names."""
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
        self._log_end = log_end
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
        return self._log_end(key).leader_epoch if isinstance(key, PartitionKey) else -1

    def link(self, connection: int, key: ResourceKey) -> None:
        """Remember that a connection owns, shares or waits for a resource, if it is still open."""
        holdings = self.connections.get(connection)
        if holdings is not None:
            holdings.keys[key] = None

    # -- grants ----------------------------------------------------------------------------------------

    def revive(self, resource: Resource, entry: Entry, owner: Owner, *, is_written: bool) -> None:
        """Put the latest grant into force again, for `owner` as it describes itself now, whether the grant
        had ended or not."""
        grant = entry.last
        assert grant is not None
        again = revived(grant, owner)
        if again == grant:
            return
        entry.amend(again)
        self._not_free(resource.key)
        if grant.has_ended:
            self._audit(resource, entry, "resumed")
        if not is_written:
            self.unwritten[resource.key] = None

    def install(
        self,
        resource: Resource,
        group: str,
        grant: Grant,
        loss: LossReason,
        connection: int | None,
        now_ms: int,
    ) -> Fence | None:
        """Put a durable grant into force: from now on no other client writes. `connection` is None for a
        member of a consumer group that has not attached itself yet.

        Returns the fence that has to be committed before the owner is answered; None if there is none.
        """
        stolen_from: list[str] = []
        event = "granted"
        for loser in resource.losers(group, grant.owner.access):
            assert loser.last is not None
            before = loser.last.owner
            if (before.owner_id, before.secret_digest) != (grant.owner.owner_id, grant.owner.secret_digest):
                stolen_from.append(before.owner_id)
                if loser.group == group:
                    event = f"granted, taken from {before.owner_id!r} ({loss.name})"
            # A change of owner within the group is one line of the audit log, not two.
            self._lose(resource, loser, loss, to=connection, is_audited=loser.group != group)
        if Access.WRITE in grant.owner.access:
            for sharer in list(resource.sharers.values()):
                self._evict(resource, sharer, to=connection)
        self._not_free(resource.key)
        entry = resource.entry(group)
        fence = self._fence(resource.key, group, grant)
        entry.push(grant if fence is None else replace(grant, fence_offset=fence.offset))
        resource.incarnation = grant.incarnation
        resource.write_incarnation = resource.write_incarnation_with(grant)
        if Access.WRITE in grant.owner.access:
            resource.reserved_for = None
        resource.trim()
        entry.is_complete = entry.is_fence_final = fence is None
        entry.is_contended = False
        for counts in (entry.counts, self.totals):
            counts.claims += 1
            counts.steals += bool(stolen_from)
        self._audit(resource, entry, event)
        if connection is None:
            self._mark_changed(resource.key)
        else:
            self.attach(resource, entry, connection, now_ms)
        return fence

    def _fence(self, key: ResourceKey, group: str, grant: Grant) -> Fence | None:
        if not isinstance(key, PartitionKey) or grant.owner.assignment is not None:
            return None
        return Fence(key, group, grant.incarnation, self._log_end(key).end_offset)

    def interrupt(self, resource: Resource, entry: Entry, interlude: Grant) -> None:
        """Put a durable interlude into force: from now on the owner that is gone cannot resume its grant, and
        strangers may write or read."""
        assert entry.last is not None
        gone = entry.last.owner
        fence = self._fence(resource.key, entry.group, interlude)
        if fence is not None:
            interlude = replace(interlude, fence_offset=fence.offset)
            self.effects.append(AwaitCommit(fence))
        entry.history = interrupted(entry.history, interlude)
        resource.incarnation = interlude.incarnation
        resource.write_incarnation = resource.write_incarnation_with(interlude)
        resource.trim()
        entry.is_complete = entry.is_fence_final = fence is None
        entry.is_contended = False
        self.effects.append(
            Audit(
                f"ended for good ({interlude.reason.name}): {resource.key} in group {entry.group!r}, by "
                f"client {interlude.owner.client_id!r} {interlude.owner.principal}; owner {gone.owner_id!r} "
                f"at {gone.host} was away. Generation {interlude.generation}, incarnation "
                f"{interlude.incarnation} from offset {interlude.fence_offset}"
            )
        )
        self._mark_changed(resource.key)

    # -- owners attach and detach
    # ------------------------------------------------------------------------------

    def attach(self, resource: Resource, entry: Entry, connection: int, now_ms: int) -> None:
        """Make `connection` the connection of the entry's owner, and sever the one that it had before."""
        grant = entry.grant
        assert grant is not None
        previous = entry.connection
        entry.connection = connection
        entry.pinged_ms = entry.renewed_ms = NEVER_MS
        self._mark_changed(resource.key)
        if previous not in (None, connection):
            self.effects.append(
                Sever(previous, f"the owner of {resource.key} has attached itself on another connection")
            )
        if connection not in self.connections:
            self.detach(resource, entry, now_ms)
            return
        resource.former_owners.pop(connection, None)
        self.link(connection, resource.key)
        if grant.owner.assignment is None:
            self._watch_owner(resource.key, entry, now_ms + grant.owner.session_timeout_ms)

    def detach(self, resource: Resource, entry: Entry, now_ms: int) -> None:
        """The owner's connection has closed: it may resume within `own.release.grace.ms`, or as long as its
        renewals on other connections keep its session."""
        entry.connection = None
        if entry.last is not None and entry.last.owner.assignment is not None:
            self._mark_changed(resource.key)
            return
        until_ms = max(now_ms + self.settings.release_grace_ms, entry.renewed_until_ms)
        if until_ms > now_ms:
            self._watch_owner(resource.key, entry, until_ms)
            self._mark_changed(resource.key)
        else:
            self.free(resource, entry, LossReason.DISCONNECTED, now_ms)

    def free(
        self, resource: Resource, entry: Entry, reason: LossReason, now_ms: int, *, is_written: bool = False
    ) -> None:
        """End an ownership without a successor. `is_written`: its record says so already."""
        self._lose(resource, entry, reason)
        self._note_free(resource.key, now_ms)
        if not is_written:
            self.unwritten[resource.key] = None
        self.offer(resource)

    def _lose(
        self,
        resource: Resource,
        entry: Entry,
        reason: LossReason,
        to: int | None = None,
        *,
        is_audited: bool = True,
    ) -> None:
        """Take the resource from its owner, and sever the owner's connection, unless the resource goes `to`
        that same connection or its owner has released it."""
        grant = entry.last
        assert grant is not None
        connection, entry.connection = entry.connection, None
        entry.amend(grant.ended(reason, self.date_ms()))
        self.deadlines.cancel(OwnerDeadline(resource.key, entry.group, grant.incarnation))
        if is_audited and not grant.has_ended:
            self._audit(resource, entry, f"lost ({reason.name})")
        self._mark_changed(resource.key)
        if connection is None or connection == to:
            return
        if grant.owner.assignment is not None:
            return  # The member still reads other partitions on it. The guard refuses this one.
        if reason is LossReason.RELEASED:
            self._remember_former_owner(resource, connection)
            self._unlink(connection, resource)
            return
        self.effects.append(Sever(connection, f"it lost {resource.key} ({reason.name})"))

    def _unlink(self, connection: int, resource: Resource) -> None:
        """Forget a name that a connection neither owns nor waits for. Partitions stay among its holdings."""
        holdings = self.connections.get(connection)
        if holdings is None or isinstance(resource.key, PartitionKey):
            return
        has_it = any(entry.connection == connection for entry in resource.entries.values())
        if not has_it and all(waiter.connection != connection for waiter in resource.waiters):
            holdings.keys.pop(resource.key, None)

    def _remember_former_owner(self, resource: Resource, connection: int) -> None:
        if connection in self.connections and isinstance(resource.key, PartitionKey):
            resource.former_owners[connection] = None

    def _watch_owner(self, key: ResourceKey, entry: Entry, at_ms: int) -> None:
        assert entry.last is not None
        entry.deadline_ms = at_ms
        self.watch(OwnerDeadline(key, entry.group, entry.last.incarnation), at_ms)

    def watch(self, deadline: OwnershipDeadline, at_ms: int) -> None:
        """Look at a session at `at_ms`, unless it is to be looked at earlier anyway."""
        known_ms = self.deadlines.deadline_ms(deadline)
        if known_ms is None or at_ms < known_ms:
            self.deadlines.set(deadline, at_ms)

    # -- sharers and waiters ---------------------------------------------------------------------------

    def share(
        self, resource: Resource, owner: Owner, connection: int, now_ms: int, *, is_written: bool
    ) -> None:
        """Let a producer write beside others. `is_written`: `record_with_sharers` has been written for it."""
        if is_written:
            resource.incarnation += 1
            resource.write_incarnation = resource.incarnation
        if connection not in self.connections:
            return
        resource.sharers[connection] = Sharer(owner, connection)
        resource.former_owners.pop(connection, None)
        self.link(connection, resource.key)
        self.watch(SharerDeadline(resource.key, connection), now_ms + owner.session_timeout_ms)

    def unshare(self, resource: Resource, connection: int) -> None:
        """End the shared access of a producer."""
        if resource.sharers.pop(connection, None) is not None:
            self.deadlines.cancel(SharerDeadline(resource.key, connection))
            self.offer(resource)

    def _evict(self, resource: Resource, sharer: Sharer, to: int | None) -> None:
        del resource.sharers[sharer.connection]
        self.deadlines.cancel(SharerDeadline(resource.key, sharer.connection))
        if sharer.connection != to:
            reason = f"it shared {resource.key}, which an exclusive owner has taken"
            self.effects.append(Sever(sharer.connection, reason))

    def sever_silent_sharer(self, resource: Resource, connection: int) -> None:
        """Close the connection of a sharer that sent nothing for its session timeout."""
        self.unshare(resource, connection)
        reason = f"it shared {resource.key} and sent nothing for its session timeout"
        self.effects.append(Sever(connection, reason))

    def reserve(self, key: PartitionKey, owner: Owner | None, now_ms: int) -> None:
        """Keep a partition for the owner of its whole topic, if the partition never had a writer; with None,
        for nobody."""
        resource = self.resource(key)
        if resource.write_incarnation or resource.sharers:
            owner = None
        before, resource.reserved_for = resource.reserved_for, owner
        if owner is not None:
            self.watch(ReservationDeadline(key), now_ms + owner.session_timeout_ms)
        if before != owner:
            self._mark_changed(key)
            self.offer(resource)
        self.forget_if_blank(key)

    def enqueue(self, resource: Resource, waiter: Waiter, now_ms: int) -> int:
        """Add a waiter to the queue. Returns its position, counted from 1."""
        behind = resource.join(waiter)
        for other in behind:
            self.notify(other.connection)
        self.link(waiter.connection, resource.key)
        self.wait_until(resource, waiter, waiter.until_ms, now_ms)
        return len(resource.waiters) - len(behind)

    def wait_until(self, resource: Resource, waiter: Waiter, until_ms: int, now_ms: int) -> None:
        """Keep a waiter in the queue until `until_ms`, -1 for no limit. It has just sent something."""
        waiter.until_ms = until_ms
        self.watch(WaiterDeadline(resource.key, waiter), self.waiter_deadline_ms(waiter, now_ms))

    def waiter_deadline_ms(self, waiter: Waiter, heard_ms: int) -> int:
        """When a waiter that last sent something at `heard_ms` loses its place."""
        session_ms = heard_ms + waiter.owner.session_timeout_ms
        return session_ms if waiter.until_ms < 0 else min(session_ms, waiter.until_ms)

    def dequeue(self, resource: Resource, *leaving: Waiter) -> None:
        """Remove waiters from the queue, and notify all whose position has changed."""
        resource.leave(leaving)
        for waiter in leaving:
            self.deadlines.cancel(WaiterDeadline(resource.key, waiter))
            self.notify(waiter.connection)
            self._unlink(waiter.connection, resource)
        for other in resource.waiters:
            self.notify(other.connection)
        self.offer(resource)

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

    # -- effects and counts
    # ------------------------------------------------------------------------------------

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
            self._forget(key)

    def _forget(self, key: ResourceKey) -> Resource | None:
        self._not_free(key)
        known = self.resources.pop(key, None)
        if isinstance(key, NameKey) and known is not None:
            self.names -= 1
            of_group = self.names_by_group[key.group]
            del of_group[key]
            if not of_group:
                del self.names_by_group[key.group]
        return known

    # -- names that nobody owns ------------------------------------------------------------------------

    def _note_free(self, key: ResourceKey, now_ms: int) -> None:
        if isinstance(key, NameKey):
            self.free_names.pop(key, None)
            self.free_names[key] = now_ms
            self.watch(NamesDeadline(), now_ms + self.settings.names_retention_ms)

    def _not_free(self, key: ResourceKey) -> None:
        """The name has an owner, or is no longer known."""
        if isinstance(key, NameKey):
            self.free_names.pop(key, None)

    def put_off(self, key: NameKey, now_ms: int) -> None:
        """Treat a free name as if its owner had left now: it could not be forgotten."""
        if key in self.free_names:
            self._note_free(key, now_ms)

    def forget_name(self, key: NameKey) -> None:
        """Forget a name whose znode is gone. If it is claimed again, its incarnations begin above the last
        one."""
        resource = self._forget(key)
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

    def _mark_changed(self, key: ResourceKey) -> None:
        if isinstance(key, PartitionKey):
            self.changed_partitions[key] = None

    def _audit(self, resource: Resource, entry: Entry, event: str) -> None:
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

    # -- records loaded and unloaded -------------------------------------------------------------------

    def restore(self, key: ResourceKey, record: OwnershipRecord, version: int, now_ms: int) -> None:
        """Replace a resource by its record. Its owners are detached, unless they are attached to this broker
        with the same grant; they may resume within their session timeout, or the grace period if that is
        longer."""
        known = self._forget(key)
        resource = self.resource(key)
        resource.incarnation, resource.version = record.incarnation, version
        resource.write_incarnation, resource.floor = record.write_incarnation, record.floor
        if known is not None:
            resource.sharers, resource.former_owners = known.sharers, known.former_owners
            if not record.write_incarnation:
                resource.reserved_for = known.reserved_for
            for waiter in known.waiters:
                resource.join(waiter)
        for group, history in record.histories.items():
            entry = resource.entries[group] = Entry(group, history)
            before = None if known is None else known.entries.get(group)
            if before is not None:
                entry.counts = before.counts
            self._restore_owner(resource, entry, before, now_ms)
        for group, before in known.entries.items() if known is not None else ():
            if group not in resource.entries and before.connection is not None:
                self.effects.append(Sever(before.connection, f"no record says that it owns {key}"))
        if all(entry.grant is None for entry in resource.entries.values()):
            self._note_free(key, now_ms)
        self._mark_changed(key)

    def _restore_owner(self, resource: Resource, entry: Entry, before: Entry | None, now_ms: int) -> None:
        grant = entry.last
        assert grant is not None
        known = None if before is None else before.last
        is_same = known is not None and known.incarnation == grant.incarnation
        if before is not None and known is not None and is_same:
            if before.is_fence_final and known.fence_offset != grant.fence_offset:
                self.unwritten[resource.key] = None
            grant = replace(grant, fence_offset=known.fence_offset)
            entry.amend(grant)
            entry.is_fence_final = before.is_fence_final
        if before is not None and before.connection is not None:
            if is_same and not grant.has_ended:
                entry.connection, entry.deadline_ms = before.connection, before.deadline_ms
                entry.is_complete, entry.is_contended = before.is_complete, before.is_contended
                entry.renewed_ms = before.renewed_ms
                return
            self.effects.append(Sever(before.connection, f"{resource.key} was granted to another owner"))
        fence = self._fence(resource.key, entry.group, grant)
        if fence is not None:
            if entry.is_fence_final and NO_OFFSET < grant.fence_offset <= fence.offset:
                fence = fence._replace(offset=grant.fence_offset)
            else:
                # The leader before this one failed before it wrote the fence, or its log was longer. What
                # this log lacks was never committed, and will not be once the replicas have followed it.
                entry.is_fence_final = False
                entry.amend(replace(grant, fence_offset=fence.offset))
            # Also of a grant that has ended: its owner may resume it.
            entry.is_complete = False
            self.effects.append(AwaitCommit(fence))
        if grant.has_ended or grant.owner.assignment is not None:
            return
        grace_ms = max(self.settings.release_grace_ms, grant.owner.session_timeout_ms)
        self._watch_owner(resource.key, entry, now_ms + grace_ms)

    def unload(self, key: ResourceKey, reason: LossReason = LossReason.NONE) -> None:
        """Forget a resource: another broker decides about it from now on, or, with a `reason`, no broker
        does.

        Owners keep their connections, unless the resource is deleted: they may resume at the other broker.
        """
        resource = self._forget(key)
        self.unwritten.pop(key, None)
        self.to_promote.pop(key, None)
        if resource is None:
            return
        for entry in resource.entries.values():
            if reason is LossReason.NONE:
                self.notify(entry.connection)
            elif entry.grant is not None:
                self._audit(resource, entry, f"lost ({reason.name})")
                if entry.connection is not None and entry.grant.owner.assignment is None:
                    self.effects.append(Sever(entry.connection, f"{key} was deleted"))
        for waiter in resource.waiters:
            self.notify(waiter.connection)
        self._mark_changed(key)
