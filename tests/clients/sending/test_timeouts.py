"""Waits that run out: what failed later is still reported, and the error says what the wait was for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    DeliveryTimeoutError,
    RequestTimeoutError,
    UndeliveredError,
)
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    return cluster_of_flights()


def cluster_of_flights() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **properties}
    return Producer(given, network=cluster, rng=random.Random(1), is_threaded=False)


def warm(cluster: FakeCluster, **properties: Any) -> Producer:
    """A producer that has written a message."""
    producer = producer_on(cluster, **properties)
    producer.send(Message("flights", value="first"))
    assert producer.flush(10_000)
    return producer


def leaderless(cluster: FakeCluster) -> None:
    """Take the leader of flights-0 away."""
    partition = cluster.topics["flights"][0]
    partition.leader, partition.leader_epoch = -1, partition.leader_epoch + 1


def wait_with_result(response: SendResponse) -> None:
    with pytest.raises(RequestTimeoutError):
        response.result(timeout_ms=0)


def wait_in_a_loop(response: SendResponse) -> None:
    async def wait() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(response, 0.01)

    asyncio.run(wait())


LOST = Message("flights", value="lost")
SENDS: list[tuple[Callable[[Producer], SendResponse], int]] = [
    (lambda producer: producer.send(LOST), 1),
    (lambda producer: producer.send_many("flights", ["lost", "lost", "lost"]), 3),
    (lambda producer: producer.send(LOST, LOST), 2),
]


@pytest.mark.parametrize("wait", [wait_with_result, wait_in_a_loop])
@pytest.mark.parametrize(("send", "count"), SENDS, ids=["one", "many", "group"])
def test_a_message_that_fails_after_a_wait_for_it_ran_out_is_reported(
    cluster: FakeCluster,
    wait: Callable[[SendResponse], None],
    send: Callable[[Producer], SendResponse],
    count: int,
) -> None:
    producer = warm(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.INVALID_RECORD)
    response = send(producer)
    wait(response)

    with pytest.raises(UndeliveredError) as undelivered:
        producer.flush(10_000)

    assert undelivered.value.count == count


def test_an_outcome_that_a_second_wait_has_seen_is_not_reported(cluster: FakeCluster) -> None:
    producer = warm(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.INVALID_RECORD)
    response = producer.send(Message("flights", value="lost"))
    wait_with_result(response)
    while not response.done:
        producer.turn(100)
    with pytest.raises(Exception, match="INVALID_RECORD"):
        response.result(timeout_ms=0)

    assert producer.flush(10_000)


def test_the_loop_of_a_wait_may_be_closed_when_the_outcome_comes(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = warm(cluster)
    wait_in_a_loop(producer.send(Message("flights", value="v")))

    assert producer.flush(10_000)
    assert capsys.readouterr().err == ""


class TestCauses:
    """What an error says when the broker is gone, the leader is missing, or nobody knows the topic."""

    def test_a_result_names_the_broker_that_is_gone_and_since_when(self, cluster: FakeCluster) -> None:
        producer = warm(cluster)
        cluster.brokers[1].stop()
        response = producer.send(Message("flights", value="v"))
        until_ms = cluster.time_ms + 5_000
        while cluster.time_ms < until_ms:
            producer.turn(100)

        with pytest.raises(
            RequestTimeoutError, match=r"flights-0 is led by broker 1; unreachable for [45]\.\d s \(.*refused"
        ):
            response.result(timeout_ms=0)

    def test_a_result_says_that_a_partition_has_no_leader(self, cluster: FakeCluster) -> None:
        producer = warm(cluster)
        leaderless(cluster)
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response = producer.send(Message("flights", value="v"))
        until_ms = cluster.time_ms + 1_000
        while cluster.time_ms < until_ms:
            producer.turn(100)

        with pytest.raises(RequestTimeoutError, match=r"flights-0 has no leader; sent \d times"):
            response.result(timeout_ms=0)

    def test_a_result_says_that_the_broker_does_not_answer(self, cluster: FakeCluster) -> None:
        producer = warm(cluster)
        cluster.brokers[1].is_silent = True
        response = producer.send(Message("flights", value="v"))
        until_ms = cluster.time_ms + 2_000
        while cluster.time_ms < until_ms:
            producer.turn(100)

        with pytest.raises(RequestTimeoutError, match=r"has not answered \d+ requests, .* [12]\.\d s"):
            response.result(timeout_ms=0)

    def test_a_flush_that_runs_out_warns_with_the_cause_but_not_each_time(
        self, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        producer = warm(cluster)
        cluster.brokers[1].is_silent = True
        producer.send(Message("flights", value="v"))

        with caplog.at_level(logging.WARNING):
            assert not producer.flush(1_000)
            assert not producer.flush(1_000)

        (line,) = [record.getMessage() for record in caplog.records if "flush" in record.getMessage()]
        assert "flush(timeout_ms=1000) returned False: 1 message has no outcome yet: flights-0 is led" in line

    def test_a_close_that_runs_out_says_why_in_the_error_of_the_messages(self, cluster: FakeCluster) -> None:
        producer = warm(cluster)
        cluster.brokers[1].is_silent = True
        response = producer.send(Message("flights", value="v"))

        with pytest.raises(UndeliveredError, match="1 message has no outcome yet: flights-0 is led"):
            producer.close(1_000)

        assert isinstance(response.error, ClosedError)

    def test_a_message_that_was_never_sent_says_why(self, cluster: FakeCluster) -> None:
        producer = warm(cluster, **{"delivery.timeout.ms": 3_000, "metadata.max.age.ms": 100})
        leaderless(cluster)
        until_ms = cluster.time_ms + 500
        while cluster.time_ms < until_ms:
            producer.turn(100)
        response = producer.send(Message("flights", value="v"))
        with pytest.raises(UndeliveredError):
            producer.flush(10_000)

        assert isinstance(response.error, DeliveryTimeoutError)
        assert "after 0 attempts; flights-0 has no leader" in str(response.error)

    def test_a_full_buffer_says_what_its_oldest_message_waits_for(self, cluster: FakeCluster) -> None:
        producer = warm(cluster, **{"buffer.memory": 2_000, "max.block.ms": 500})
        cluster.brokers[1].is_silent = True
        for _ in range(3):
            response = producer.send(Message("flights", value=bytes(700)))

        assert isinstance(response.error, BufferFullError)
        assert "the oldest message waits: flights-0 is led by broker 1" in str(response.error)

    @pytest.mark.parametrize(
        "wait",
        [
            lambda consumer: consumer.partitions_for("flights", 500),
            lambda consumer: consumer.end_offsets([FLIGHTS], 500),
            lambda consumer: consumer.position(FLIGHTS, 500),
            lambda consumer: consumer.committed([FLIGHTS], 500),
            lambda consumer: consumer.commit(offsets={FLIGHTS: 1}, timeout_ms=500),
            lambda consumer: consumer.topics(500),
        ],
    )
    def test_a_consumer_that_reaches_no_broker_says_so(
        self, cluster: FakeCluster, wait: Callable[[Consumer], Any]
    ) -> None:
        properties = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers"}
        consumer = Consumer(properties, network=cluster, rng=random.Random(1))
        consumer.add_topic("flights", 0)
        cluster.brokers[1].stop()

        with pytest.raises(ClientError, match="Connection refused"):
            wait(consumer)

    def test_a_lease_and_an_exclusive_producer_do_not_blame_other_owners(self, cluster: FakeCluster) -> None:
        properties = {"bootstrap.servers": cluster.bootstrap, "max.block.ms": 400}
        lease = Lease(
            {"bootstrap.servers": cluster.bootstrap}, "group", ["leader"], network=cluster, is_threaded=False
        )
        producer = ExclusiveProducer(
            properties, "flights", partitions=[0], network=cluster, is_threaded=False, is_waiting=False
        )
        cluster.brokers[1].stop()

        with pytest.raises(RequestTimeoutError, match=r"not granted within 500 ms.*Connection refused"):
            lease.claim(500)
        with pytest.raises(RequestTimeoutError, match=r"no access within 500 ms.*Connection refused"):
            producer.claim(500)

    def test_an_admin_call_says_which_broker_refuses(self, cluster: FakeCluster) -> None:
        properties = {"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": 500}
        admin = Admin(properties, network=cluster, rng=random.Random(1))
        cluster.brokers[1].stop()

        with pytest.raises(ClientError, match="Connection refused"):
            admin.describe_topics(["flights"])


def overdue_after_a_late_event(cluster: FakeCluster) -> int:
    """A message waits for its leader. Shortly before its time has passed something else happens, and then
    nothing more. Returns how long its outcome took in ms."""
    producer = warm(cluster, **{"delivery.timeout.ms": 5_000, "request.timeout.ms": 60_000})
    cluster.brokers[1].is_silent = True
    response = producer.send(Message("flights", value="second"))
    began_ms = cluster.time_ms
    cluster.at(began_ms + 4_900, cluster.wake)
    try:
        response.result()
    except DeliveryTimeoutError:
        return cluster.time_ms - began_ms
    raise AssertionError("a silent broker has acknowledged a message")


def test_a_message_fails_in_time_although_something_else_happens_shortly_before(cluster: FakeCluster) -> None:
    assert overdue_after_a_late_event(cluster) <= 5_100
