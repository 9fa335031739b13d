"""What consumers of a classic group send to each other: subscriptions and assignments (KIP-429, -792, -881).

The coordinator forwards these bytes unread. They begin with a version of their own. A newer version than the
newest known here is read as the newest known, since new versions only add fields at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from holdfast_log.protocol.schema import (
    Int16,
    Int32,
    MalformedMessage,
    ProtocolMessage,
    decode,
    decode_from,
    encode,
    message,
    struct,
    wire,
)
from holdfast_log.protocol.wire import Buffer

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members use these messages."""

M = TypeVar("M", bound=ProtocolMessage)


@struct
class AssignedTopic:
    """Some partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message(versions="0-3")
class Subscription(ProtocolMessage):
    """What a member wants to read.

    `user_data` belongs to its assignor. `owned_partitions` are the partitions that it keeps while it joins,
    `generation_id` the generation in which they were assigned, `rack_id` its location.
    """

    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[AssignedTopic] = wire("1+", ignorable=True)
    generation_id: Int32 = wire("2+", default=-1, ignorable=True)
    rack_id: str | None = wire("3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerAssignment(ProtocolMessage):
    """What a member is to read."""

    assigned_partitions: list[AssignedTopic]
    user_data: bytes | None = None


@message(versions="0-1")
class StickyUserData(ProtocolMessage):
    """The member's previous partitions, for Kafka's sticky assignor. Version 0 has no generation."""

    previous_assignment: list[AssignedTopic]
    generation: Int32 = wire("1+", default=-1, ignorable=True)


@message(versions="0")
class _Version(ProtocolMessage):
    version: Int16


def encode_subscription(subscription: Subscription, version: int = 3) -> bytes:
    """The bytes of JoinGroup's metadata."""
    return _encoded(subscription, version)


def decode_subscription(data: Buffer) -> Subscription:
    """The subscription in JoinGroup's metadata. Raises MalformedMessage."""
    return _decoded(Subscription, data)


def encode_assignment(partitions: Iterable[tuple[str, int]], version: int = 1) -> bytes:
    """The bytes of SyncGroup's assignment. The default is version 1, which every stock client reads."""
    return _encoded(ConsumerAssignment(assigned_partitions=grouped(partitions)), version)


def decode_assignment(data: Buffer) -> list[tuple[str, int]]:
    """The partitions, in order; none for empty `data`. Raises MalformedMessage."""
    if not len(data):
        return []
    return flat(_decoded(ConsumerAssignment, data).assigned_partitions)


def grouped(partitions: Iterable[tuple[str, int]]) -> list[AssignedTopic]:
    """Partitions grouped by topic; topics and partitions keep the order in which they first appear."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def flat(topics: Iterable[AssignedTopic]) -> list[tuple[str, int]]:
    """The reverse of `grouped`: (topic, partition) pairs."""
    return [(row.topic, number) for row in topics for number in row.partitions]


def _encoded(value: ProtocolMessage, version: int) -> bytes:
    return encode(_Version(version=version), 0) + encode(value, version)


def _decoded(cls: type[M], data: Buffer) -> M:
    head, position = decode_from(_Version, 0, data)
    if head.version < 0:
        raise MalformedMessage(f"{cls.__name__}: version {head.version} is negative")
    return decode(cls, min(head.version, cls.versions.last), memoryview(data)[position:])
