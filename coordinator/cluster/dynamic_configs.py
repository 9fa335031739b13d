"""Dynamic configs: the entities in /config/…, changed at run time and followed by every broker.

Every broker keeps a copy of all of them. A change is one multi: it writes the entity's znode and creates a
sequential znode in /config/changes, which makes every broker read that entity again. Notifications that are
15 minutes older than the newest one are removed. Values are text; `broker.settings` parses and validates
them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.znodes.configs import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    CONFIG_TYPES,
    NESTED,
    config_parents,
    config_path,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    WatchEvent,
    WriteOperation,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import outcomes, read_all, results
from holdfast_log.coordinator.zookeeper.sessions import on_any_session

CHANGE_EXPIRATION_MS = 15 * 60 * 1000
_PURGED_TOGETHER = 50
DEFAULT_ENTITY = "<default>"
"""The name of the default entity, whose config applies to all entities of a kind."""

_NOTIFICATION = re.compile(re.escape(CONFIG_CHANGE_PREFIX.rpartition("/")[2]) + r"\d{10}")
_RETRY_S = 1.0
_log = logging.getLogger(__name__)

Configs: TypeAlias = Mapping[str, str]
OnChange: TypeAlias = Callable[[str, str, Configs], None]
"""`on_change(kind, name, configs)`: the entity's new configs, empty if it has none."""
Entity: TypeAlias = tuple[str, str]


class DynamicConfigs:
    """A broker's copy of /config, and changes to /config.

    A `MembershipListener`: it follows changes on every session on which the broker is registered.
    """

    def __init__(
        self, zookeeper: ZooKeeper, clock: Clock, *, expiration_ms: int = CHANGE_EXPIRATION_MS
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._expiration_ms = expiration_ms
        self._configs: dict[Entity, dict[str, str]] = {}
        self._listeners: list[OnChange] = []
        self._session: ZooKeeperSession | None = None
        self._last_seen = ""
        self._oldest_ms = 0  # Time of the oldest notification, when notifications were last removed.
        self._reading = False
        self._read_again = False

    def add_listener(self, on_change: OnChange) -> None:
        self._listeners.append(on_change)

    def get(self, kind: str, name: str) -> Configs:
        """An entity's configs as last read, without those of `DEFAULT_ENTITY`."""
        return self._configs.get((kind, name), {})

    def entities(self, kind: str) -> list[str]:
        """The names of the entities of a kind that have configs."""
        return sorted(name for entity_kind, name in self._configs if entity_kind == kind)

    # Reading

    def load(self) -> Deferred[None]:
        """Read all configs. Await it before starting anything that depends on them."""
        return ensureDeferred(on_any_session(self._zookeeper, self._load))

    def reload(self, kinds: Sequence[str]) -> Deferred[None]:
        """Read all configs of some kinds now, without waiting for notifications."""
        return ensureDeferred(on_any_session(self._zookeeper, lambda session: self._load(session, kinds)))

    async def _load(self, session: ZooKeeperSession, kinds: Sequence[str] = CONFIG_TYPES) -> None:
        for kind in kinds:
            try:
                names = await session.children(f"{CONFIG}/{kind}")
            except NoNode:
                continue
            names += await self._nested(session, kind, names)
            there = set(names)
            gone = [name for name in self.entities(kind) if name not in there]
            for name in gone:
                self._learn((kind, name), {})
            await self._read(session, [(kind, name) for name in names])

    async def _nested(self, session: ZooKeeperSession, kind: str, names: Sequence[str]) -> list[str]:
        """The entities below other entities: the client ids of users."""
        below = NESTED.get(kind)
        if below is None:
            return []
        found = await outcomes([session.children(f"{config_path(kind, name)}/{below}") for name in names])
        nested = []
        for name, children in zip(names, found, strict=True):
            if isinstance(children, NoNode):
                continue
            if isinstance(children, Exception):
                raise children
            nested += [f"{name}/{below}/{child}" for child in children]
        return nested

    def refresh(self, kind: str, name: str) -> Deferred[Configs]:
        """Read one entity's configs now, without waiting for a notification."""

        async def read(session: ZooKeeperSession) -> Configs:
            await self._read(session, [(kind, name)])
            return self.get(kind, name)

        return ensureDeferred(on_any_session(self._zookeeper, read))

    async def _read(self, session: ZooKeeperSession, entities: list[Entity]) -> None:
        found = await read_all(session, [config_path(kind, name) for kind, name in entities])
        for entity, there in zip(entities, found, strict=True):
            if there is None:
                self._learn(entity, {})
                continue
            try:
                self._learn(entity, decode_config(config_path(*entity), there[0]))
            except BadZnode as error:
                _log.error("ignoring a malformed config, the previous values stay: %s", error)

    def _learn(self, entity: Entity, configs: dict[str, str]) -> None:
        if self._configs.get(entity, {}) == configs:
            return
        if configs:
            self._configs[entity] = configs
        else:
            self._configs.pop(entity, None)
        for on_change in self._listeners:
            on_change(*entity, configs)

    # Notifications (MembershipListener)

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        # Reading everything finds the changes that were made while there was no session.
        self._session = session
        self._last_seen = ""
        ensureDeferred(self._load(session)).addErrback(self._failed)
        self._changed()

    def suspended(self) -> None:
        pass

    def resumed(self) -> None:
        self._changed()

    def expired(self) -> None:
        self._session = None

    def registration_failed(self, error: Exception) -> None:
        pass

    def _changed(self, event: WatchEvent | None = None) -> None:
        if self._session is None:
            return
        if self._reading:
            self._read_again = True
            return
        self._reading = True
        ensureDeferred(self._follow(self._session)).addErrback(self._failed)

    async def _follow(self, session: ZooKeeperSession) -> None:
        """Read the entities named by notifications since the last one handled."""
        while True:
            self._read_again = False
            found = await session.children(CONFIG_CHANGES, self._changed)
            # A znode of another name would sort after the notifications, and hide all later ones.
            names = [name for name in found if _NOTIFICATION.fullmatch(name)]
            news = [name for name in names if name > self._last_seen]
            entities, newest_ms = await self._entities_in(session, news)
            if entities is None:
                await self._load(session)
            else:
                await self._read(session, entities)
            if news:
                self._last_seen = news[-1]
            if newest_ms is not None:
                await self._purge(session, names, newest_ms)
            if not self._read_again:
                break
        self._reading = False

    async def _entities_in(
        self, session: ZooKeeperSession, changes: list[str]
    ) -> tuple[list[Entity] | None, int | None]:
        """The entities that notifications name, and when the newest was written, by ZooKeeper's clock. None
        for the entities if a notification was removed before this broker has read it, by a broker whose clock
        is wrong; None for the time without any."""
        paths = [f"{CONFIG_CHANGES}/{name}" for name in changes]
        found = await read_all(session, paths)
        newest_ms = max((there[1].modified_ms for there in found if there is not None), default=None)
        entities: dict[Entity, None] = {}
        for path, there in zip(paths, found, strict=True):
            if there is None:
                return None, newest_ms
            try:
                entities[decode_config_change(path, there[0])] = None
            except BadZnode as error:
                _log.error("ignoring a malformed notification of a config change: %s", error)
        return list(entities), newest_ms

    async def _purge(self, session: ZooKeeperSession, names: list[str], newest_ms: int) -> None:
        """Remove notifications that are older than the newest one by more than the expiration time, the
        oldest first. The times are ZooKeeper's: a broker whose clock is ahead would remove notifications that
        others have not read.

        Reads up to the first one that is younger, and nothing before that one expires: to look at all of
        them after each change would cost the square of the number of changes.
        """
        if self._oldest_ms <= newest_ms <= self._oldest_ms + self._expiration_ms:
            return
        for first in range(0, len(names), _PURGED_TOGETHER):
            paths = [f"{CONFIG_CHANGES}/{name}" for name in names[first : first + _PURGED_TOGETHER]]
            stats = await results([session.exists(path) for path in paths])
            there = [(path, stat.modified_ms) for path, stat in zip(paths, stats, strict=True) if stat]
            old = [path for path, modified_ms in there if modified_ms < newest_ms - self._expiration_ms]
            await outcomes([session.delete(path) for path in old])
            if len(old) < len(there):
                self._oldest_ms = min(modified_ms for path, modified_ms in there if path not in old)
                return

    def _failed(self, failure: Failure) -> None:
        self._reading = False
        if isinstance(failure.value, SessionExpired):
            return  # Everything is read again on the next session.
        _log.error("reading dynamic configs failed; retrying: %s", failure.getErrorMessage())
        self._clock.callLater(_RETRY_S, self._changed)

    # Writing

    def update(
        self, kind: str, name: str, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> Deferred[None]:
        """Replace an entity's configs by `change(configs)` and notify every broker.

        If another client changes them concurrently, `change` is called again with the newer configs. If
        `change` raises, nothing is changed.
        """

        async def write(session: ZooKeeperSession) -> None:
            await self._update(session, kind, name, change)

        return ensureDeferred(on_any_session(self._zookeeper, write))

    async def _update(
        self,
        session: ZooKeeperSession,
        kind: str,
        name: str,
        change: Callable[[dict[str, str]], dict[str, str]],
    ) -> None:
        path = config_path(kind, name)
        while True:
            try:
                data, stat = await session.get(path)
                configs = change(decode_config(path, data))
                written: WriteOperation = SetData(path, encode_config(configs), stat.version)
            except NoNode:
                configs = change({})
                written = Create(path, encode_config(configs))
                for parent in config_parents(kind, name):
                    await self._ensure(session, parent)
            notification = Create(CONFIG_CHANGE_PREFIX, encode_config_change(kind, name), sequence=True)
            try:
                await session.multi([written, notification])
            except ZooKeeperConnectionLost:
                continue  # Retry on the current data: applying a change twice is harmless.
            except MultiFailed as error:
                if isinstance(error.cause, BadVersion | NodeExists | NoNode) and error.index == 0:
                    continue
                raise
            self._learn((kind, name), configs)
            return

    async def _ensure(self, session: ZooKeeperSession, path: str) -> None:
        """Create a znode without configs if it is missing."""
        # If it is missing nevertheless, or its parent is, the write fails, and is tried again.
        with suppress(NodeExists, NoNode, ZooKeeperConnectionLost):
            await session.create(path)
