"""Producers and consumers with a fence, against brokers in memory."""

from __future__ import annotations

import contextlib
import pickle
import random
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClosedError, ConfigError, UndeliveredError, UnsupportedRequestError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.fence import FENCES_FEATURE, OwnerFence
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError, ProducerFencedError
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("log", 1)
FENCE = OwnerFence({LOG: 258}, b"a secret of 16 b")
WAIT_MS = 30_000


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.brokers[1].features[FENCES_FEATURE] = 1
    cluster.add_topic("log", 2)
    return cluster


def surroundings(cluster: FakeCluster) -> dict[str, Any]:
    return {"network": cluster.network(), "rng": random.Random(1)}


def producer_on(cluster: FakeCluster, fence: OwnerFence | None = FENCE, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, **properties}
    return Producer(given, fence=fence, is_threaded=False, **surroundings(cluster))


def consumer_on(cluster: FakeCluster, fence: OwnerFence | None = FENCE) -> Consumer:
    given = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
    return Consumer(given, fence=fence, **surroundings(cluster))


def lease_on(cluster: FakeCluster, *resources: TopicPartition | str, **options: Any) -> Lease:
    given = {"bootstrap.servers": cluster.bootstrap}
    return Lease(given, "app", resources, is_threaded=False, **surroundings(cluster), **options)


def written(producer: Producer, partition: int = 0) -> Exception | None:
    """The error of a message that is written now; None if it was acknowledged."""
    response = producer.send(Message("log", value="x", partition=partition))
    with contextlib.suppress(UndeliveredError):
        assert producer.flush(WAIT_MS)
    return response.error


def sent(cluster: FakeCluster) -> list[tuple[int, bytes]]:
    """The token and secret of each partition in the Produce requests."""
    return [
        (data.owner_token, data.owner_secret)
        for request in cluster.brokers[1].requests
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def fetched(cluster: FakeCluster) -> list[tuple[int, bytes]]:
    """The token and secret of each partition in the Fetch requests."""
    return [
        (wanted.owner_token, wanted.owner_secret)
        for request in cluster.brokers[1].requests
        if isinstance(request, FetchRequest)
        for topic in request.topics
        for wanted in topic.partitions
    ]


# -- what an owner gives -----------------------------------------------------------------------------------


def test_a_lease_gives_the_tokens_of_its_partitions_and_its_secret(cluster: FakeCluster) -> None:
    with lease_on(cluster, LOG, OTHER, "a name") as lease:
        fence = lease.fence()
        assert fence.tokens == {LOG: lease.token(LOG), OTHER: lease.token(OTHER)}
    claim = next(each for each in cluster.brokers[1].requests if hasattr(each, "secret"))
    assert fence.secret == claim.secret


def test_a_fence_can_be_pickled_and_does_not_show_its_secret() -> None:
    assert pickle.loads(pickle.dumps(FENCE)) == FENCE
    for text in (repr(FENCE), str(FENCE)):
        assert "258" in text
        assert "secret of" not in text


def test_a_lease_without_partitions_or_not_granted_or_lost_gives_no_fence(cluster: FakeCluster) -> None:
    with lease_on(cluster, "a name") as names, pytest.raises(ValueError, match="use a token"):
        names.fence()
    lease = lease_on(cluster, LOG)
    with pytest.raises(ClosedError, match="not granted"):
        lease.fence()
    lease.claim(WAIT_MS)
    with lease_on(cluster, LOG, generation=1):
        lease.poll(WAIT_MS)
        lease.poll(WAIT_MS)
        with pytest.raises(OwnershipFencedError):
            lease.fence()
    lease.close()


def test_an_exclusive_producer_gives_a_fence_but_a_shared_one_does_not(cluster: FakeCluster) -> None:
    def producer(mode: ProducerAccessMode) -> ExclusiveProducer:
        given = {"bootstrap.servers": cluster.bootstrap}
        return ExclusiveProducer(given, "log", mode, is_threaded=False, **surroundings(cluster))

    with producer(ProducerAccessMode.EXCLUSIVE) as exclusive:
        tokens = {TopicPartition("log", number): exclusive.token(number) for number in (0, 1)}
        assert exclusive.fence().tokens == tokens
    with producer(ProducerAccessMode.SHARED) as shared, pytest.raises(ClosedError):
        shared.fence()


# -- writing -----------------------------------------------------------------------------------------------


def test_every_request_of_a_producer_carries_its_fence(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    assert [written(producer) for _ in range(2)] == [None, None]
    assert sent(cluster) == [(258, FENCE.secret)] * 2


def test_a_producer_without_a_fence_sends_none(cluster: FakeCluster) -> None:
    assert written(producer_on(cluster, None)) is None
    assert sent(cluster) == [(-1, b"")]


def test_a_producer_writes_nothing_to_a_partition_outside_of_its_fence(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    error = written(producer, partition=1)
    assert isinstance(error, ValueError)
    assert "does not cover log-1, only log-0" in str(error)
    assert written(producer) is None
    assert sent(cluster) == [(258, FENCE.secret)]


def test_nothing_is_sent_to_a_broker_that_does_not_know_fences(cluster: FakeCluster) -> None:
    del cluster.brokers[1].features[FENCES_FEATURE]
    assert isinstance(written(producer_on(cluster)), UnsupportedRequestError)
    assert sent(cluster) == []
    consumer = consumer_on(cluster)
    consumer.add_topic(*LOG)
    with pytest.raises(UnsupportedRequestError):
        consumer.poll(WAIT_MS)
    assert fetched(cluster) == []


def test_a_producer_whose_grant_has_ended_is_fenced_for_good(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    assert written(producer) is None
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.PRODUCER_FENCED)
    assert isinstance(written(producer), ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        producer.send(Message("log", value="x", partition=0))


def test_a_batch_waits_while_the_owner_may_resume(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    for _ in range(2):
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.OWNERSHIP_DETACHED)
    assert written(producer) is None
    assert len(sent(cluster)) == 3


def test_a_producer_with_a_fence_needs_acks_all(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="needs acks=all"):
        producer_on(cluster, acks="1")


# -- reading -----------------------------------------------------------------------------------------------


def test_every_fetch_of_a_consumer_carries_its_fence(cluster: FakeCluster) -> None:
    written(producer_on(cluster, None))
    consumer = consumer_on(cluster)
    consumer.add_topic(*LOG)
    assert [record.value for record in consumer.poll(WAIT_MS)] == [b"x"]
    assert set(fetched(cluster)) == {(258, FENCE.secret)}
    with pytest.raises(ValueError, match="does not cover log-1"):
        consumer.add_topic(*OTHER)


def test_a_consumer_whose_grant_has_ended_raises_that(cluster: FakeCluster) -> None:
    consumer = consumer_on(cluster)
    consumer.add_topic(*LOG)
    cluster.brokers[1].fail_next(FetchRequest, ErrorCode.OWNERSHIP_FENCED)
    with pytest.raises(OwnershipFencedError):
        consumer.poll(WAIT_MS)


def test_a_consumer_waits_while_the_owner_may_resume(cluster: FakeCluster) -> None:
    written(producer_on(cluster, None))
    consumer = consumer_on(cluster)
    consumer.add_topic(*LOG)
    cluster.brokers[1].fail_next(FetchRequest, ErrorCode.OWNERSHIP_DETACHED)
    assert [record.value for record in consumer.poll(WAIT_MS)] == [b"x"]


def test_the_fence_of_a_reader_is_for_reading(cluster: FakeCluster) -> None:
    with lease_on(cluster, LOG, access=Access.READ) as lease:
        assert lease.fence().token(LOG) == lease.token(LOG)
