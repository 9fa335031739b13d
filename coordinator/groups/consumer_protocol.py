"""The consumer protocol inside the classic protocol's opaque bytes: subscriptions and assignments.

The coordinator forwards these bytes unchanged. It decodes only subscriptions of protocol type "consumer", for
the topics that a group reads, whose offsets must not expire. It encodes both for managed groups, so that
tools for the classic protocol can describe them.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.protocol import consumer_protocol
from holdfast_log.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION = 0
"""The version that every tool can read."""


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if the bytes are in another format."""
    try:
        return frozenset(consumer_protocol.decode_subscription(subscription).topics)
    except MalformedMessage:
        return None


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription, for tools that describe a member of a managed group."""
    subscription = consumer_protocol.Subscription(topics=list(topics))
    return consumer_protocol.encode_subscription(subscription, _FIRST_VERSION)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment of `partitions`, sorted."""
    return consumer_protocol.encode_assignment(sorted(partitions), _FIRST_VERSION)
