"""The resources that this broker decides about, the connections that have to do with them, and the few ways
in which they change. Every change leaves behind, as effects, what follows from it outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.ownership import drafts
from broker.ownership.bounds import Holdings
from broker.ownership.deadlines import Deadlines, OfOwner, OfSharer, OfWaiter
from broker.ownership.effects import Audit, AwaitCommit, Fence, OwnershipEffect, Sever, Tell
from broker.ownership.resources import Counts, Entry, Resource, Sharer, Waiter
from broker.ownership.settings import OwnershipSettings
from coordinator.ownership.records import (
    NEVER_MS,
    NO_OFFSET,
    Grant,
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
)
from protocol.messages.ownership import Access, LossReason


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What is to be known of a partition that is led here."""

    end_offset: int
    high_watermark: int
    leader_epoch: int


class TableState:
    """`log_ends` tells of a partition, `last_heard_ms` when a connection was last heard from, and `date_ms`
    the time of day. All other times are by a clock that nobody sets.

    `effects` collects what is to be done; whoever calls takes it away.
    """

    def __init__(
        self,
        log_ends: Callable[[PartitionKey], LogEnds],
        last_heard_ms: Callable[[int], int],
        date_ms: Callable[[], int],
        settings: OwnershipSettings,
    ) -> None:
        self.resources: dict[ResourceKey, Resource] = {}
        self.connections: dict[int, Holdings] = {}
        self.deadlines = Deadlines()
        self.effects: list[OwnershipEffect] = []
        self.told: dict[int, bool] = {}
        """Connections that stand otherwise than before with some resource; True: and are to show that they
        live."""
        self.totals = Counts()
        self.names = 0
        """How many of the resources are names."""
        self.changed: dict[PartitionKey, None] = {}
        """Partitions whose writer or readers are others than before."""
        self.unwritten: dict[ResourceKey, None] = {}
        """Resources of which something is to be written that nobody waits for."""
        self.wanted: dict[ResourceKey, None] = {}
        """Resources that one who waits for them might have now."""
        self.settings = settings
        self._log_ends = log_ends
        self.last_heard_ms = last_heard_ms
        self.date_ms = date_ms

    def resource(self, key: ResourceKey) -> Resource:
        """What is known of a resource; a new one where it was never owned."""
        found = self.resources.get(key)
        if found is None:
            found = self.resources[key] = Resource(key)
            self.names += isinstance(key, NameKey)
        return found

    def leader_epoch(self, key: ResourceKey) -> int:
        return self._log_ends(key).leader_epoch if isinstance(key, PartitionKey) else -1

    def link(self, connection: int, key: ResourceKey) -> None:
        """Remember that a connection has to do with a resource, if it is still open."""
        holdings = self.connections.get(connection)
        if holdings is not None:
            holdings.keys[key] = None

    # -- grants ------------------------------------------------------------------------------------------

    def revive(self, resource: Resource, entry: Entry, session_timeout_ms: int, *, is_written: bool) -> None:
        """Let the last grant go on, with this session timeout, also where it was over."""
        grant = entry.last
        assert grant is not None
        revived = drafts.revived(grant, session_timeout_ms)
        if revived == grant:
            return
        entry.amend(revived)
        if grant.is_over:
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
        """Put a grant into force that is durable: from here on nobody else writes. `connection` is None where
        the owner, a member of a consumer group, is yet to come.

        Returns the fence that has to be committed before the owner is told; None where there is none.
        """
        stolen_from: list[str] = []
        event = "granted"
        for loser in drafts.losers(resource, group, grant.owner.access):
            assert loser.last is not None
            owner_id = loser.last.owner.owner_id
            if owner_id != grant.owner.owner_id:
                stolen_from.append(owner_id)
                if loser.group == group:
                    event = f"granted, taken from {owner_id!r} ({loss.name})"
            # Within the group it is one change of the owner, and one line of the audit.
            self._lose(resource, loser, loss, to=connection, is_audited=loser.group != group)
        if Access.WRITE in grant.owner.access:
            for sharer in list(resource.sharers.values()):
                self._evict(resource, sharer, to=connection)
        entry = resource.entry(group)
        fence = self._fence(resource.key, group, grant)
        entry.push(grant if fence is None else replace(grant, fence_offset=fence.offset))
        resource.incarnation = grant.incarnation
        resource.write_incarnation = drafts.write_incarnation(resource, grant)
        resource.trim()
        entry.is_complete = fence is None
        entry.is_contended = False
        for counts in (entry.counts, self.totals):
            counts.claims += 1
            counts.steals += bool(stolen_from)
        self._audit(resource, entry, event)
        if fence is not None:
            self.unwritten[resource.key] = None
        if connection is None:
            self._changed(resource.key)
        else:
            self.attach(resource, entry, connection, now_ms)
        return fence

    def _fence(self, key: ResourceKey, group: str, grant: Grant) -> Fence | None:
        if not isinstance(key, PartitionKey) or grant.owner.assignment is not None:
            return None
        return Fence(key, group, grant.incarnation, self._log_ends(key).end_offset)

    # -- owners come and go ------------------------------------------------------------------------------

    def attach(self, resource: Resource, entry: Entry, connection: int, now_ms: int) -> None:
        """Let the owner of `entry` be reached through `connection`; one that it had before is severed."""
        grant = entry.grant
        assert grant is not None
        previous = entry.connection
        entry.connection = connection
        entry.pinged_ms = NEVER_MS
        self._changed(resource.key)
        if previous not in (None, connection):
            self.effects.append(
                Sever(previous, f"the owner of {resource.key} has come by another connection")
            )
        if connection not in self.connections:
            self.left(resource, entry, now_ms)
            return
        resource.former.pop(connection, None)
        self.link(connection, resource.key)
        if grant.owner.assignment is None:
            self._watch_owner(resource.key, entry, now_ms + grant.owner.session_timeout_ms)

    def left(self, resource: Resource, entry: Entry, now_ms: int) -> None:
        """The owner's connection is closed: it may come back for the grace, where there is one."""
        entry.connection = None
        if entry.last is not None and entry.last.owner.assignment is not None:
            self._changed(resource.key)
        elif self.settings.release_grace_ms > 0:
            self._watch_owner(resource.key, entry, now_ms + self.settings.release_grace_ms)
            self._changed(resource.key)
        else:
            self.free(resource, entry, LossReason.DISCONNECTED)

    def free(self, resource: Resource, entry: Entry, reason: LossReason) -> None:
        """End an ownership without another taking its place."""
        self._lose(resource, entry, reason)
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
        """Take the resource from its owner, whose connection is severed unless the resource goes `to` that
        same connection, or was given up by it."""
        grant = entry.last
        assert grant is not None
        connection, entry.connection = entry.connection, None
        entry.amend(grant.ended(reason, self.date_ms()))
        self.deadlines.discard(OfOwner(resource.key, entry.group, grant.incarnation))
        if is_audited and not grant.is_over:
            self._audit(resource, entry, f"lost ({reason.name})")
        self._changed(resource.key)
        if connection is None or connection == to:
            return
        if grant.owner.assignment is not None:
            return  # It reads other partitions through it, which stay its own. The guard refuses it this one.
        if reason is LossReason.RELEASED:
            self._remember_former(resource, connection)
            self._unlink(connection, resource)
            return
        self.effects.append(Sever(connection, f"it lost {resource.key}: {reason.name}"))

    def _unlink(self, connection: int, resource: Resource) -> None:
        """A connection may have nothing to do with a name any more. That it had a partition is remembered."""
        holdings = self.connections.get(connection)
        if holdings is None or isinstance(resource.key, PartitionKey):
            return
        has_it = any(entry.connection == connection for entry in resource.entries.values())
        if not has_it and all(waiter.connection != connection for waiter in resource.waiters):
            holdings.keys.pop(resource.key, None)

    def _remember_former(self, resource: Resource, connection: int) -> None:
        if connection in self.connections and isinstance(resource.key, PartitionKey):
            resource.former[connection] = None

    def _watch_owner(self, key: ResourceKey, entry: Entry, at_ms: int) -> None:
        assert entry.last is not None
        entry.deadline_ms = at_ms
        self.deadlines.add(at_ms, OfOwner(key, entry.group, entry.last.incarnation))

    # -- those who share, and those who wait -------------------------------------------------------------

    def share(
        self, resource: Resource, owner: Owner, connection: int, now_ms: int, *, is_written: bool
    ) -> None:
        """Let a producer write beside others. `is_written`: `drafts.with_sharers` is."""
        if is_written:
            resource.incarnation += 1
            resource.write_incarnation = resource.incarnation
        if connection not in self.connections:
            return
        resource.sharers[connection] = Sharer(owner, connection)
        resource.former.pop(connection, None)
        self.link(connection, resource.key)
        self.deadlines.add(now_ms + owner.session_timeout_ms, OfSharer(resource.key, connection))

    def unshare(self, resource: Resource, connection: int) -> None:
        """A producer with shared access is gone."""
        if resource.sharers.pop(connection, None) is not None:
            self.deadlines.discard(OfSharer(resource.key, connection))
            self.offer(resource)

    def _evict(self, resource: Resource, sharer: Sharer, to: int | None) -> None:
        del resource.sharers[sharer.connection]
        self.deadlines.discard(OfSharer(resource.key, sharer.connection))
        if sharer.connection != to:
            reason = f"an exclusive owner has taken {resource.key}, which it shared"
            self.effects.append(Sever(sharer.connection, reason))

    def silence(self, resource: Resource, connection: int) -> None:
        """Nothing was heard of a producer with shared access for its session timeout."""
        self.unshare(resource, connection)
        self.effects.append(Sever(connection, f"nothing was heard of it while it shared {resource.key}"))

    def enqueue(self, resource: Resource, waiter: Waiter, now_ms: int) -> int:
        """Stand in the queue; the position."""
        resource.join(waiter)
        self.link(waiter.connection, resource.key)
        self.deadlines.add(self.patience_ms(waiter, now_ms), OfWaiter(resource.key, waiter))
        return len(resource.waiters)

    def patience_ms(self, waiter: Waiter, heard_ms: int) -> int:
        """When one that waits is to be looked after, having been heard of at `heard_ms`."""
        session_ms = heard_ms + waiter.owner.session_timeout_ms
        return session_ms if waiter.until_ms < 0 else min(session_ms, waiter.until_ms)

    def dequeue(self, resource: Resource, *leaving: Waiter) -> None:
        """Leave the queue. Those behind them have moved on."""
        resource.leave(leaving)
        for waiter in leaving:
            self.deadlines.discard(OfWaiter(resource.key, waiter))
            self.tell(waiter.connection)
            self._unlink(waiter.connection, resource)
        for other in resource.waiters:
            self.tell(other.connection)
        self.offer(resource)

    def offer(self, resource: Resource) -> None:
        """The resource may be free for one that waits."""
        if resource.waiters:
            self.wanted[resource.key] = None

    def contend(self, resource: Resource, group: str) -> None:
        """Somebody wanted what others have: let them know, and show that they live."""
        for entry in resource.entries.values():
            if entry.grant is not None and (entry.group == group or entry.writes):
                entry.is_contended = True
                if entry.connection is not None:
                    self.told[entry.connection] = True

    # -- small things ------------------------------------------------------------------------------------

    def tell(self, connection: int | None) -> None:
        if connection is not None:
            self.told.setdefault(connection, False)

    def take_effects(self) -> list[OwnershipEffect]:
        """What is to be done now, in this order. Each connection is told once, when all else is done."""
        effects, self.effects = self.effects, []
        told, self.told = self.told, {}
        return [*effects, *(Tell(connection, is_ping) for connection, is_ping in told.items())]

    def forget_if_blank(self, key: ResourceKey) -> None:
        """Keep nothing of a resource that was asked about, and of which there is nothing to keep."""
        resource = self.resources.get(key)
        if resource is not None and resource.is_blank:
            self._drop(key)

    def _drop(self, key: ResourceKey) -> Resource | None:
        self.names -= isinstance(key, NameKey) and key in self.resources
        return self.resources.pop(key, None)

    def refuse(self, resource: Resource, group: str) -> None:
        """Count a claim that was refused."""
        self.totals.refusals += 1
        if group in resource.entries:
            resource.entries[group].counts.refusals += 1

    def _changed(self, key: ResourceKey) -> None:
        if isinstance(key, PartitionKey):
            self.changed[key] = None

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

    # -- what is written, and what becomes of it ---------------------------------------------------------

    def restore(self, key: ResourceKey, record: OwnershipRecord, version: int, now_ms: int) -> None:
        """Take over what is written of a resource. Owners are detached, unless they are known to be here with
        the same grant; they may come back for as long as their session lasts, and the grace."""
        known = self._drop(key)
        resource = self.resource(key)
        resource.incarnation, resource.version = record.incarnation, version
        resource.write_incarnation, resource.floor = record.write_incarnation, record.floor
        if known is not None:
            resource.sharers, resource.former = known.sharers, known.former
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
                self.effects.append(Sever(before.connection, f"nothing is written of its owning {key}"))
        self._changed(key)

    def _restore_owner(self, resource: Resource, entry: Entry, before: Entry | None, now_ms: int) -> None:
        grant = entry.last
        assert grant is not None
        fence = self._fence(resource.key, entry.group, grant)
        if fence is not None and not NO_OFFSET < grant.fence_offset <= fence.offset:
            # It came into force under a leader that could not write down where, or whose log was longer: what
            # is missing here was never committed. Nobody before has written beyond the end of this log.
            grant = replace(grant, fence_offset=fence.offset)
            entry.amend(grant)
            self.unwritten[resource.key] = None
        if before is not None and before.connection is not None:
            is_same = before.last is not None and before.last.incarnation == grant.incarnation
            if is_same and not grant.is_over:
                entry.connection, entry.deadline_ms = before.connection, before.deadline_ms
                entry.is_complete, entry.is_contended = before.is_complete, before.is_contended
                return
            self.effects.append(Sever(before.connection, f"{resource.key} has been granted to another"))
        if grant.is_over:
            return
        if fence is not None:
            entry.is_complete = False
            self.effects.append(AwaitCommit(fence._replace(offset=grant.fence_offset)))
        if grant.owner.assignment is not None:
            return
        grace_ms = max(self.settings.release_grace_ms, grant.owner.session_timeout_ms)
        self._watch_owner(resource.key, entry, now_ms + grace_ms)

    def unload(self, key: ResourceKey, reason: LossReason = LossReason.NONE) -> None:
        """Know nothing of a resource any more: others decide about it from now on; with a `reason`, nobody.

        Owners keep their connections where they can go on elsewhere.
        """
        resource = self._drop(key)
        self.unwritten.pop(key, None)
        self.wanted.pop(key, None)
        if resource is None:
            return
        for entry in resource.entries.values():
            if reason is LossReason.NONE:
                self.tell(entry.connection)
            elif entry.grant is not None:
                self._audit(resource, entry, f"lost ({reason.name})")
                if entry.connection is not None and entry.grant.owner.assignment is None:
                    self.effects.append(Sever(entry.connection, f"{key} was deleted"))
        for waiter in resource.waiters:
            self.tell(waiter.connection)
        self._changed(key)
