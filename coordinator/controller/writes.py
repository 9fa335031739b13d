"""The controller's writes to ZooKeeper.

Every write is a multi that also checks the version of /controller_epoch, so a replaced controller changes
nothing (`ControllerMoved`). After a lost connection it is unknown whether a multi was applied: the znodes are
read, and only missing changes are written again. Every write of a partition state carries the version that it
expects, so a late write cannot undo a newer one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.controller.effects import CreateTopic, StateWrite, StateWritten
from holdfast_log.coordinator.ownership.records import owned_topic_path
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.znodes.admin import REASSIGN_PARTITIONS, delete_topic_path, encode_reassignment
from holdfast_log.coordinator.znodes.configs import (
    CONFIG_CHANGE_PREFIX,
    config_path,
    encode_config,
    encode_config_change,
)
from holdfast_log.coordinator.znodes.controller import (
    CONTROLLER_BROKERS,
    FeatureRecord,
    encode_controller_brokers,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.leader_epochs import (
    FIRST_LEADER_EPOCH,
    decode_first_leader_epoch,
    encode_first_leader_epoch,
)
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    OperationResult,
    SetData,
    Stat,
    WriteOperation,
    ZooKeeperConnectionLost,
    ZooKeeperError,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import read_all, results
from holdfast_log.protocol.topic_partition import TopicPartition

BATCH_SIZE = 200
"""Writes in a multi: enough to make the round trip negligible, far below ZooKeeper's limit of 1 MB."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ControllerMoved(Exception):
    """Another controller has been elected."""


async def write_states(term: Term, writes: Sequence[StateWrite], clock: Clock) -> list[StateWritten]:
    """Write partition states in pipelined multis, each begun in a turn of its own; the content of each znode
    afterwards, in order."""
    begun: list[Deferred[list[StateWritten]]] = []
    for batch in _batches(writes):
        if begun:
            await pause(clock)
        begun.append(Deferred.fromCoroutine(_write_batch(term, batch)))
    return [written for batch in await results(begun) for written in batch]


async def _write_batch(term: Term, writes: Sequence[StateWrite]) -> list[StateWritten]:
    settled: dict[int, StateWritten] = {}
    existing = {partitions_path(write.at[0]): None for write in writes}
    while True:
        open_writes = [(index, write) for index, write in enumerate(writes) if index not in settled]
        if not open_writes:
            return [settled[index] for index in range(len(writes))]
        operations: list[WriteOperation] = []
        ends = []
        for _, write in open_writes:
            operations += _state_operations(write, existing)
            ends.append(len(operations) - 1)
            existing |= dict.fromkeys(_parents(write))
        try:
            made = await _guarded(term, operations)
        except (MultiFailed, ZooKeeperConnectionLost) as error:
            _raise_unless(error, BadVersion, NodeExists, NoNode)
            settled |= await _settle_from_znodes(term.session, open_writes)
            existing = await _existing_parents(term.session, writes)
            continue
        for (index, write), end in zip(open_writes, ends, strict=True):
            result = made[end]
            settled[index] = StateWritten(
                True, write.state, result.version if isinstance(result, Stat) else 0
            )


def _parents(write: StateWrite) -> tuple[str, str]:
    topic, number = write.at
    return partitions_path(topic), partition_path(topic, number)


def _state_operations(write: StateWrite, existing: dict[str, None]) -> list[WriteOperation]:
    """The operations that write a state, including creation of parents that are not in `existing`."""
    path = partition_state_path(*write.at)
    data = encode_partition_state(write.state)
    if write.version is not None:
        return [SetData(path, data, write.version)]
    made: list[WriteOperation] = [Create(parent) for parent in _parents(write) if parent not in existing]
    return [*made, Create(path, data)]


async def _settle_from_znodes(
    session: ZooKeeperSession, writes: Sequence[tuple[int, StateWrite]]
) -> dict[int, StateWritten]:
    """After a failure or lost answer, read the znodes: the results of the writes that are certain now."""
    found = await read_all(session, [partition_state_path(*write.at) for _, write in writes])
    settled = {}
    for (index, write), there in zip(writes, found, strict=True):
        if there is None:
            if write.version is not None:
                settled[index] = StateWritten(False, None, -1)
        else:
            data, stat = there
            state: PartitionState = decode_partition_state(*write.at, data)
            if state == write.state and stat.version == (0 if write.version is None else write.version + 1):
                settled[index] = StateWritten(True, state, stat.version)
            elif stat.version != write.version:
                settled[index] = StateWritten(False, state, stat.version)
    return settled


async def _existing_parents(session: ZooKeeperSession, writes: Sequence[StateWrite]) -> dict[str, None]:
    paths = dict.fromkeys(path for write in writes if write.version is None for path in _parents(write))
    found = await results([session.exists(path) for path in paths])
    return {path: None for path, stat in zip(paths, found, strict=True) if stat is not None}


async def create_topic(term: Term, topic: CreateTopic) -> bool:
    """Create the znodes of a topic and its config; False if the topic exists already."""
    path, data = topic_path(topic.name), encode_topic(topic.assignment)
    path_of_config = config_path("topics", topic.name)
    config = encode_config(topic.configs)
    while True:
        operations: list[WriteOperation] = [Create(path, data), Create(partitions_path(topic.name))]
        if await term.session.exists(path_of_config) is None:
            operations.append(Create(path_of_config, config))
        else:
            operations.append(SetData(path_of_config, config))
        if topic.configs:
            operations.append(_config_change(topic.name))
        try:
            await _guarded(term, operations)
            return True
        except ZooKeeperConnectionLost:
            continue
        except MultiFailed as error:
            if error.cause.path == path_of_config:
                continue
            _raise_unless(error, NodeExists)
            found, _ = await term.session.get(path)
            return (
                found == data
            )  # Topic ids are unique: equal data was created by us before a lost connection.


async def write_assignments(term: Term, topics: Mapping[str, TopicAssignment]) -> None:
    """Replace the data of topics' znodes, each in its own multi: many partitions make large data."""
    writes = [SetData(topic_path(name), encode_topic(topic)) for name, topic in topics.items()]
    await results([Deferred.fromCoroutine(_retry(term, [write])) for write in writes])


async def write_reassignment_znode(term: Term, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    """Replace the data of /admin/reassign_partitions; remove it if there are no targets."""
    path = REASSIGN_PARTITIONS
    operation = SetData(path, encode_reassignment(targets)) if targets else Delete(path)
    try:
        await _retry(term, [operation])
    except MultiFailed as error:
        _raise_unless(
            error, NoNode
        )  # Removed by another process, or by our attempt before a lost connection.


async def remove_znode_requests(term: Term, paths: Sequence[str]) -> None:
    """Remove the znodes of requests that have been handled."""
    for path in paths:
        try:
            await _retry(term, [Delete(path)])
        except MultiFailed as error:
            _raise_unless(error, NoNode)  # Removed by our attempt before a lost connection.


async def record_brokers(term: Term, epochs: Mapping[int, int], features: FeatureRecord) -> None:
    """Replace the recorded start epochs and features of brokers."""
    path, data = CONTROLLER_BROKERS, encode_controller_brokers(epochs, features)
    while True:
        there = await term.session.exists(path)
        operation = Create(path, data) if there is None else SetData(path, data, there.version)
        try:
            await _guarded(term, [operation])
            return
        except (MultiFailed, ZooKeeperConnectionLost) as error:
            _raise_unless(error, BadVersion, NodeExists, NoNode)


async def mark_deleted(term: Term, names: Sequence[str]) -> None:
    """Mark topics for deletion; topics that are marked already stay marked."""
    for batch in _batches(names):
        while True:
            paths = [delete_topic_path(name) for name in batch]
            found = await results([term.session.exists(path) for path in paths])
            try:
                await _guarded(
                    term, [Create(path) for path, stat in zip(paths, found, strict=True) if stat is None]
                )
                break
            except (MultiFailed, ZooKeeperConnectionLost) as error:
                _raise_unless(error, NodeExists)


async def remove_topic(term: Term, name: str, clock: Clock) -> int:
    """Remove all znodes of a topic, leaves first, the deletion mark last.

    Returns the leader epoch in which new partitions begin, raised above those of the topic before any of its
    znodes is removed.
    """
    first_epoch = await _raise_first_leader_epoch(term, name, clock)
    has_more = False
    while True:
        try:
            if has_more:
                gone = await _below(term.session, topic_path(name))
            else:
                gone = await _partition_znodes(term.session, name)
            gone += await _owner_znodes(term.session, name)
            for batch in _batches(gone):
                await _guarded(term, [Delete(path) for path in batch])
            last = [
                partitions_path(name),
                topic_path(name),
                config_path("topics", name),
                delete_topic_path(name),
            ]
            found = await results([term.session.exists(path) for path in last])
            there = [path for path, stat in zip(last, found, strict=True) if stat is not None]
            if there:
                await _guarded(term, [*(Delete(path) for path in there), _config_change(name)])
            return first_epoch
        except (MultiFailed, ZooKeeperConnectionLost) as error:
            _raise_unless(error, NoNode, NotEmpty)
            has_more = isinstance(error, MultiFailed) and isinstance(error.cause, NotEmpty)


async def _raise_first_leader_epoch(term: Term, topic: str, clock: Clock) -> int:
    """Make new partitions begin above the leader epochs of a topic; returns the leader epoch in which they
    begin."""
    last_epoch = await _last_leader_epoch(term.session, topic, clock)
    while True:
        found = (await read_all(term.session, [FIRST_LEADER_EPOCH]))[0]
        first_epoch = 0
        if found is not None:
            try:
                first_epoch = decode_first_leader_epoch(found[0])
            except BadZnode as error:
                _log.warning("%s; it is written anew, from the leader epochs of topic %r", error, topic)
        if first_epoch > last_epoch:
            return first_epoch
        data = encode_first_leader_epoch(last_epoch + 1)
        operation: WriteOperation = Create(FIRST_LEADER_EPOCH, data)
        if found is not None:
            operation = SetData(FIRST_LEADER_EPOCH, data, found[1].version)
        try:
            await _guarded(term, [operation])
            return last_epoch + 1
        except (MultiFailed, ZooKeeperConnectionLost) as error:
            _raise_unless(error, BadVersion, NodeExists, NoNode)


async def _last_leader_epoch(session: ZooKeeperSession, topic: str, clock: Clock) -> int:
    """The highest leader epoch of a topic's partitions; -1 if none had a leader."""
    try:
        names = await session.children(partitions_path(topic))
    except NoNode:
        return -1
    numbers = [int(name) for name in names if name.isdecimal()]
    found = await read_all(session, [partition_state_path(topic, number) for number in numbers])
    last_epoch = -1
    for position, (number, there) in enumerate(zip(numbers, found, strict=True), 1):
        if position % BATCH_SIZE == 0:
            await pause(clock)
        if there is None:
            continue
        try:
            last_epoch = max(last_epoch, decode_partition_state(topic, number, there[0]).leader_epoch)
        except BadZnode as error:
            _log.warning("the last leader epoch of a deleted partition is lost: %s", error)
    return last_epoch


async def _below(session: ZooKeeperSession, path: str) -> list[str]:
    """All znodes below one, children before parents: also those that no broker has made."""
    try:
        names = await session.children(path)
    except NoNode:
        return []
    found = []
    for child in (f"{path}/{name}" for name in names):
        found += [*await _below(session, child), child]
    return found


async def _partition_znodes(session: ZooKeeperSession, topic: str) -> list[str]:
    """The znodes of a topic's partitions, children before parents."""
    try:
        names = await session.children(partitions_path(topic))
        numbers = [int(name) for name in names]
    except NoNode:
        return []
    except ValueError:
        return await _below(session, partitions_path(topic))  # Not all of them were made by a broker.
    states = [partition_state_path(topic, number) for number in numbers]
    # A few requests for all of them: to send thousands of requests takes a turn of 50 ms.
    found = await read_all(session, states)
    paths = []
    for number, state, there in zip(numbers, states, found, strict=True):
        if there is not None:
            paths.append(state)
        paths.append(partition_path(topic, number))
    return paths


async def _owner_znodes(session: ZooKeeperSession, topic: str) -> list[str]:
    """The znodes of owners of a topic's partitions, children before parents."""
    try:
        data, _ = await session.get(topic_path(topic))
        try:
            topic_id = decode_topic(topic, data).topic_id
        except BadZnode as error:
            _log.warning("the owners of topic %r are not removed, as its id is lost: %s", topic, error)
            return []
        if topic_id is None:
            return []
        path = owned_topic_path(topic_id)
        return [*(f"{path}/{number}" for number in await session.children(path)), path]
    except NoNode:
        return []


def _config_change(topic: str) -> Create:
    """The notification that makes every broker read a topic's config again."""
    return Create(CONFIG_CHANGE_PREFIX, encode_config_change("topics", topic), sequence=True)


async def _retry(term: Term, operations: Sequence[WriteOperation]) -> None:
    """Apply operations that may be applied twice, again after each lost connection."""
    while True:
        try:
            await _guarded(term, operations)
            return
        except ZooKeeperConnectionLost:
            continue


def _raise_unless(error: MultiFailed | ZooKeeperConnectionLost, *expected: type[ZooKeeperError]) -> None:
    """Raise a failed multi unless its cause is one of `expected`, after which the caller retries."""
    if isinstance(error, MultiFailed) and not isinstance(error.cause, expected):
        raise error


async def _guarded(term: Term, operations: Sequence[WriteOperation]) -> list[OperationResult]:
    """Apply operations in one multi, only while the term lasts.

    Raises `ControllerMoved`, `MultiFailed`, `ZooKeeperConnectionLost`.
    """
    try:
        made = await term.session.multi([term.guard(), *operations])
    except MultiFailed as error:
        if error.index == 0:
            raise ControllerMoved(f"another controller has replaced controller epoch {term.epoch}") from error
        raise
    return made[1:]


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH_SIZE):
        yield items[start : start + BATCH_SIZE]
