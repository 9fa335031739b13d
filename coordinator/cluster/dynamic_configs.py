"""Dynamic configs: the entities in /config/…, changed at run time and followed by every broker.

Every broker keeps a copy of all of them. A change is one multi: it writes the entity's znode and creates a
sequential znode in /config/changes, which makes every broker read that entity again. Values are text;
`broker.settings` parses and validates them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.change_notifications import (
    EXPIRATION_MS,
    ChangeFollower,
    ChangeNotifications,
)
from holdfast_log.coordinator.shared_reads import SharedReads
from holdfast_log.coordinator.znodes.configs import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
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
    SetData,
    WriteOperation,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import outcomes, read_all
from holdfast_log.coordinator.zookeeper.sessions import on_any_session

DEFAULT_ENTITY = "<default>"
"""The name of the default entity, whose config applies to all entities of a kind."""

_log = logging.getLogger(__name__)

Configs: TypeAlias = Mapping[str, str]
OnChange: TypeAlias = Callable[[str, str, Configs], None]
"""`on_change(kind, name, configs)`: the entity's new configs, empty if it has none."""
Entity: TypeAlias = tuple[str, str]


class DynamicConfigs(ChangeFollower[Entity]):
    """A broker's copy of /config, and changes to /config."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock, *, expiration_ms: int = EXPIRATION_MS) -> None:
        notifications = ChangeNotifications(CONFIG_CHANGE_PREFIX, decode_config_change, expiration_ms)
        super().__init__(clock, "dynamic configs", [notifications])
        self._zookeeper = zookeeper
        self._configs: dict[Entity, dict[str, str]] = {}
        self._listeners: list[OnChange] = []
        self._reads: dict[tuple[str, ...], SharedReads] = {}  # by kinds

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

    def reload(self, kinds: tuple[str, ...]) -> Deferred[None]:
        """Read all configs of some kinds now, without waiting for notifications. Those who ask for the same
        kinds meanwhile share the next read."""
        reads = self._reads.get(kinds)
        if reads is None:
            reads = self._reads[kinds] = SharedReads(self._clock, partial(self._read_kinds, kinds))
        return reads.ask()

    def _read_kinds(self, kinds: Sequence[str]) -> Deferred[None]:
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

    async def _read_all(self, session: ZooKeeperSession) -> None:
        await self._load(session)

    async def _read(self, session: ZooKeeperSession, named: Sequence[Entity]) -> None:
        found = await read_all(session, [config_path(kind, name) for kind, name in named])
        for entity, there in zip(named, found, strict=True):
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
