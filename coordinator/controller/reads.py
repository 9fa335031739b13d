"""The controller's pipelined reads from ZooKeeper: brokers, topics, partition states, deletions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from holdfast_log.coordinator.controller.state import LiveBroker, PartitionRecord, Topic
from holdfast_log.coordinator.controller.topic_rules import NAME_LENGTH_MAX, is_legal_name
from holdfast_log.coordinator.znodes.admin import DELETE_TOPICS
from holdfast_log.coordinator.znodes.brokers import BROKER_IDS, broker_path, decode_broker, decode_broker_id
from holdfast_log.coordinator.znodes.controller import (
    CONTROLLER_BROKERS,
    FeatureRecord,
    decode_controller_brokers,
    decode_recorded_features,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.leader_epochs import FIRST_LEADER_EPOCH, decode_first_leader_epoch
from holdfast_log.coordinator.znodes.topics import (
    TOPICS,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from holdfast_log.coordinator.zookeeper.interface import NoNode, ZnodeWatch, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.pipelined import outcomes, read_all
from holdfast_log.protocol.topic_partition import TopicPartition

_TOPICS_AT_ONCE = 50
"""Topic znodes read in one request: one of ten thousand partitions has 250 KB."""


class UnreadableTopic(Exception):
    """Znodes of a topic cannot be decoded; `errors` has the fault of each by its path."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = errors
        super().__init__("; ".join(errors.values()))


async def read_brokers(
    session: ZooKeeperSession,
    watch: ZnodeWatch,
    watch_for: Callable[[int], ZnodeWatch | None],
    known: Mapping[int, LiveBroker],
) -> tuple[dict[int, LiveBroker], dict[str, str]]:
    """The registered brokers, and the faults of the registrations that cannot be read, by path.

    `watch` sees brokers come and go; `watch_for(id)`, unless None, sees one change. A broker in `known` whose
    registration has become unreadable since stays as it was.
    """
    errors: dict[str, str] = {}
    numbers: list[int] = []
    for name in await session.children(BROKER_IDS, watch):
        try:
            numbers.append(decode_broker_id(name))
        except BadZnode as error:
            errors[f"{BROKER_IDS}/{name}"] = str(error)
    numbers.sort()
    found = await outcomes([session.get(broker_path(number), watch_for(number)) for number in numbers])
    brokers = {}
    for number, outcome in zip(numbers, found, strict=True):
        if isinstance(outcome, NoNode):
            continue  # It has gone since; the watch on the children fires too.
        if isinstance(outcome, Exception):
            raise outcome
        data, stat = outcome
        try:
            brokers[number] = LiveBroker(decode_broker(number, data), stat.czxid)
        except BadZnode as error:
            errors[broker_path(number)] = str(error)
            if number in known and known[number].epoch == stat.czxid:
                brokers[number] = known[number]
    return brokers, errors


async def read_topics(
    session: ZooKeeperSession, new_topic_id: Callable[[], uuid.UUID]
) -> tuple[dict[str, Topic], dict[str, dict[str, str]]]:
    """All topics with the states of their partitions; and the topics that cannot be read, each with the
    faults of its znodes by path.

    A topic without an id, written before topics had ids, gets one; it is not written here.
    """
    names = await session.children(TOPICS)
    found = await read_all(session, [topic_path(name) for name in names], _TOPICS_AT_ONCE)
    topics: dict[str, Topic] = {}
    unreadable: dict[str, dict[str, str]] = {}
    for name, there in zip(names, found, strict=True):
        if there is None:
            continue  # Removed by hand since; no other controller is active.
        try:
            topics[name] = _decode_topic(name, there[0], new_topic_id)
        except BadZnode as error:
            unreadable[name] = {topic_path(name): str(error)}
    for (name, number), fault in (await _read_states(session, topics)).items():
        unreadable.setdefault(name, {})[partition_state_path(name, number)] = fault
    for name in unreadable:
        topics.pop(name, None)
    return topics, unreadable


async def read_topic(
    session: ZooKeeperSession, name: str, new_topic_id: Callable[[], uuid.UUID], watch: ZnodeWatch
) -> Topic | None:
    """One topic; None if it does not exist. Raises `UnreadableTopic`; `watch` then sees its znodes change."""
    try:
        data, _ = await session.get(topic_path(name), watch)
    except NoNode:
        return None
    try:
        topic = _decode_topic(name, data, new_topic_id)
    except BadZnode as error:
        raise UnreadableTopic({topic_path(name): str(error)}) from None
    if await _read_states(session, {name: topic}):
        paths = [partition_state_path(name, number) for number in topic.partitions]
        await outcomes([session.get(path, watch) for path in paths])
        errors = await _read_states(session, {name: topic})  # Again: they may have been repaired meanwhile.
        if errors:
            raise UnreadableTopic({partition_state_path(*at): error for at, error in errors.items()})
    return topic


def _decode_topic(name: str, data: bytes, new_topic_id: Callable[[], uuid.UUID]) -> Topic:
    if not is_legal_name(name):
        raise BadZnode(f"{name[:NAME_LENGTH_MAX]!r} is not a valid topic name")
    read = decode_topic(name, data)
    partitions = {
        number: PartitionRecord(assignment) for number, assignment in sorted(read.partitions.items())
    }
    return Topic(name, read.topic_id or new_topic_id(), partitions)


async def _read_states(session: ZooKeeperSession, topics: Mapping[str, Topic]) -> dict[TopicPartition, str]:
    """Read the partitions' states into `topics`; the faults of those that cannot be read."""
    at: Sequence[TopicPartition] = [
        TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions
    ]
    found = await read_all(session, [partition_state_path(*each) for each in at])
    errors: dict[TopicPartition, str] = {}
    for each, there in zip(at, found, strict=True):
        if there is None:
            continue  # The last controller did not get to elect a leader.
        data, stat = there
        partition = topics[each.topic].partitions[each.partition]
        try:
            partition.state = decode_partition_state(*each, data)
        except BadZnode as error:
            errors[each] = str(error)
            continue
        partition.version = stat.version
        partition.read_zxid = stat.mzxid
    return errors


async def read_record(session: ZooKeeperSession) -> tuple[dict[int, int] | None, FeatureRecord]:
    """What the last controller recorded: start epochs, None if there are none or they are malformed; and
    features, of which the same is true."""
    try:
        data, _ = await session.get(CONTROLLER_BROKERS)
    except NoNode:
        return None, FeatureRecord()
    try:
        epochs = decode_controller_brokers(data)
    except BadZnode:
        return None, FeatureRecord()
    try:
        return epochs, decode_recorded_features(data)
    except BadZnode:
        return epochs, FeatureRecord()


async def read_first_leader_epoch(session: ZooKeeperSession) -> int:
    """The leader epoch in which new partitions begin; 0 if no topic was deleted yet, or it is malformed."""
    try:
        data, _ = await session.get(FIRST_LEADER_EPOCH)
        return decode_first_leader_epoch(data)
    except (NoNode, BadZnode):
        return 0


async def read_deletions(session: ZooKeeperSession) -> tuple[str, ...]:
    """The topics that are marked for deletion."""
    return tuple(await session.children(DELETE_TOPICS))
