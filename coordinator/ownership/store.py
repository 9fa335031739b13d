"""Reads and writes ownership records in ZooKeeper.

A broker reads the records when it begins to decide about the resources, and writes them before it answers a
claim. With the records it learns the number of ZooKeeper's latest transaction, above which the incarnations
of new resources begin. A write is one multi. It replaces exactly the versions that the writer has seen, and
checks the state of each partition by whose leadership the writer decides: a leader that has been replaced
without knowing it writes nothing.

A name is forgotten by such a write too: the multi that deletes its znode also raises the mark.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.ownership.records import (
    Forgotten,
    NameKey,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    decode_mark,
    decode_ownership,
    encode_mark,
    encode_ownership,
    name_of_znode,
    owned_names_path,
    topic_id_of_znode,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from holdfast_log.coordinator.znodes.topics import (
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from holdfast_log.coordinator.zookeeper.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
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
from holdfast_log.coordinator.zookeeper.pipelined import outcomes, read_all
from holdfast_log.coordinator.zookeeper.sessions import on_any_session

NO_ZNODE = -1
READ_AT_ONCE = 200
"""Records read by one request and decoded in one turn of the reactor, a few ms. A group may have 100,000
names, and the broker must renew its lease meanwhile."""
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
    """The records that a read found, and the number above which the incarnations of a resource without a
    record begin.

    `incarnations_from` is the number of a ZooKeeper transaction just before the read (zxid). An incarnation
    is never higher than the transaction that wrote it, because each grant is a write. So a resource without a
    record repeats no incarnation of a record that was deleted, not even those of another topic with its name.
    For names it is at least the mark, which also counts where the znodes were copied to another ensemble,
    whose transactions have lower numbers.
    """

    records: Sequence[FoundRecord]
    incarnations_from: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """A record to write over `version` of its znode (-1: there is no znode), or a name to forget, by the
    leadership of `decided_by`."""

    key: ResourceKey
    record: OwnershipRecord | Forgotten
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
            incarnations_from = max(await _catch_up(session), await _mark(session))
            try:
                children = await session.children(owned_names_path(group))
            except NoNode:
                return FoundRecords((), incarnations_from)
            found = await _read(session, [NameKey(group, name_of_znode(child)) for child in children])
            return FoundRecords(found, incarnations_from)

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
            incarnations_from = await _catch_up(session)
            if isinstance(key, NameKey):
                incarnations_from = max(incarnations_from, await _mark(session))
            return FoundRecords(await _read(session, [key]), incarnations_from)

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
        """Write all records and forget all names, or none. Returns the versions of the znodes; -1 for those
        that are gone.

        If the answer of ZooKeeper is lost, the outcome is read, on the next session if necessary. Raises
        `NotLeading`, `Superseded`, `TooLarge`, `BadZnode` if the mark cannot be decoded, and `SessionExpired`
        once ZooKeeper is closed.
        """
        data = [_encoded(each.record) for each in replacements]
        taken = sum(map(len, data)) + sum(len(each.key.path) for each in replacements)
        if taken > WRITE_BYTES_MAX:
            raise TooLarge(f"{len(replacements)} resources take {taken} bytes, at most {WRITE_BYTES_MAX} fit")
        deciders = {
            (each.decided_by.topic, each.decided_by.partition): each.decided_by for each in replacements
        }
        changes = [_change(each, value) for each, value in zip(replacements, data, strict=True)]
        while True:
            session = self._zookeeper.session
            guards: list[WriteOperation] = [
                Check(partition_state_path(*where), decider.state_version)
                for where, decider in deciders.items()
            ]
            try:
                guards += await _raise_of_mark(session, replacements)
                results = await session.multi([*guards, *changes])
                await _remove_empty_groups(session, replacements)
                return [
                    result.version if isinstance(result, Stat) else _version_after(each)
                    for each, result in zip(replacements, results[len(guards) :], strict=True)
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
                await _remove_empty_groups(self._zookeeper.session, replacements)
                return written
            deciders = await on_any_session(
                self._zookeeper, functools.partial(_current_deciders, deciders=list(deciders.values()))
            )


def _encoded(record: OwnershipRecord | Forgotten) -> bytes:
    return b"" if isinstance(record, Forgotten) else encode_ownership(record)


def _change(replacement: Replacement, data: bytes) -> WriteOperation:
    if isinstance(replacement.record, Forgotten):
        return Delete(replacement.key.path, replacement.version)
    if replacement.version == NO_ZNODE:
        return Create(replacement.key.path, data)
    return SetData(replacement.key.path, data, replacement.version)


def _version_after(replacement: Replacement) -> int:
    return NO_ZNODE if isinstance(replacement.record, Forgotten) else replacement.version + 1


async def _mark(session: ZooKeeperSession) -> int:
    """The mark, or 0 if it cannot be decoded: the number of a transaction is above it, except in a copy of
    the znodes."""
    try:
        return decode_mark((await session.get(OWNED_NAMES))[0])
    except NoNode:
        return 0
    except BadZnode as error:
        _log.error("Incarnations of forgotten names begin above ZooKeeper's transactions alone: %s", error)
        return 0


async def _raise_of_mark(
    session: ZooKeeperSession, replacements: Sequence[Replacement]
) -> Sequence[WriteOperation]:
    """The operation that raises the mark to the incarnations of the names to forget, if it is lower."""
    needed = max(
        (each.record.incarnation for each in replacements if isinstance(each.record, Forgotten)), default=0
    )
    if not needed:
        return ()
    data, stat = await session.get(OWNED_NAMES)
    return () if decode_mark(data) >= needed else [SetData(OWNED_NAMES, encode_mark(needed), stat.version)]


async def _remove_empty_groups(session: ZooKeeperSession, replacements: Sequence[Replacement]) -> None:
    """Remove the parents of forgotten names that have no names left. A failure does no harm: an empty parent
    only takes room, and the claim of a name creates a missing one."""
    groups = {each.key.path.rpartition("/")[0] for each in replacements if isinstance(each.record, Forgotten)}
    await outcomes([session.delete(path) for path in sorted(groups)])


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
    for start in range(0, len(keys), READ_AT_ONCE):
        some = keys[start : start + READ_AT_ONCE]
        data = await read_all(session, [key.path for key in some])
        found += [_decoded(key, *there) for key, there in zip(some, data, strict=True) if there is not None]
    return found


def _decoded(key: ResourceKey, data: bytes, stat: Stat) -> FoundRecord:
    record = None
    try:
        record = decode_ownership(key.path, data)
    except BadZnode as error:
        _log.error("The ownership record of %s cannot be decoded; no client can claim it: %s", key, error)
    return FoundRecord(key, record, stat.version)


async def _written(session: ZooKeeperSession, replacements: Sequence[Replacement]) -> list[int] | None:
    """The versions, if exactly these records are written; None if all are as they were before.

    Raises `Superseded` if any record has been changed by another write: this one cannot succeed any more.
    """
    found = await read_all(session, [each.key.path for each in replacements])
    pairs = list(zip(replacements, found, strict=True))
    if all(each.version == _version_of(there) for each, there in pairs):
        return None
    for each, there in pairs:
        is_written = there is None or there[0] == _encoded(each.record)
        if not is_written or _version_of(there) != _version_after(each):
            raise Superseded(each.key.path)
    return [_version_after(each) for each in replacements]


def _version_of(there: tuple[bytes, Stat] | None) -> int:
    return NO_ZNODE if there is None else there[1].version


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
