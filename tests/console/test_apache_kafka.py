"""The console in front of a broker of Apache Kafka: it is an ordinary client, and ownership is left out."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
from holdfast_log.clients.admin import ClientQuotaEntity, NewScramCredential
from tests.compat.apache_kafka import KafkaBroker, class_path
from tests.console.served import running_console
from tests.console.world import words
from tests.integration.waiting import until


@pytest.fixture(scope="module")
def kafka(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    class_path()  # Skips where Apache Kafka cannot be had.
    directory = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(directory, broker_id=1, zookeeper_connect=f"{zookeeper_server}/{directory.name}")
    broker.start()
    try:
        broker.wait_ready(1)
        yield broker
    finally:
        broker.stop()


def test_every_page_shows_a_cluster_of_apache_kafka(kafka: KafkaBroker) -> None:
    given = {"bootstrap.servers": kafka.address}
    with Admin(given) as admin:
        admin.create_topics([NewTopic("orders", 2, 1, {"retention.ms": "86400000"})])
    with Producer(given) as producer:
        for number in range(20):
            producer.send(
                Message("orders", key=f"k{number}", value=f'{{"n": {number}}}', partition=number % 2)
            )
    with Consumer({**given, "group.id": "billing", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("orders")
        read = 0
        while read < 20:
            read += len(consumer.poll(1_000))
        consumer.commit()

    with running_console(kafka.address) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=300)

        def page(path: str) -> str:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, words(text)
            return words(text)

        assert "The cluster is healthy" in page("/") and kafka.address in page("/")
        assert "orders ● In sync 2 1" in page("/topics")
        assert "Messages, by offsets 20" in page("/topic?name=orders")
        # Reading for a page ends after some seconds, which a busy machine may need before the first message.
        until(lambda: '{"n": 17}' in page("/messages?topic=orders&key=k17"))
        assert "billing classic ○ No members 0 2 0" in page("/groups")
        assert "Lag 0" in page("/group?name=billing")
        assert "86400000 Set for this topic" in page("/configs?topic=orders")
        assert "broker.id" in page("/configs?broker=1")
        assert "These brokers know no owners" in page("/owners")
        assert "These brokers have no authorizer" in page("/access")
        with Admin(given) as admin:
            admin.alter_scram_credentials([NewScramCredential("anna", "open sesame")])
            admin.alter_client_quotas({ClientQuotaEntity.of(user="anna"): {"producer_byte_rate": 1024.0}})
            # Brokers of Apache Kafka read it from ZooKeeper.
            until(lambda: "anna" in admin.describe_scram_credentials())
        said = page("/users")
        assert "anna SCRAM-SHA-512 4,096" in said
        assert "user-principal 'anna' producer_byte_rate 1.0 KiB/s" in said
        connection.close()
