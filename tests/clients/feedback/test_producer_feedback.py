"""The counters and events of a producer, run turn by turn against brokers in memory."""

from __future__ import annotations

import pytest

from holdfast_log.clients.errors import BufferFullError, RecordTooLargeError
from holdfast_log.clients.feedback.events import (
    BatchFailed,
    BatchRetried,
    BatchSplit,
    ConnectionLost,
    Event,
    LeaderMoved,
    Throttled,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode, MessageTooLargeError, NotLeaderOrFollowerError
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle
from tests.clients.test_producer import producer_on, write


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


@pytest.fixture
def told() -> list[Event]:
    return []


def test_records_wait_and_are_then_acknowledged(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, on_event=told.append)
    for n in range(10):
        producer.send(Message("flights", value=b"%04d" % n))

    before = producer.feedback()
    settle(producer)
    after = producer.feedback()

    assert (before.records_waiting, before.records_acknowledged, before.records_queued) == (10, 0, 10)
    assert before.bytes_waiting > 40 and before.buffer_used_bytes > 0
    assert (after.records_waiting, after.records_acknowledged, after.records_queued) == (0, 10, 10)
    assert after.bytes_acknowledged == sum(len(batch) for batch in cluster.topics["flights"][0].batches)
    assert after.batches_acknowledged == len(cluster.topics["flights"][0].batches)
    assert (after.buffer_used_bytes, after.bytes_waiting, after.records_failed) == (0, 0, 0)
    assert after.connection.apis["Produce"].responses == after.connection.apis["Produce"].requests > 0


def test_a_snapshot_does_not_change(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, on_event=told.append)
    before = producer.feedback()
    write(producer, b"v")

    assert (before.records_queued, before.connection.total.requests) == (0, 0)
    assert before.batch_fill is None


def test_batch_fill_is_the_mean_fill_of_sent_batches(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, {"batch.size": 10_000}, on_event=told.append)
    write(producer, b"the topic is known")
    small = producer.feedback().batch_fill
    for _ in range(40):
        producer.send(Message("flights", value=bytes(970)))
    settle(producer)
    full = producer.feedback().batch_fill

    assert small is not None and full is not None
    assert 0 < small < 0.05 and 0.7 < full <= 1


def test_a_batch_that_is_sent_again_is_reported_and_counted(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, on_event=told.append)
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.brokers[1].fail_next(ProduceRequest, "cut")
    producer.send_many("flights", [b"1", b"2", b"3"], partition=0)
    settle(producer)

    seen = producer.feedback()
    retried = [event for event in told if isinstance(event, BatchRetried)]
    lost = [event for event in told if isinstance(event, ConnectionLost)]
    assert [(event.topic, event.partition, event.records) for event in retried] == [("flights", 0, 3)] * 2
    assert [event.attempts for event in retried] == [1, 2]
    assert isinstance(retried[0].error, NotLeaderOrFollowerError) and retried[1].error == lost[0].error
    assert (seen.batches_retried, seen.batches_acknowledged, seen.records_acknowledged) == (2, 1, 3)
    assert seen.connection.apis["Produce"].requests == 3 and seen.connection.apis["Produce"].failures == 1


def test_a_batch_that_is_given_up_is_reported_and_counted(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, {"retries": 0}, on_event=told.append)
    write(producer, b"the topic is known")
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_ENOUGH_REPLICAS)
    lost = write(producer, b"1")

    (failed,) = [event for event in told if isinstance(event, BatchFailed)]
    assert failed == BatchFailed("flights", 0, 1, lost.error)
    seen = producer.feedback()
    assert (seen.records_acknowledged, seen.records_failed, seen.batches_failed) == (1, 1, 1)
    assert seen.bytes_failed > 0 and seen.records_waiting == 0


def test_a_split_batch_is_reported_before_its_halves_arrive(cluster: FakeCluster, told: list[Event]) -> None:
    cluster.topics["flights"][0].max_batch_bytes = 1500
    producer = producer_on(cluster, on_event=told.append)
    producer.send_many("flights", [bytes(1000), bytes(1000)], partition=0)
    settle(producer)

    (split,) = [event for event in told if isinstance(event, BatchSplit)]
    assert split.records == 2 and isinstance(split.error, MessageTooLargeError)
    seen = producer.feedback()
    assert (seen.batches_split, seen.batches_acknowledged, seen.records_acknowledged) == (1, 2, 2)


def test_refused_records_and_the_wait_for_room_are_counted(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, {"buffer.memory": 20_000, "max.block.ms": 100}, on_event=told.append)
    write(producer, b"the topic is known")
    cluster.brokers[1].stop()
    assert isinstance(producer.send(Message("flights", value=bytes(30_000))).error, RecordTooLargeError)
    responses = [producer.send(Message("flights", value=bytes(100))) for _ in range(100)]
    refused = sum(isinstance(response.error, BufferFullError) for response in responses)

    seen = producer.feedback()

    assert 0 < refused < 100
    assert seen.records_refused == refused + 1
    assert seen.records_waiting == 100 - refused
    assert seen.buffer_wait_ms == 100 * refused
    assert 19_000 < seen.buffer_used_bytes <= 20_000


def test_throttling_is_reported(cluster: FakeCluster, told: list[Event]) -> None:
    producer = producer_on(cluster, on_event=told.append)
    cluster.brokers[1].throttle_time_ms = 2000
    write(producer, b"1")

    assert Throttled(1, "broker-1:9092", "Produce", 2000) in told
    seen = producer.feedback().connection
    assert seen.apis["Produce"].throttled_ms == seen.total.throttled_ms == 2000


def test_a_change_of_leader_is_reported() -> None:
    cluster, told = FakeCluster(2), []
    (partition,) = cluster.add_topic("flights", 1)
    producer = producer_on(cluster, on_event=told.append)
    write(producer, b"1")
    partition.leader, partition.leader_epoch = 2, 1
    write(producer, b"2")

    moves = [event for event in told if isinstance(event, LeaderMoved)]
    assert moves == [LeaderMoved("flights", 0, leader=2, leader_epoch=1, leader_before=1)]


def test_events_are_delivered_without_the_lock(cluster: FakeCluster) -> None:
    told = []

    def on_event(event: Event) -> None:
        assert not producer._lock._is_owned()
        told.append((type(event), producer.feedback().batches_retried))

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap}, network=cluster, is_threaded=False, on_event=on_event
    )
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer.send(Message("flights", value=b"1"))
    while not told or told[-1][0] is not BatchRetried:
        producer.turn(100)

    assert told[-1] == (BatchRetried, 1)
