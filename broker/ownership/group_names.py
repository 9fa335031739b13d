"""The names of the groups that this broker coordinates: read from ZooKeeper, loaded, and unloaded.

A group may have very many names, and the broker must renew its lease meanwhile: names are loaded and unloaded
in many turns of the reactor. A request about a group waits until the last of its names is loaded. Once this
broker has stopped coordinating a group it confirms none of its names, whether they are still in the table or
not, and it does not read the group again before the last of them is gone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, ensureDeferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.ownership.record_loading import RecordLoading
from holdfast_log.broker.ownership.shared_turns import SharedTurns
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.ownership.records import NameKey
from holdfast_log.coordinator.ownership.store import FoundRecords, OwnershipStore
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode

_log = logging.getLogger(__name__)

_GROUPS_MAX = 10_000
"""Maximum number of groups of one partition whose names stay read; beyond it, those without names are
forgotten."""

_GROUPS_AT_A_TIME = 50
"""Maximum number of groups whose names are read at the same time, for a request about all groups."""

NAMES_AT_ONCE = 200
"""Names loaded or unloaded in one turn of the reactor, of all groups together: a few ms."""


@dataclass(slots=True, eq=False)
class NamedGroup:
    """Whether the names of a group have been read, and the requests that wait for that."""

    is_read: bool = False
    waiting: list[Deferred[None]] = field(default_factory=list)


NamedGroups = dict[str, NamedGroup]
"""The groups that one partition of `__consumer_offsets` keeps, and whose names this broker decides about."""


class GroupNames:
    """Keeps the names of groups in the table. `table_changed` is called after each change of the table."""

    def __init__(
        self,
        store: OwnershipStore,
        table: OwnershipTable,
        records: RecordLoading,
        clock: Clock,
        table_changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._table = table
        self._records = records
        self._table_changed = table_changed
        self._turns = SharedTurns(clock, NAMES_AT_ONCE)
        self._leaving: deque[NameKey] = deque()
        """Names that this broker no longer decides about, and that are still in the table."""
        self._leaving_groups: dict[str, None] = {}
        self._unloaded: list[Deferred[None]] = []
        """Fired when no name is leaving any more."""

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, groups: NamedGroups, group: str) -> Deferred[None]:
        """Fires once the names of a group have been read. Fails with BrokerError: NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE."""
        known = groups.get(group)
        if known is not None and known.is_read:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if known is not None:
            known.waiting.append(done)
            return done
        self._make_room(groups)
        reading = groups[group] = NamedGroup()
        reading.waiting.append(done)
        ensureDeferred(self._read(group)).addCallbacks(
            self._found,
            self._unread,
            callbackArgs=(groups, group, reading),
            errbackArgs=(groups, group, reading),
        )
        return done

    async def _read(self, group: str) -> FoundRecords:
        while group in self._leaving_groups:
            unloaded: Deferred[None] = Deferred()
            self._unloaded.append(unloaded)
            await unloaded
        return await self._store.read_names(group)

    def _make_room(self, groups: NamedGroups) -> None:
        """Forget groups without names: they can be read again."""
        if len(groups) < _GROUPS_MAX:
            return
        for name, group in list(groups.items()):
            if group.is_read and not self._table.names_of(name):
                del groups[name]

    def _found(self, found: FoundRecords, groups: NamedGroups, group: str, reading: NamedGroup) -> None:
        if groups.get(group) is not reading:
            return  # This broker has stopped coordinating the group; the requests that waited were answered.
        self._table.count_from(found.incarnations_from)
        ensureDeferred(self._load(found, groups, group, reading))

    async def _load(self, found: FoundRecords, groups: NamedGroups, group: str, reading: NamedGroup) -> None:
        """Take over the names of a group. Requests about them wait until the last one is known."""
        steps = [partial(self._records.load, each) for each in found.records]
        if not await self._in_turns(steps, lambda: groups.get(group) is reading):
            return
        reading.is_read = True
        waiting, reading.waiting = reading.waiting, []
        for done in waiting:
            done.callback(None)

    def _unread(self, failure: Failure, groups: NamedGroups, group: str, reading: NamedGroup) -> None:
        if failure.check(SessionExpired) is None:
            _log.error(
                "Could not read from ZooKeeper who owns the names of group %r; clients ask again: %s",
                group,
                failure.value,
            )
        if groups.get(group) is reading:
            del groups[group]
        _fail(reading, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def read_all(self, groups_of: Callable[[str], NamedGroups]) -> None:
        """Read the names of all groups; `groups_of` raises BrokerError for a group that another broker
        coordinates. Raises `SessionExpired` once ZooKeeper is closed."""
        names = await self._store.named_groups()
        for start in range(0, len(names), _GROUPS_AT_A_TIME):
            reading = []
            for group in names[start : start + _GROUPS_AT_A_TIME]:
                try:
                    reading.append(self.read(groups_of(group), group))
                except BrokerError:
                    continue
            await DeferredList(reading, consumeErrors=True)

    # -- leading again ---------------------------------------------------------------------------------

    async def read_again(self, groups: NamedGroups) -> dict[str, FoundRecords]:
        """The records of the names that this broker has decided about, and will decide about in the next
        leader epoch."""
        names = [name for name, group in groups.items() if group.is_read and self._table.names_of(name)]
        found: dict[str, FoundRecords] = {}
        for start in range(0, len(names), _GROUPS_AT_A_TIME):
            some = names[start : start + _GROUPS_AT_A_TIME]
            reading = [ensureDeferred(self._store.read_names(group)) for group in some]
            outcomes: Any = await DeferredList(reading, consumeErrors=True)
            for group, (_, outcome) in zip(some, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    outcome.raiseException()
                found[group] = outcome
        return found

    async def load_again(self, found: Mapping[str, FoundRecords], is_wanted: Callable[[], bool]) -> bool:
        """Take over the names of groups as they are recorded now. Their waiters keep their places. Stops, and
        returns False, once they are not wanted any more."""
        for each in found.values():
            self._table.count_from(each.incarnations_from)
        recorded = [each for records in found.values() for each in records.records]
        names = {each.key for each in recorded}
        gone = [name for name in self._records.names_of(found) if name not in names]
        steps = [
            *(partial(self._records.load, each) for each in recorded),
            *(partial(self._records.unload_unwritten, name) for name in gone),
        ]
        return await self._in_turns(steps, is_wanted)

    async def _in_turns(self, steps: Sequence[Callable[[], None]], is_wanted: Callable[[], bool]) -> bool:
        """Take the steps, a few in each turn of the reactor, as long as they are wanted. Returns whether all
        were taken."""
        done = 0
        while done < len(steps):
            count = await self._turns.take(len(steps) - done)
            if not is_wanted():
                return False
            for step in steps[done : done + count]:
                step()
            done += count
            self._table_changed()
        return True

    # -- leading no more -------------------------------------------------------------------------------

    def unload(self, groups: NamedGroups, kept: Collection[str] = ()) -> None:
        """Unload the names of all `groups` but those `kept`. They are read again when a request names their
        group."""
        leaving = {name: group for name, group in groups.items() if name not in kept}
        for name in leaving:
            del groups[name]
        names = self._records.names_of(leaving)
        if names:
            self._leaving.extend(names)
            is_under_way = bool(self._leaving_groups)
            self._leaving_groups.update(dict.fromkeys(leaving))
            if not is_under_way:
                ensureDeferred(self._unload_in_turns())
        for group in leaving.values():
            _fail(group, ErrorCode.NOT_COORDINATOR)

    async def _unload_in_turns(self) -> None:
        while self._leaving:
            for _ in range(await self._turns.take(len(self._leaving))):
                self._records.unload(self._leaving.popleft(), BrokerError(ErrorCode.NOT_COORDINATOR))
            self._table_changed()
        self._leaving_groups.clear()
        unloaded, self._unloaded = self._unloaded, []
        for each in unloaded:
            each.callback(None)

    def is_leaving(self, group: str) -> bool:
        """Whether the table may still have names of a group from a leadership that has ended."""
        return group in self._leaving_groups


def _fail(group: NamedGroup, code: ErrorCode) -> None:
    waiting, group.waiting = group.waiting, []
    for done in waiting:
        done.errback(BrokerError(code))
