"""Reads and writes ownership records in ZooKeeper.

A broker reads the records when it begins to decide about the resources, and writes them before it answers a
claim. With the records it learns the number of ZooKeeper's latest transaction, above which the incarnations
of new resources begin. A write is one multi. It replaces exactly the versions that the writer has seen, and
checks the state of each partition by whose leadership the writer decides: a leader that has been replaced
without knowing it writes nothing.
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
from coordinator.znodes.topics import (
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
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
"""Maximum bytes in one write. ZooKeeper closes a connection that sends a request of 1 MB."""
_log = logging.getLogger(__name__)


class NotLeading(Exception):
    """Another broker leads the partition by whose leadership this one decided."""


class TooLarge(Exception):
    """The records together are larger than one request to ZooKeeper may be."""


class Superseded(Exception):
    """The record of a resource is not the one that the writer has seen. Read it again."""


@dataclass(frozen=True, slots=True)
class DecidingPartition:
    """The partition by whose leadership, in `leader_epoch`, a broker decides about resources.

    `state_version` is the latest version of the partition's state that the broker knows.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    state_version: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record read from ZooKeeper. `record` is None if it cannot be decoded: the resource cannot be claimed
    then."""

    key: ResourceKey
    record: OwnershipRecord | None
    version: int


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """The records that a read found, and the number of a ZooKeeper transaction just before it (zxid).

    An incarnation is never higher than the transaction that wrote it, because each grant is a write. So a
    resource without a record whose incarnations begin above `transaction` repeats none of a record that was
    deleted, not even those of another topic with its name.
    """

    records: Sequence[FoundRecord]
    transaction: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """A record to write over `version` of its znode (-1: there is no znode), by the leadership of
    `decided_by`."""

    key: ResourceKey
    record: OwnershipRecord
    version: int
    decided_by: DecidingPartition


class OwnershipStore:
    """Reads and writes records, on the session in use at that time."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    # -- reading ---------------------------------------------------------------------------------------

    async def read_partitions(self, keys: Sequence[PartitionKey]) -> FoundRecords:
        """The records of those partitions that have one. Raises `SessionExpired` once ZooKeeper is closed."""

        async def read(session: ZooKeeperSession) -> FoundRecords:
            transaction = await _catch_up(session)
            owned = {topic_id_of_znode(child) for child in await session.children(OWNED_TOPICS)}
            found = await _read(session, [key for key in keys if key.topic_id in owned])
            return FoundRecords(found, transaction)

        return await on_any_session(self._zookeeper, read)

    async def read_names(self, group: str) -> FoundRecords:
        """The records of all names of a group. Raises `SessionExpired` once ZooKeeper is closed."""

        async def read(session: ZooKeeperSession) -> FoundRecords:
            transaction = await _catch_up(session)
            try:
                children = await session.children(owned_names_path(group))
            except NoNode:
                return FoundRecords((), transaction)
            found = await _read(session, [NameKey(group, name_of_znode(child)) for child in children])
            return FoundRecords(found, transaction)

        return await on_any_session(self._zookeeper, read)

    async def named_groups(self) -> list[str]:
        """The groups with records of names. Raises `SessionExpired` once ZooKeeper is closed."""

        async def read(session: ZooKeeperSession) -> list[str]:
            await _catch_up(session)
            try:
                return sorted(name_of_znode(child) for child in await session.children(OWNED_NAMES))
            except NoNode:
                return []

        return await on_any_session(self._zookeeper, read)

    async def read(self, key: ResourceKey) -> FoundRecords:
        """The record of one resource, if it has one. Raises `SessionExpired` once ZooKeeper is closed."""

        async def read(session: ZooKeeperSession) -> FoundRecords:
            transaction = await _catch_up(session)
            return FoundRecords(await _read(session, [key]), transaction)

        return await on_any_session(self._zookeeper, read)

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has now; 0 if it was deleted. Raises `SessionExpired` once ZooKeeper is
        closed, and `BadZnode` if the topic's znode cannot be decoded."""

        async def read(session: ZooKeeperSession) -> int:
            await _catch_up(session)
            try:
                data, _ = await session.get(topic_path(topic))
            except NoNode:
                return 0
            return len(decode_topic(topic, data).partitions)

        return await on_any_session(self._zookeeper, read)

    # -- writing ---------------------------------------------------------------------------------------

    async def write(self, replacements: Sequence[Replacement]) -> list[int]:
        """Write all records, or none. Returns the versions of their znodes.

        If the answer of ZooKeeper is lost, the outcome is read, on the next session if necessary. Raises
        `NotLeading`, `Superseded`, `TooLarge`, and `SessionExpired` once ZooKeeper is closed.
        """
        data = [encode_ownership(each.record) for each in replacements]
        taken = sum(map(len, data)) + sum(len(each.key.path) for each in replacements)
        if taken > WRITE_BYTES_MAX:
            raise TooLarge(f"{len(replacements)} resources take {taken} bytes, at most {WRITE_BYTES_MAX} fit")
        deciders = {
            (each.decided_by.topic, each.decided_by.partition): each.decided_by for each in replacements
        }
        while True:
            session = self._zookeeper.session
            guards = [
                Check(partition_state_path(*where), decider.state_version)
                for where, decider in deciders.items()
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
            deciders = await on_any_session(
                self._zookeeper, functools.partial(_current_deciders, deciders=list(deciders.values()))
            )


async def _catch_up(session: ZooKeeperSession) -> int:
    """Make later reads on this session return everything written before now. Returns the number of the
    transaction that did it.

    A ZooKeeper server may lag behind the others when it answers reads; a write passes through all of them.
    """
    while True:
        try:
            return (await session.set(OWNED_TOPICS, b"", ANY_VERSION)).mzxid
        except ZooKeeperConnectionLost:
            continue
        except NoNode:
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
            _log.error("The ownership record of %s cannot be decoded; no client can claim it: %s", key, error)
        found.append(FoundRecord(key, record, there[1].version))
    return found


async def _written(session: ZooKeeperSession, replacements: Sequence[Replacement]) -> list[int] | None:
    """The versions, if exactly these records are written; None if none of them is.

    Raises `Superseded` if another record is written.
    """
    found = await read_all(session, [each.key.path for each in replacements])
    for each, there in zip(replacements, found, strict=True):
        version = NO_ZNODE if there is None else there[1].version
        if version == each.version:
            return None
        if there is None or version != each.version + 1 or there[0] != encode_ownership(each.record):
            raise Superseded(each.key.path)
    return [each.version + 1 for each in replacements]


async def _current_deciders(
    session: ZooKeeperSession, deciders: Iterable[DecidingPartition]
) -> dict[tuple[str, int], DecidingPartition]:
    """The deciding partitions, with the present versions of their states. Raises `NotLeading`."""
    current = {}
    for decider in deciders:
        where = (decider.topic, decider.partition)
        try:
            data, stat = await session.get(partition_state_path(*where))
        except NoNode:
            raise NotLeading(f"{decider.topic}-{decider.partition} was deleted") from None
        state = decode_partition_state(*where, data)
        if (state.leader, state.leader_epoch) != (decider.leader, decider.leader_epoch):
            raise NotLeading(f"{decider.topic}-{decider.partition} has another leader")
        current[where] = replace(decider, state_version=stat.version)
    return current


async def _make_parents(session: ZooKeeperSession, replacement: Replacement) -> None:
    """Create the parent of a resource's znode. Raises `Superseded` if the znode itself was expected to
    exist."""
    if replacement.version != NO_ZNODE:
        raise Superseded(replacement.key.path)
    await create_if_missing(session, replacement.key.path.rpartition("/")[0])
