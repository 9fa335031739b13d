"""The controller's pipelined reads from ZooKeeper: brokers, topics, partition states, deletions."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from coordinator.controller.state import LiveBroker, PartitionRecord, Topic
from coordinator.znodes.admin import DELETE_TOPICS
from coordinator.znodes.brokers import BROKER_IDS, broker_path, decode_broker
from coordinator.znodes.controller import CONTROLLER_BROKERS, decode_controller_brokers
from coordinator.znodes.json_values import BadZnode
from coordinator.znodes.topics import (
    TOPICS,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from coordinator.zookeeper.interface import NoNode, ZnodeWatch, ZooKeeperSession
from coordinator.zookeeper.pipelined import outcomes, read_all
from protocol.topic_partition import TopicPartition

_TOPICS_AT_ONCE = 50
"""Topic znodes read in one request: one of ten thousand partitions has 250 KB."""


async def read_brokers(
    session: ZooKeeperSession, watch: ZnodeWatch, watch_for: Callable[[int], ZnodeWatch | None]
) -> dict[int, LiveBroker]:
    """The registered brokers. `watch` sees brokers come and go; `watch_for(id)`, unless None, sees one
    change."""
    numbers = sorted(int(name) for name in await session.children(BROKER_IDS, watch))
    found = await outcomes([session.get(broker_path(number), watch_for(number)) for number in numbers])
    brokers = {}
    for number, outcome in zip(numbers, found, strict=True):
        if isinstance(outcome, NoNode):
            continue  # It has gone since; the watch on the children fires too.
        if isinstance(outcome, Exception):
            raise outcome
        data, stat = outcome
        brokers[number] = LiveBroker(decode_broker(number, data), stat.czxid)
    return brokers


async def read_topics(session: ZooKeeperSession, new_topic_id: Callable[[], uuid.UUID]) -> dict[str, Topic]:
    """All topics with the states of their partitions.

    A topic without an id, written before topics had ids, gets one; it is not written here.
    """
    names = await session.children(TOPICS)
    found = await read_all(session, [topic_path(name) for name in names], _TOPICS_AT_ONCE)
    topics: dict[str, Topic] = {}
    for name, there in zip(names, found, strict=True):
        if there is None:
            continue  # Removed by hand since; no other controller is active.
        read = decode_topic(name, there[0])
        partitions = {
            number: PartitionRecord(assignment) for number, assignment in sorted(read.partitions.items())
        }
        topics[name] = Topic(name, read.topic_id or new_topic_id(), partitions)
    await _read_states(session, topics)
    return topics


async def _read_states(session: ZooKeeperSession, topics: dict[str, Topic]) -> None:
    at: list[TopicPartition] = [
        TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions
    ]
    found = await read_all(session, [partition_state_path(*each) for each in at])
    for (name, number), there in zip(at, found, strict=True):
        if there is None:
            continue  # The last controller did not get to elect a leader.
        data, stat = there
        partition = topics[name].partitions[number]
        partition.state = decode_partition_state(name, number, data)
        partition.version = stat.version
        partition.read_zxid = stat.mzxid


async def read_recorded_epochs(session: ZooKeeperSession) -> dict[int, int] | None:
    """The start epochs that the last controller recorded; None if there are none or they are malformed."""
    try:
        data, _ = await session.get(CONTROLLER_BROKERS)
        return decode_controller_brokers(data)
    except (NoNode, BadZnode):
        return None


async def read_deletions(session: ZooKeeperSession) -> tuple[str, ...]:
    """The topics that are marked for deletion."""
    return tuple(await session.children(DELETE_TOPICS))
