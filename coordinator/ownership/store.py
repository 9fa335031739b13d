"""What is written of owned resources: read when a broker begins to decide about them, written before anybody
is told of a grant.

A write is one multi. It replaces exactly what the writer has seen, and it checks the state of each partition
that gives the writer its right to decide: a leader that has been replaced without knowing writes nothing.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coordinator.cluster.identity import create_if_missing
from coordinator.ownership.records import (
    NameKey,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    decode_ownership,
    encode_ownership,
    name_of_znode,
    owned_names_path,
    topic_id_of_znode,
)
from coordinator.znodes.json_values import BadZnode
from coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from coordinator.znodes.topics import decode_partition_state, partition_state_path
from coordinator.zookeeper.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Stat,
    WriteOperation,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from coordinator.zookeeper.pipelined import read_all
from coordinator.zookeeper.sessions import on_any_session

NO_ZNODE = -1
WRITE_BYTES_MAX = 900_000
"""What may be written in one request. ZooKeeper closes the connection of whoever sends 1 MB."""
_log = logging.getLogger(__name__)


class NotLeading(Exception):
    """The broker does not lead the partition any more that gives it the right to write."""


class TooLarge(Exception):
    """All of it together is more than ZooKeeper takes in one request."""


class Superseded(Exception):
    """Something else is written of a resource than the writer has seen: it has to be read again."""


@dataclass(frozen=True, slots=True)
class PartitionHome:
    """The partition by whose leadership a broker decides about resources, in that leader epoch.

    `state_version` is the version of the partition's state, as far as the broker knows.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    state_version: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """What is written of a resource. `record` is None where that cannot be read: nobody may build on it."""

    key: ResourceKey
    record: OwnershipRecord | None
    version: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is to be written in the place of `version` (-1: of nothing), by the right of `home`."""

    key: ResourceKey
    record: OwnershipRecord
    version: int
    home: PartitionHome


class OwnershipStore:
    """Reads and writes on whatever session there is."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    # -- reading -----------------------------------------------------------------------------------------

    async def read_partitions(self, keys: Sequence[PartitionKey]) -> list[FoundRecord]:
        """What is written of these partitions, by now. Raises `SessionExpired` once ZooKeeper is closed."""

        async def read(session: ZooKeeperSession) -> list[FoundRecord]:
            await _catch_up(session)
            owned = {topic_id_of_znode(child) for child in await session.children(OWNED_TOPICS)}
            return await _read(session, [key for key in keys if key.topic_id in owned])

        return await on_any_session(self._zookeeper, read)

    async def read_names(self, group: str) -> list[FoundRecord]:
        """What is written of all names of a group, by now."""

        async def read(session: ZooKeeperSession) -> list[FoundRecord]:
            await _catch_up(session)
            try:
                children = await session.children(owned_names_path(group))
            except NoNode:
                return []
            return await _read(session, [NameKey(group, name_of_znode(child)) for child in children])

        return await on_any_session(self._zookeeper, read)

    async def named_groups(self) -> list[str]:
        """The groups that own names, or have owned some."""

        async def read(session: ZooKeeperSession) -> list[str]:
            await _catch_up(session)
            try:
                return sorted(name_of_znode(child) for child in await session.children(OWNED_NAMES))
            except NoNode:
                return []

        return await on_any_session(self._zookeeper, read)

    async def read(self, key: ResourceKey) -> FoundRecord | None:
        """What is written of one resource, by now; None: nothing is."""

        async def read(session: ZooKeeperSession) -> list[FoundRecord]:
            await _catch_up(session)
            return await _read(session, [key])

        return next(iter(await on_any_session(self._zookeeper, read)), None)

    # -- writing -----------------------------------------------------------------------------------------

    async def write(self, replacements: Sequence[Replacement]) -> list[int]:
        """Write all of it, or nothing; the versions it has then.

        A write whose answer is lost is looked into, on the next session if need be. Raises `NotLeading`,
        `Superseded`, `TooLarge`, and `SessionExpired` once ZooKeeper is closed.
        """
        data = [encode_ownership(each.record) for each in replacements]
        taken = sum(map(len, data)) + sum(len(each.key.path) for each in replacements)
        if taken > WRITE_BYTES_MAX:
            raise TooLarge(f"{len(replacements)} resources take {taken} bytes, of {WRITE_BYTES_MAX}")
        homes = {(each.home.topic, each.home.partition): each.home for each in replacements}
        while True:
            session = self._zookeeper.session
            guards = [
                Check(partition_state_path(*where), home.state_version) for where, home in homes.items()
            ]
            changes: list[WriteOperation] = [
                Create(each.key.path, value)
                if each.version == NO_ZNODE
                else SetData(each.key.path, value, each.version)
                for each, value in zip(replacements, data, strict=True)
            ]
            try:
                results = await session.multi([*guards, *changes])
                return [
                    result.version if isinstance(result, Stat) else 0 for result in results[len(guards) :]
                ]
            except MultiFailed as error:
                if isinstance(error.cause, NoNode) and error.index >= len(guards):
                    await _make_parents(session, replacements[error.index - len(guards)])
                    continue
                if not isinstance(error.cause, BadVersion | NodeExists | NoNode):
                    raise
            except ZooKeeperConnectionLost:
                pass
            except SessionExpired:
                if self._zookeeper.session is session:
                    raise
            written = await on_any_session(self._zookeeper, lambda session: _written(session, replacements))
            if written is not None:
                return written
            homes = await on_any_session(
                self._zookeeper, functools.partial(_current_homes, homes=list(homes.values()))
            )


async def _catch_up(session: ZooKeeperSession) -> None:
    """Let the server that this session speaks to know all that was written before now: a write goes through
    them all."""
    while True:
        try:
            await session.multi([Check(OWNED_TOPICS, ANY_VERSION)])
            return
        except ZooKeeperConnectionLost:
            continue
        except MultiFailed:
            await create_if_missing(session, OWNED_TOPICS)


async def _read(session: ZooKeeperSession, keys: Sequence[ResourceKey]) -> list[FoundRecord]:
    found = []
    data = await read_all(session, [key.path for key in keys])
    for key, there in zip(keys, data, strict=True):
        if there is None:
            continue
        record = None
        try:
            record = decode_ownership(key.path, there[0])
        except BadZnode as error:
            _log.error("Nobody can claim %s: %s", key, error)
        found.append(FoundRecord(key, record, there[1].version))
    return found


async def _written(session: ZooKeeperSession, replacements: Sequence[Replacement]) -> list[int] | None:
    """The versions, if exactly this is written; None if none of it is. Raises `Superseded` where anything
    else is."""
    found = await read_all(session, [each.key.path for each in replacements])
    for each, there in zip(replacements, found, strict=True):
        version = NO_ZNODE if there is None else there[1].version
        if version == each.version:
            return None
        if there is None or version != each.version + 1 or there[0] != encode_ownership(each.record):
            raise Superseded(each.key.path)
    return [each.version + 1 for each in replacements]


async def _current_homes(
    session: ZooKeeperSession, homes: Iterable[PartitionHome]
) -> dict[tuple[str, int], PartitionHome]:
    """The homes, with the versions that their states have now. Raises `NotLeading`."""
    current = {}
    for home in homes:
        where = (home.topic, home.partition)
        try:
            data, stat = await session.get(partition_state_path(*where))
        except NoNode:
            raise NotLeading(f"{home.topic}-{home.partition} is gone") from None
        state = decode_partition_state(*where, data)
        if (state.leader, state.leader_epoch) != (home.leader, home.leader_epoch):
            raise NotLeading(f"{home.topic}-{home.partition} has another leader")
        current[where] = replace(home, state_version=stat.version)
    return current


async def _make_parents(session: ZooKeeperSession, replacement: Replacement) -> None:
    """Make the znode that a resource's znode stands in. Raises `Superseded` where the resource's own is
    missing that was to be replaced."""
    if replacement.version != NO_ZNODE:
        raise Superseded(replacement.key.path)
    await create_if_missing(session, replacement.key.path.rpartition("/")[0])
