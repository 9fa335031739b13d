"""Clients go on when a broker has forgotten their idempotent producer: its next batch is refused once, since
an earlier one might be missing, and taken when the client sends it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.cluster import Cluster
from tests.integration.clients import Idempotent, consume, create_topic
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

FORGETFUL = {"producer.id.expiration.ms": "500", "producer.id.expiration.check.interval.ms": "100"}
VALUES = [b"a", b"b", b"c"]
Pause = Callable[[], None]


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker that forgets a producer soon after its last write."""
    return cluster_of_module.start(1, FORGETFUL)[0]


def librdkafka(bootstrap: str, topic: str, pause: Pause) -> None:
    producer = Idempotent(bootstrap)
    for value in VALUES:
        assert producer.write(topic, 0, value) is None
        pause()


def kafka_python(bootstrap: str, topic: str, pause: Pause) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for value in VALUES:
        producer.send(topic, value, partition=0).get(60)
        pause()
    producer.close()


def aiokafka(bootstrap: str, topic: str, pause: Pause) -> None:
    async def go() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value, partition=0)
            await asyncio.to_thread(pause)
        await producer.stop()

    asyncio.run(go())


def own(bootstrap: str, topic: str, pause: Pause) -> None:
    with Producer({"bootstrap.servers": bootstrap, "enable.idempotence": "true"}) as producer:
        for value in VALUES:
            producer.send(Message(topic, None, value)).result(60_000)
            pause()


@pytest.mark.parametrize("client", [librdkafka, kafka_python, aiokafka, own])
def test_a_producer_that_was_forgotten_goes_on(
    broker: BackgroundBroker, client: Callable[[str, str, Pause], None]
) -> None:
    topic = client.__name__
    bootstrap = f"127.0.0.1:{broker.port}"
    create_topic(bootstrap, topic)

    def is_forgotten() -> bool:
        with RawSocket(broker.port) as connection:
            request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
            return not connection.call(request).topics[0].partitions[0].active_producers

    client(bootstrap, topic, lambda: until(is_forgotten))

    assert consume(bootstrap, topic, len(VALUES)) == VALUES
