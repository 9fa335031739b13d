"""What this broker knows about a resource and the connections that claim it, and the records that it writes.

Values and queries: nothing here changes who owns a resource. `rules` decides that, `state` changes it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.ownership.credentials import NO_SECRET, is_proof
from holdfast_log.coordinator.ownership.records import (
    HISTORY_BYTES_MAX,
    HISTORY_MAX,
    NEVER_MS,
    NO_OFFSET,
    Grant,
    History,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    trimmed,
)
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, Access, LossReason

NO_ZNODE = -1
"""The version of a resource that was never written."""
NO_GRANT = -1
"""The incarnation in the request of a waiter or a sharer, which has no grant."""
NAMED_GROUPS_MAX = 1000
"""Maximum number of groups remembered for one connection."""


Claimant: TypeAlias = tuple[str, str, str, bytes | int]
"""The group, the owner id and the principal of a claimant, and the digest of its secret; its connection if it
sent none."""


def _claimant(group: str, owner: Owner, connection: int) -> Claimant:
    return (group, owner.owner_id, owner.principal, owner.secret_digest or connection)


def partition_key(partition: Partition) -> PartitionKey:
    return PartitionKey(partition.topic_id, partition.index, partition.topic)


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sends a request: the owner as it describes itself, its group, and the id of its connection."""

    group: str
    owner: Owner
    connection: int

    @property
    def claimant(self) -> Claimant:
        """What distinguishes this requester from all others that claim or wait."""
        return _claimant(self.group, self.owner, self.connection)

    def owns(self, grant: Grant, connection: int | None) -> bool:
        """Whether the requester proves that `grant` is its own. `connection` is the one through which the
        grant's owner is attached.

        The proof is the secret of the claim; where the claim came without one, the connection. The record of
        a broker that knew no secrets has only the owner id to compare. Besides, a grant belongs to the
        principal of its claim: another principal gains nothing by knowing the secret.
        """
        owner = grant.owner
        if owner.owner_id != self.owner.owner_id or owner.assignment is not None:
            return False
        if owner.principal != self.owner.principal:
            return False
        if owner.secret_digest is None:
            return True
        if owner.secret_digest == NO_SECRET:
            return connection == self.connection
        return is_proof(self.owner.secret_digest or NO_SECRET, owner.secret_digest)


@dataclass(frozen=True, slots=True)
class NamedGrant:
    """A resource, and the incarnation of the grant that the request names; `NO_GRANT` for a waiter or
    sharer."""

    key: ResourceKey
    incarnation: int


@dataclass(slots=True)
class Holdings:
    """The groups that a connection has named, and the resources that it owns, shares, waits for or has
    lost."""

    groups: dict[str, None] = field(default_factory=dict)
    keys: dict[ResourceKey, None] = field(default_factory=dict)

    def name(self, group: str) -> None:
        """Remember a group. Beyond `NAMED_GROUPS_MAX`, the group named longest ago is forgotten."""
        self.groups.pop(group, None)
        self.groups[group] = None
        if len(self.groups) > NAMED_GROUPS_MAX:
            del self.groups[next(iter(self.groups))]


@dataclass(slots=True)
class Counts:
    """What has happened to a resource in one group since this broker began to decide about it."""

    claims: int = 0
    steals: int = 0
    refusals: int = 0
    fenced_appends: int = 0
    mismatches: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """A resource in one group: its latest grant, the grants before it, and the owner's connection.

    `connection` is None while the owner is detached, at most until `deadline_ms`. While the owner is
    attached, its session ends at `deadline_ms` or later: requests extend it without moving `deadline_ms`.
    `is_complete`: the fence of the latest grant is settled (see `fence_commits`) at this leader: the owner
    may be answered. `is_fence_final`: the fence has settled at this leader or an earlier one: the record may
    name it, and it does not change any more.
    """

    group: str
    history: History = ()
    floor: int = 0
    """The generation in force while there is no history."""
    connection: int | None = None
    deadline_ms: int = NEVER_MS
    pinged_ms: int = NEVER_MS
    """When the owner was asked to send a request that has not arrived yet."""
    renewed_ms: int = NEVER_MS
    """When the owner last sent a Renew on a connection to which it is not attached."""
    is_complete: bool = True
    is_fence_final: bool = True
    is_contended: bool = False
    counts: Counts = field(default_factory=Counts)

    @property
    def last(self) -> Grant | None:
        """The grant in force, or the latest one if none is."""
        return self.history[-1] if self.history else None

    @property
    def written(self) -> History:
        """The history as the record has it. A fence that is not final is left out: the next leader may have
        records behind it that this one lacks."""
        if self.is_fence_final or not self.history:
            return self.history
        return (*self.history[:-1], replace(self.history[-1], fence_offset=NO_OFFSET))

    @property
    def grant(self) -> Grant | None:
        """The grant in force; None while the resource has no owner in this group."""
        last = self.last
        return None if last is None or last.has_ended else last

    @property
    def absent(self) -> Grant | None:
        """The latest grant, if its owner was lost to silence and nobody has been granted the resource since
        in this group."""
        last = self.last
        return last if last is not None and last.has_ended and last.may_resume else None

    @property
    def has_absent_reader(self) -> bool:
        """Whether the group's reader was lost to silence, and could still resume its grant."""
        last = self.absent
        return last is not None and Access.READ in last.owner.access and last.owner.assignment is None

    @property
    def generation(self) -> int:
        """The generation in force; 0 if the resource was never owned."""
        return self.history[-1].generation if self.history else self.floor

    @property
    def writes(self) -> bool:
        """Whether the owner of this entry is the partition's writer."""
        grant = self.grant
        return grant is not None and Access.WRITE in grant.owner.access

    @property
    def reads(self) -> bool:
        """Whether the owner of this entry is the group's reader."""
        grant = self.grant
        return grant is not None and Access.READ in grant.owner.access

    @property
    def renewed_until_ms(self) -> int:
        """Until when Renew requests on other connections keep the owner's session; `NEVER_MS` if there were
        none."""
        if self.renewed_ms == NEVER_MS or not self.history:
            return NEVER_MS
        return self.renewed_ms + self.history[-1].owner.session_timeout_ms

    def find(self, incarnation: int) -> Grant | None:
        """The remembered grant with this incarnation."""
        return next((grant for grant in self.history if grant.incarnation == incarnation), None)

    def end_of(self, grant: Grant) -> int:
        """The fence of the grant that followed `grant` in the group: no record of `grant` is there or later.
        `NO_OFFSET` while that fence is not final, and without a successor."""
        followed = (later for before, later in itertools.pairwise(self.written) if before is grant)
        successor = next(followed, None)
        return NO_OFFSET if successor is None else successor.fence_offset

    def push(self, grant: Grant) -> None:
        """Append a grant to the history."""
        self.history = _pushed(self.history, grant)

    def amend(self, grant: Grant) -> None:
        """Replace the latest grant by `grant`."""
        self.history = (*self.history[:-1], grant)


def _pushed(history: History, grant: Grant) -> History:
    """The history with one more grant; beyond `HISTORY_MAX` the oldest is forgotten.

    Only the latest grant can be resumed, so only the latest keeps the digest of its secret.
    """
    before = history[-1:]
    if before and before[0].owner.secret_digest:
        owner = replace(before[0].owner, secret_digest=NO_SECRET)
        history = (*history[:-1], replace(before[0], owner=owner))
    return (*history, grant)[-HISTORY_MAX:]


@dataclass(slots=True, eq=False)
class Waiter:
    """A claim that stands in a resource's queue. `until_ms` is -1 if it waits until its connection closes.
    Only `until_ms` changes: when the client sends the claim again."""

    group: str
    owner: Owner
    connection: int
    until_ms: int
    since_ms: int = 0
    """When the wait began, also at the broker that led before, by the client's word."""

    @property
    def claimant(self) -> Claimant:
        """What distinguishes this waiter from all others."""
        return _claimant(self.group, self.owner, self.connection)


@dataclass(frozen=True, slots=True)
class Sharer:
    """A producer with shared access."""

    owner: Owner
    connection: int


@dataclass(slots=True, eq=False)
class Resource:
    """A resource that this broker decides about.

    `reserved_for` is the owner of the whole topic, for whom a partition without a writer so far is kept.
    `incarnation` is that of the latest grant in any group, and `write_incarnation` that of the latest grant
    to a writer. `floor` is the generation from which a group without an entry continues. `version` is that of
    the resource's znode. `former_owners` are open connections that have owned the partition, and have lost
    it.
    """

    key: ResourceKey
    entries: dict[str, Entry] = field(default_factory=dict)
    incarnation: int = 0
    write_incarnation: int = 0
    floor: int = 0
    version: int = NO_ZNODE
    waiters: deque[Waiter] = field(default_factory=deque)
    sharers: dict[int, Sharer] = field(default_factory=dict)
    former_owners: dict[int, None] = field(default_factory=dict)
    reserved_for: Owner | None = None
    history_bytes_max: int = HISTORY_BYTES_MAX
    """Bytes for past grants: none once the records of this broker have no room (`TableState.keeps_past`)."""
    _positions: dict[Claimant, int] = field(default_factory=dict)
    """Positions of the waiters; empty after the queue has moved."""

    def entry(self, group: str) -> Entry:
        """The resource in a group; a new entry if the group has never owned it."""
        found = self.entries.get(group)
        if found is None:
            found = self.entries[group] = Entry(group, floor=self.floor)
        return found

    def peek(self, group: str) -> Entry:
        """The resource in a group, for reading only: a new entry is not kept."""
        return self.entries.get(group) or Entry(group, floor=self.floor)

    @property
    def is_blank(self) -> bool:
        """Whether the resource was never owned, is not reserved, and has neither waiters nor sharers."""
        if self.waiters or self.sharers or self.reserved_for is not None:
            return False
        return not any(entry.history for entry in self.entries.values())

    def is_reserved_for(self, group: str, owner: Owner) -> bool:
        """Whether the resource is kept for this owner, who proves that with the secret of its claim."""
        reserved = self.reserved_for
        return (
            reserved is not None
            and group == PRODUCERS_GROUP
            and owner.owner_id == reserved.owner_id
            and owner.principal == reserved.principal
            and is_proof(owner.secret_digest or NO_SECRET, reserved.secret_digest or NO_SECRET)
        )

    @property
    def writer(self) -> Entry | None:
        """The entry whose owner writes, if there is one. There are never two."""
        for entry in self.entries.values():
            if entry.writes:
                return entry
        return None

    @property
    def absent_writer(self) -> Entry | None:
        """The entry whose writer was lost to silence, and could still resume its grant. There are never
        two."""
        for entry in self.entries.values():
            last = entry.absent
            is_writer = last is not None and Access.WRITE in last.owner.access
            if last is not None and is_writer and not self.was_written_since(last.incarnation):
                return entry
        return None

    def was_written_since(self, incarnation: int) -> bool:
        """Whether another writer, exclusive or shared, was granted access after `incarnation`."""
        return self.write_incarnation > incarnation

    def held_by(self, connection: int) -> Iterator[Entry]:
        """The entries that a connection owns."""
        return (entry for entry in self.entries.values() if entry.connection == connection)

    def losers(self, group: str, access: Access) -> list[Entry]:
        """The entries whose owners lose the resource to a new owner in `group`."""
        return [
            entry
            for entry in self.entries.values()
            if entry.grant is not None and (entry.group == group or (Access.WRITE in access and entry.writes))
        ]

    # -- records ---------------------------------------------------------------------------------------

    def record(self) -> OwnershipRecord:
        """The record of the resource as it is now."""
        return self._trimmed({group: entry.written for group, entry in self.entries.items() if entry.history})

    def _trimmed(self, histories: Mapping[str, History]) -> OwnershipRecord:
        record = OwnershipRecord(self.incarnation, histories, self.write_incarnation, self.floor)
        return trimmed(record, self.history_bytes_max)

    def record_with_grant(self, group: str, grant: Grant, loss: LossReason, date_ms: int) -> OwnershipRecord:
        """The record once `grant` is in force, and the owners who lose to it have lost at `date_ms`."""
        histories: dict[str, History] = {
            entry.group: entry.written for entry in self.entries.values() if entry.history
        }
        for loser in self.losers(group, grant.owner.access):
            assert loser.last is not None
            histories[loser.group] = (*loser.history[:-1], loser.last.ended(loss, date_ms))
        histories[group] = _pushed(histories.get(group, ()), grant)
        written = self.write_incarnation_with(grant)
        record = OwnershipRecord(grant.incarnation, histories, written, self.floor)
        return trimmed(record, self.history_bytes_max)

    def record_with_interlude(self, group: str, grant: Grant) -> OwnershipRecord:
        """The record once the interlude `grant` has followed the latest grant of `group`, which has ended."""
        histories: dict[str, History] = {
            entry.group: entry.written for entry in self.entries.values() if entry.history
        }
        histories[group] = interrupted(histories[group], grant)
        written = self.write_incarnation_with(grant)
        return trimmed(OwnershipRecord(grant.incarnation, histories, written, self.floor))

    def record_with_end(self, group: str, reason: LossReason, date_ms: int) -> OwnershipRecord:
        """The record once the latest grant of `group` has ended at `date_ms`, without a successor."""
        record = self.record()
        *before, grant = record.histories[group]
        histories = {**record.histories, group: (*before, grant.ended(reason, date_ms))}
        return replace(record, histories=histories)

    def record_with_revival(self, group: str, owner: Owner) -> OwnershipRecord:
        """The record once the latest grant of `group`, which has ended, is in force again for `owner`."""
        record = self.record()
        *before, grant = record.histories[group]
        histories = {**record.histories, group: (*before, revived(grant, owner))}
        return replace(record, histories=histories)

    def record_with_sharers(self) -> OwnershipRecord:
        """The record once producers share the partition.

        It raises the incarnations: an exclusive writer from before cannot resume, not even after all sharers
        have left.
        """
        incarnation = self.incarnation + 1
        return replace(self.record(), incarnation=incarnation, write_incarnation=incarnation)

    def write_incarnation_with(self, grant: Grant) -> int:
        """The incarnation of the latest grant to a writer once `grant` is in force."""
        return grant.incarnation if Access.WRITE in grant.owner.access else self.write_incarnation

    def trim(self) -> None:
        """Forget what the record has no room for."""
        record = self._trimmed({each.group: each.history for each in self.entries.values() if each.history})
        self.floor = record.floor
        for group, entry in list(self.entries.items()):
            if entry.history and group not in record.histories:
                del self.entries[group]
            elif entry.history:
                entry.history = record.histories[group]

    # -- the queue -------------------------------------------------------------------------------------

    def join(self, waiter: Waiter) -> list[Waiter]:
        """Add a waiter to the queue, before those that have waited less. Returns the waiters behind it."""
        waiters = self.waiters
        if not waiters or waiters[-1].since_ms <= waiter.since_ms:
            waiters.append(waiter)
            if self._positions:
                self._positions[waiter.claimant] = len(waiters)
            return []
        place = next(at for at, other in enumerate(waiters) if other.since_ms > waiter.since_ms)
        waiters.insert(place, waiter)
        self._positions.clear()
        return list(waiters)[place + 1 :]

    def leave(self, leaving: Collection[Waiter]) -> None:
        """Remove waiters from the queue. All of them have to be in it."""
        self._positions.clear()
        if len(leaving) == 1:
            self.waiters.remove(*leaving)
        else:
            gone = set(leaving)
            self.waiters = deque(waiter for waiter in self.waiters if waiter not in gone)

    def waiter(self, claimant: Claimant) -> tuple[int, Waiter] | None:
        """A waiter and its position, counted from 1; None if it is not in the queue."""
        if self.waiters and not self._positions:
            for position, waiter in enumerate(self.waiters, 1):
                self._positions.setdefault(waiter.claimant, position)
        found = self._positions.get(claimant)
        return None if found is None else (found, self.waiters[found - 1])


def interrupted(history: History, interlude: Grant) -> History:
    """The history in which `interlude` follows the latest grant, which nobody can resume any more."""
    last = replace(history[-1], reason=interlude.reason)
    return _pushed((*history[:-1], last), interlude)


def revived(grant: Grant, owner: Owner) -> Grant:
    """The grant in force again, with the session timeout of `owner`, whether it had ended or not.

    A grant recorded by a broker that knew no secrets is bound to the secret of `owner`.
    """
    digest = grant.owner.secret_digest
    continued = replace(
        grant.owner,
        session_timeout_ms=owner.session_timeout_ms,
        secret_digest=owner.secret_digest if digest is None else digest,
    )
    return replace(grant, owner=continued, reason=LossReason.NONE, until_ms=NEVER_MS)
