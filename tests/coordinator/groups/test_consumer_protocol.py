"""Subscriptions and assignments, checked against the encoding of an independent client."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.consumer_protocol import (
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from holdfast_log.protocol.consumer_protocol import decode_assignment
from holdfast_log.protocol.topic_partition import TopicPartition


def test_a_clients_subscription_is_decoded() -> None:
    subscription = ConsumerProtocolMemberMetadata(0, ["orders", "returns"], b"user data").encode()
    assert subscribed_topics(subscription) == frozenset({"orders", "returns"})


def test_a_clients_assignment_is_decoded() -> None:
    assignment = ConsumerProtocolMemberAssignment(0, [("orders", [3, 1]), ("returns", [])], b"").encode()
    assert decode_assignment(assignment) == [("orders", 3), ("orders", 1)]


def test_a_client_decodes_our_encoding() -> None:
    subscription = ConsumerProtocolMemberMetadata.decode(encode_subscription(["orders"]))
    assert subscription.subscription == ["orders"]
    partitions = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assignment = ConsumerProtocolMemberAssignment.decode(encode_assignment(partitions))
    assert assignment.assignment == [("a", [0]), ("b", [1, 2])]


@pytest.mark.parametrize("data", [b"", b"\x00", b"custom format", b"\x00\x00\x00\x00\x00\x01\x00\x09abc"])
def test_other_formats_decode_to_none(data: bytes) -> None:
    assert subscribed_topics(data) is None


@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    subscribed_topics(data)
