"""The access control lists in ZooKeeper, where Kafka's AclAuthorizer keeps them: every broker follows them.

A change is one multi: it writes the znode of a resource pattern and creates a notification, which makes every
broker read that pattern again. Kafka's own brokers and tools read and write the same znodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.change_notifications import (
    EXPIRATION_MS,
    ChangeFollower,
    ChangeNotifications,
)
from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.znodes.acls import (
    ACL_FOLDERS,
    ACL_PATTERNS,
    ACL_RESOURCES,
    acl_change_prefix,
    acl_folder,
    acl_path,
    decode_acl_change,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    WriteOperation,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import read_all
from holdfast_log.coordinator.zookeeper.sessions import on_any_session
from holdfast_log.protocol.acl_bindings import EVERY_HOST, EVERYBODY, AclEntry, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource

_ATTEMPTS_MAX = 100
"""Maximum number of attempts at one change. Each that fails means that somebody else has changed the same
entries, or that an answer was lost."""
TOGETHER = 500
"""Maximum number of patterns that are decoded, or whose changes are compiled, in one turn of the reactor: a
few ms of work. A cluster may have 50,000 entries, each of a pattern of its own."""
_READS_AT_ONCE = 50
"""Znodes read by one request: each may have hundreds of entries of 100 bytes."""
_log = logging.getLogger(__name__)

AclEntries: TypeAlias = frozenset[AclEntry]
Acls: TypeAlias = Mapping[ResourcePattern, AclEntries]

UNREADABLE: AclEntries = frozenset({AclEntry(EVERYBODY, EVERY_HOST, AclOperation.ALL, AclPermission.DENY)})
"""Takes the place of entries that cannot be read: it denies everything, since they may have denied it."""


class AccessControlLists(ChangeFollower[ResourcePattern]):
    """A broker's copy of the access control lists, and changes to them."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock, *, expiration_ms: int = EXPIRATION_MS) -> None:
        super().__init__(
            clock,
            "access control lists",
            [
                ChangeNotifications(
                    acl_change_prefix(ResourcePattern(AclResource.TOPIC, "", pattern)),
                    decode_acl_change,
                    expiration_ms,
                )
                for pattern in ACL_PATTERNS
            ],
        )
        self._zookeeper = zookeeper
        self._acls: dict[ResourcePattern, AclEntries] = {}
        self._listeners: list[tuple[Callable[[Acls], None], Callable[[Acls], None]]] = []
        self._reads = DeferredLock()
        """Held from a read until what was read is learnt: what is read later is learnt later."""

    @property
    def present(self) -> Acls:
        """The entries of each pattern that has any, as last read."""
        return self._acls

    def add_listener(
        self, on_change: Callable[[Acls], None], prepare: Callable[[Acls], None] = lambda _: None
    ) -> None:
        """Call `on_change` with the new entries of each pattern that has others than before; none if it has
        been removed. Where more than `TOGETHER` have changed, `prepare` is called before, in turns of the
        reactor: once with none, to copy what is in force, and then with the others; the call of `on_change`
        puts all in force."""
        self._listeners.append((on_change, prepare))

    # Reading

    def load(self) -> Deferred[None]:
        """Read all lists, and create the folders that are missing. Await it before any client is served."""
        return ensureDeferred(on_any_session(self._zookeeper, self._start))

    async def _start(self, session: ZooKeeperSession) -> None:
        for folder in ACL_FOLDERS:
            await create_if_missing(session, folder)
        await self._read_all(session)

    async def _read_all(self, session: ZooKeeperSession) -> None:
        async with self._reads:
            await self._learn_all(session)

    async def _learn_all(self, session: ZooKeeperSession) -> None:
        changed: dict[ResourcePattern, AclEntries] = {}
        unseen = dict.fromkeys(self._acls)
        for pattern in ACL_PATTERNS:
            for resource in ACL_RESOURCES:
                names = await _names(session, resource, pattern)
                for first in range(0, len(names), TOGETHER):
                    some = names[first : first + TOGETHER]
                    there = [ResourcePattern(resource, name, pattern) for name in some]
                    for each in there:
                        unseen.pop(each, None)
                    changed.update(await self._changed_among(session, there))
        changed.update(dict.fromkeys(unseen, frozenset()))
        await self._learn(changed)

    async def _read(self, session: ZooKeeperSession, named: Sequence[ResourcePattern]) -> None:
        async with self._reads:
            changed: dict[ResourcePattern, AclEntries] = {}
            for first in range(0, len(named), TOGETHER):
                changed.update(await self._changed_among(session, named[first : first + TOGETHER]))
            await self._learn(changed)

    async def _changed_among(self, session: ZooKeeperSession, patterns: Sequence[ResourcePattern]) -> Acls:
        """The entries of those of the patterns that have others than those in force."""
        none: AclEntries = frozenset()
        found = await _entries(session, patterns)
        return {
            pattern: entries for pattern, entries in found.items() if self._acls.get(pattern, none) != entries
        }

    async def _learn(self, changed: Acls) -> None:
        """Put changed entries in force, all in the same turn of the reactor: what allows is never in force
        without what denies. What has to be done for each of many is done in turns before."""
        if not changed:
            return
        patterns = list(changed)
        last = (len(patterns) - 1) // TOGETHER * TOGETHER
        present = self._acls
        if last:
            # To decode the last of them was a turn's work, and to copy what is in force is another's.
            await pause(self._clock)
            present = dict(present)
            for _, prepare in self._listeners:
                prepare({})
            await pause(self._clock)
        for first in range(0, last + 1, TOGETHER):
            some = {pattern: changed[pattern] for pattern in patterns[first : first + TOGETHER]}
            for pattern, entries in some.items():
                if entries:
                    present[pattern] = entries
                else:
                    present.pop(pattern, None)
            if first < last:
                for _, prepare in self._listeners:
                    prepare(some)
                await pause(self._clock)
        self._acls = present
        for on_change, _ in self._listeners:
            on_change(some)

    # Writing

    def update(self, pattern: ResourcePattern, change: Callable[[AclEntries], AclEntries]) -> Deferred[None]:
        """Replace a pattern's entries by `change(entries)` and notify every broker. Afterwards they are in
        force on this one.

        If another client changes them concurrently, `change` is called again with the newer entries. Fails
        with what `change` raises, `BadZnode`, `RequestTooLarge`, or the last refusal after many attempts.
        """

        async def write(session: ZooKeeperSession) -> None:
            await self._update(session, pattern, change)
            await self._read(session, [pattern])

        return ensureDeferred(on_any_session(self._zookeeper, write))

    async def _update(
        self,
        session: ZooKeeperSession,
        pattern: ResourcePattern,
        change: Callable[[AclEntries], AclEntries],
    ) -> None:
        announced = Create(acl_change_prefix(pattern), encode_acl_change(pattern), sequence=True)
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            written = await _write(session, pattern, change)
            if written is None:
                return
            try:
                await session.multi([written, announced])
                return
            except ZooKeeperConnectionLost:
                if attempt == _ATTEMPTS_MAX:
                    raise
            except MultiFailed as error:
                if attempt == _ATTEMPTS_MAX or not isinstance(error.cause, BadVersion | NodeExists | NoNode):
                    raise
                if isinstance(error.cause, NoNode):
                    for parent in (acl_path(pattern), announced.path):
                        await create_if_missing(session, parent.rpartition("/")[0])


async def _write(
    session: ZooKeeperSession, pattern: ResourcePattern, change: Callable[[AclEntries], AclEntries]
) -> WriteOperation | None:
    """What changes the pattern's znode; None if it is as it shall be."""
    path = acl_path(pattern)
    try:
        data, stat = await session.get(path)
    except NoNode:
        entries = change(frozenset())
        return Create(path, encode_acls(entries)) if entries else None
    present = decode_acls(path, data)
    entries = change(present)
    if entries and entries == present:
        return None
    return SetData(path, encode_acls(entries), stat.version) if entries else Delete(path, stat.version)


async def _names(session: ZooKeeperSession, resource: AclResource, pattern: AclPattern) -> Sequence[str]:
    """The names of the patterns that have znodes."""
    try:
        return await session.children(acl_folder(resource, pattern))
    except NoNode:
        return ()


async def _entries(
    session: ZooKeeperSession, patterns: Sequence[ResourcePattern]
) -> dict[ResourcePattern, AclEntries]:
    """The entries of each pattern in ZooKeeper."""
    paths = [acl_path(pattern) for pattern in patterns]
    read = await read_all(session, paths, _READS_AT_ONCE)
    found: dict[ResourcePattern, AclEntries] = {}
    for pattern, path, there in zip(patterns, paths, read, strict=True):
        try:
            found[pattern] = decode_acls(path, there[0]) if there is not None else frozenset()
        except BadZnode as error:
            found[pattern] = UNREADABLE
            _log.error(
                "access control lists that cannot be read: everything on %s is denied to all but super users "
                "until the znode is repaired or removed: %s",
                pattern,
                error,
            )
    return found
