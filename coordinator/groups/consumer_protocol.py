"""What consumers write into the classic protocol's opaque bytes, as far as the coordinator has to know it.

The coordinator passes subscriptions and assignments on unread. It looks into those of protocol type
"consumer" for two things only: which topics a group still reads (their offsets must not expire) and which
partitions a member was given (so that they can be claimed for it).
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol import consumer_protocol
from protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from protocol.schema import MalformedMessage
from protocol.topic_partition import TopicPartition

_FIRST_VERSION = 0
"""Every tool reads it."""


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a subscription, None where these bytes are not one (an assignor's own format)."""
    try:
        return frozenset(consumer_protocol.decode_subscription(subscription).topics)
    except MalformedMessage:
        return None


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions of an assignment in the order given, None where these bytes are not one."""
    try:
        return tuple(TopicPartition(*each) for each in consumer_protocol.decode_assignment(assignment))
    except MalformedMessage:
        return None


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A subscription, for tools that look at a member of a managed group."""
    subscription = consumer_protocol.Subscription(topics=list(topics))
    return consumer_protocol.encode_subscription(subscription, _FIRST_VERSION)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """An assignment of `partitions`, sorted by topic."""
    return consumer_protocol.encode_assignment(sorted(partitions), _FIRST_VERSION)
