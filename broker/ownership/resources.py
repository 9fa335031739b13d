"""What is known of a resource: who owns it in which group, who waits, and who had it before.

Values, and questions about them. What changes them is in `table`, what may be granted in `rules`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from broker.replication.partition import Partition
from coordinator.ownership.records import (
    HISTORY_MAX,
    NEVER_MS,
    Grant,
    History,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    trimmed,
)
from protocol.messages.ownership import Access

NO_ZNODE = -1
"""The version of what was never written."""


def partition_key(partition: Partition) -> PartitionKey:
    return PartitionKey(partition.topic_id, partition.index, partition.topic)


@dataclass(slots=True)
class Counts:
    """What has happened to a resource in one group since this broker decides about it."""

    claims: int = 0
    steals: int = 0
    refusals: int = 0
    fenced_appends: int = 0
    mismatches: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """A resource in one group: its last grant, those before, and where its owner is.

    `connection` is None while the owner is detached, which it may be until `deadline_ms`. While it is
    attached, `deadline_ms` is when it has to have been heard of, as far as that was looked into.
    `is_complete`: everything before the fence offset is committed, so that the owner may be told.
    """

    group: str
    history: History = ()
    floor: int = 0
    """The generation from which the group goes on where it has no history."""
    connection: int | None = None
    deadline_ms: int = NEVER_MS
    pinged_ms: int = NEVER_MS
    """When the owner was asked for a sign of life that has not come yet."""
    is_complete: bool = True
    is_contended: bool = False
    counts: Counts = field(default_factory=Counts)

    @property
    def last(self) -> Grant | None:
        """The grant in force, or the one that was in force last."""
        return self.history[-1] if self.history else None

    @property
    def grant(self) -> Grant | None:
        """The grant in force; None where nobody owns the resource in this group."""
        last = self.last
        return None if last is None or last.is_over else last

    @property
    def generation(self) -> int:
        """The generation in force; 0 where the resource was never owned."""
        return self.history[-1].generation if self.history else self.floor

    @property
    def writes(self) -> bool:
        """Whether its owner is the partition's writer."""
        grant = self.grant
        return grant is not None and Access.WRITE in grant.owner.access

    @property
    def reads(self) -> bool:
        """Whether its owner is the group's reader."""
        grant = self.grant
        return grant is not None and Access.READ in grant.owner.access

    def find(self, incarnation: int) -> Grant | None:
        """A grant that is remembered."""
        return next((grant for grant in self.history if grant.incarnation == incarnation), None)

    def push(self, grant: Grant) -> None:
        self.history = pushed(self.history, grant)

    def amend(self, grant: Grant) -> None:
        """Put `grant` in the place of the last one."""
        self.history = (*self.history[:-1], grant)


def pushed(history: History, grant: Grant) -> History:
    """The history with one more grant; the oldest are forgotten."""
    return (*history, grant)[-HISTORY_MAX:]


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """One that stands in a resource's queue. `until_ms` is -1 where it waits for as long as it is there."""

    group: str
    owner: Owner
    connection: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Sharer:
    """A producer with shared access."""

    owner: Owner
    connection: int


@dataclass(slots=True, eq=False)
class Resource:
    """A resource that this broker decides about.

    `incarnation` is that of the newest grant, in whichever group, and `write_incarnation` that of the newest
    to a writer. `floor` is the generation from which groups go on that are not known. `version` is that of
    its znode. `former` are connections that have owned the partition to
    write it, have lost it and are still open.
    """

    key: ResourceKey
    entries: dict[str, Entry] = field(default_factory=dict)
    incarnation: int = 0
    write_incarnation: int = 0
    floor: int = 0
    version: int = NO_ZNODE
    waiters: deque[Waiter] = field(default_factory=deque)
    sharers: dict[int, Sharer] = field(default_factory=dict)
    former: dict[int, None] = field(default_factory=dict)
    _positions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of those who wait, by group and owner; empty where they have moved since."""

    def entry(self, group: str) -> Entry:
        """The resource in a group; a new one where the group has never had it."""
        found = self.entries.get(group)
        if found is None:
            found = self.entries[group] = Entry(group, floor=self.floor)
        return found

    def peek(self, group: str) -> Entry:
        """The resource in a group, to be looked at only."""
        return self.entries.get(group) or Entry(group, floor=self.floor)

    @property
    def is_blank(self) -> bool:
        """Whether it was never owned, and nobody waits for it or shares it."""
        return not (self.waiters or self.sharers or any(entry.history for entry in self.entries.values()))

    @property
    def writer(self) -> Entry | None:
        """The entry whose owner writes, if there is one. There never are two."""
        for entry in self.entries.values():
            if entry.writes:
                return entry
        return None

    @property
    def has_absent_writer(self) -> bool:
        """Whether one that wrote alone is gone, and could go on with what it had."""
        last_grants = (entry.last for entry in self.entries.values())
        return any(
            last is not None
            and last.is_over
            and last.may_resume
            and Access.WRITE in last.owner.access
            and not self.was_written_since(last.incarnation)
            for last in last_grants
        )

    def was_written_since(self, incarnation: int) -> bool:
        """Whether others were granted the partition to write it, alone or shared, after `incarnation`."""
        return self.write_incarnation > incarnation

    def held_by(self, connection: int) -> Iterator[Entry]:
        """The entries that a connection owns."""
        return (entry for entry in self.entries.values() if entry.connection == connection)

    def record(self) -> OwnershipRecord:
        """What is to be written of it."""
        histories = {group: entry.history for group, entry in self.entries.items() if entry.history}
        return trimmed(OwnershipRecord(self.incarnation, histories, self.write_incarnation, self.floor))

    def trim(self) -> None:
        """Forget what is not written."""
        record = self.record()
        self.floor = record.floor
        for group, entry in list(self.entries.items()):
            if entry.history and group not in record.histories:
                del self.entries[group]
            elif entry.history:
                entry.history = record.histories[group]

    def join(self, waiter: Waiter) -> None:
        """Stand at the end of the queue."""
        self.waiters.append(waiter)
        if self._positions:
            self._positions[waiter.group, waiter.owner.owner_id] = len(self.waiters)

    def leave(self, leaving: Collection[Waiter]) -> None:
        """Leave the queue, in which all of them stand."""
        self._positions.clear()
        if len(leaving) == 1:
            self.waiters.remove(*leaving)
        else:
            gone = set(leaving)
            self.waiters = deque(waiter for waiter in self.waiters if waiter not in gone)

    def waiter(self, group: str, owner_id: str) -> tuple[int, Waiter] | None:
        """A waiter and its position, counted from 1."""
        if self.waiters and not self._positions:
            for position, waiter in enumerate(self.waiters, 1):
                self._positions.setdefault((waiter.group, waiter.owner.owner_id), position)
        found = self._positions.get((group, owner_id))
        return None if found is None else (found, self.waiters[found - 1])
