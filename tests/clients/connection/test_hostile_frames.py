"""Frames of a hostile broker: lengths announced and not sent, and answers larger than the question."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.conversation import Conversation, FrameReader
from holdfast_log.clients.connection.response_limits import largest_answer
from holdfast_log.clients.errors import ConnectionFailedError
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

MIB = 1024 * 1024


def fetch(partition_max_bytes: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=partition_max_bytes)
    topic = FetchTopic(topic="flights", partitions=[asked])
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 * MIB, topics=[topic], forgotten_topics_data=[]
    )


def test_an_announced_length_costs_no_memory_until_its_bytes_come() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.buffer()[: SIZE.size] = SIZE.pack(256 * MIB)
        assert reader.advance(SIZE.size, lambda index, size: None) == []
        for _ in range(40):
            assert reader.advance(len(reader.buffer()[: 64 * 1024]), lambda index, size: None) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB  # 2.5 MiB were received.


def test_a_fetch_answer_may_have_what_was_asked_and_one_large_batch() -> None:
    assert largest_answer(fetch(MIB), 100, 64 * MIB) == 65 * MIB
    assert largest_answer(fetch(2**31 - 1), 100, 64 * MIB) == 114 * MIB


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        (fetch(MIB), 200 * MIB),
        (MetadataRequest(topics=None), 65 * MIB),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 2 * MIB),
    ],
)
def test_the_length_of_an_answer_that_is_larger_than_the_question_justifies_ends_the_conversation(
    request_: Request[object], size: int
) -> None:
    talk = Conversation("test", 64 * MIB)
    talk.versions = {request_.api.key: (0, request_.api.max_version)}
    talk.send(request_, "mine")
    talk.receive_buffer()[: SIZE.size] = SIZE.pack(size)
    with pytest.raises(MalformedMessage, match=rf"{request_.api.name} has {size} bytes.*response.max.bytes"):
        talk.received(SIZE.size)


def test_a_length_that_answers_nothing_ends_the_conversation() -> None:
    talk = Conversation("test", 64 * MIB)
    talk.receive_buffer()[: SIZE.size] = SIZE.pack(100)
    with pytest.raises(MalformedMessage, match="no request waits"):
        talk.received(SIZE.size)


def test_the_connection_of_a_too_large_answer_is_closed_with_an_error_that_says_so() -> None:
    cluster = FakeCluster()
    with Connection(cluster.bootstrap, {}, network=cluster, rng=random.Random(1)) as connection:
        connection.ask(-1, MetadataRequest(topics=None))
        cluster.brokers[1].is_silent = True
        channel = cluster.brokers[1].channels[-1]
        cluster.at(cluster.time_ms + 10, lambda: channel.outbox.extend(SIZE.pack(200 * MIB)))
        with pytest.raises(ConnectionFailedError, match="209715200 bytes, and at most"):
            connection.ask(1, fetch(MIB))
        assert channel.is_closed
