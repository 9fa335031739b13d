"""What consumers write into the classic protocol's opaque bytes, as far as the coordinator has to know it.

The coordinator passes subscriptions and assignments on unread. It looks into those of protocol type
"consumer" for two things only: which topics a group still reads (their offsets must not expire) and which
partitions a member was given (so that they can be claimed for it).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from coordinator.group_effects import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_NO_USER_DATA = _INT.pack(-1)


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a subscription, None where these bytes are not one (an assignor's own format)."""
    try:
        position = _SHORT.size
        (count,) = _INT.unpack_from(subscription, position)
        position += _INT.size
        topics: set[str] = set()
        for _ in range(count):
            topic, position = _text(subscription, position)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions of an assignment in the order given, None where these bytes are not one."""
    if not assignment:
        return ()
    try:
        position = _SHORT.size
        (topic_count,) = _INT.unpack_from(assignment, position)
        position += _INT.size
        partitions: list[TopicPartition] = []
        for _ in range(topic_count):
            topic, position = _text(assignment, position)
            (count,) = _INT.unpack_from(assignment, position)
            position += _INT.size
            if count < 0 or position + count * _INT.size > len(assignment):
                return None
            numbers = struct.unpack_from(f">{count}i", assignment, position)
            position += count * _INT.size
            partitions += [TopicPartition(topic, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(partitions)


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _SHORT.unpack_from(data, position)
    start = position + _SHORT.size
    end = start + length
    if length < 0 or end > len(data):
        raise struct.error("cut short")
    return str(data[start:end], "utf-8"), end


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A version 0 subscription, for tools that look at a member of a managed group."""
    names = list(topics)
    parts = [_SHORT.pack(0), _INT.pack(len(names)), *map(_encoded, names), _NO_USER_DATA]
    return b"".join(parts)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A version 0 assignment of `partitions`, sorted by topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [_SHORT.pack(0), _INT.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += (_encoded(topic), _INT.pack(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers))
    return b"".join((*parts, _NO_USER_DATA))


def _encoded(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data
