"""The clients' memory, measured with tracemalloc, stays within their settings."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from holdfast_log.clients.errors import BufferFullError
from holdfast_log.clients.message import Message
from holdfast_log.protocol.batches import Compression
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_consumer import consumer_on
from tests.clients.test_producer import producer_on
from tests.models.batches import encoded

MB = 1024 * 1024


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("size", [0, 100, 5000])
@pytest.mark.parametrize("in_bulk", [False, True])
def test_a_producer_stays_within_buffer_memory_while_the_broker_is_down(
    tracing: None, size: int, in_bulk: bool
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights", 3)
    producer = producer_on(cluster, {"buffer.memory": 4 * MB, "max.block.ms": 200})
    producer.send(Message("flights", value="warm up"))
    assert producer.flush()
    cluster.brokers[1].stop()
    assert producer.partitions_for("flights") == 3
    before = held()
    responses = []
    while not responses or responses[-1].error is None:
        if in_bulk:
            responses.append(producer.send_many("flights", [bytes(size) for _ in range(100)]))
        else:
            responses.append(producer.send(Message("flights", value=bytes(size))))

    assert isinstance(responses[-1].error, BufferFullError)
    assert held() - before < 1.25 * 4 * MB
    assert producer._engine.queues.used > 3 * MB
    cluster.brokers[1].start()
    assert producer.flush()
    responses.clear()
    for channel in cluster.brokers[1].channels:
        channel.inbox.clear()
    cluster.topics.clear()
    cluster.brokers[1].requests.clear()
    assert held() - before < MB


def test_messages_of_an_unknown_topic_count_towards_buffer_memory(tracing: None) -> None:
    producer = producer_on(FakeCluster(), {"buffer.memory": 4 * MB})
    before = held()
    responses = []
    while producer._engine.queues.used < 4 * MB - 2000:
        responses.append(producer.send(Message("nowhere", value=bytes(100))))

    assert 3 * MB < held() - before < 1.25 * 4 * MB


@pytest.mark.parametrize("codec", [0, 4])
def test_a_consumer_fetches_ahead_only_up_to_its_limit(tracing: None, codec: int) -> None:
    cluster = FakeCluster()
    for partition in cluster.add_topic("flights", 4):
        for _ in range(40):
            rows = [(1, None, bytes(range(100)))] * 1000
            partition.append(memoryview(encoded(rows, Compression(codec))))
    limits = {"fetch.max.bytes": MB // 2, "max.partition.fetch.bytes": MB // 8, "max.poll.records": 10}
    consumer = consumer_on(cluster, limits)
    consumer.add_topic("flights")
    before = held()
    most = received = 0
    for _ in range(1000):
        received += len(consumer.poll(1000))
        cluster.brokers[1].requests.clear()
        most = max(most, held() - before)

    assert received > 5000
    # The fetched batches, those in flight, and the batch whose records are being decoded.
    assert most < 5 * MB
