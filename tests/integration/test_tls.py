"""Two brokers that speak TLS with clients and each other: stock clients, replication, new certificates."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.consumer import Consumer as HoldfastConsumer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer as HoldfastProducer
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.waiting import until

PASSWORD = "quite secret 17"
TIMEOUT_S = 60
VALUES = [b"%d" % number * 100 for number in range(500)]


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """Two brokers, the authority that they trust, and the files of a client."""

    cluster: Cluster
    directory: Path
    authority: Authority
    ports: tuple[int, ...]

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.ports[0]}"

    @property
    def trusted(self) -> str:
        return str(self.directory / "authority.pem")

    @property
    def confluent(self) -> dict[str, Any]:
        """Properties of librdkafka for a client with a certificate."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": self.trusted,
            "ssl.certificate.location": str(self.directory / "client.pem"),
            "ssl.key.location": str(self.directory / "client.pem"),
        }

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        context.load_cert_chain(self.directory / "client.pem")
        return context

    def new_topic(self, name: str) -> None:
        admin = AdminClient(self.confluent)
        admin.create_topics([NewTopic(name, 1, 2)], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def serial_number(self) -> str:
        """The number of the certificate that the first broker shows to a new connection."""

        with (
            socket.create_connection(("127.0.0.1", self.ports[0]), TIMEOUT_S) as plain,
            self.context().wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            shown = stream.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def _properties(directory: Path, broker: BackgroundBroker, secure_port: int) -> dict[str, str]:
    own = str(directory / f"broker-{broker.broker_id}.p12")
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SECURE://localhost:{secure_port},"
        f"INTERNAL://127.0.0.1:{broker.brokers_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": own,
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(directory / "authority.pem"),
        "ssl.client.auth": "required",
        "ssl.store.check.interval.ms": "100",
        "offsets.topic.replication.factor": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


@pytest.fixture(scope="module")
def secure(cluster_of_module: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    authority.write(directory / "authority.pem")
    authority.issue("Ann").write(directory / "client.pem")
    authority.issue("Ann").write_pkcs12(directory / "client.p12", PASSWORD)
    ports = (free_port(), free_port())
    for port in ports:
        broker = cluster_of_module.add()
        name = f"broker-{broker.broker_id}"
        authority.issue(name, BOTH_NAMES).write_pkcs12(directory / f"{name}.p12", PASSWORD)
        broker.properties.update(_properties(directory, broker, port))
        broker.start()
    for broker in cluster_of_module.brokers:
        broker.wait_ready(2)
    yield SecureCluster(cluster_of_module, directory, authority, ports)
    cluster_of_module.show()


def test_librdkafka_produces_to_two_replicas_and_consumes(secure: SecureCluster) -> None:
    secure.new_topic("by-librdkafka")
    producer = Producer({**secure.confluent, "acks": "all"})
    errors: list[Any] = []
    for value in VALUES:
        producer.produce("by-librdkafka", value, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0 and not errors
    consumer = Consumer({**secure.confluent, "group.id": "by-librdkafka", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-librdkafka"])
    found: list[bytes | None] = []
    until(lambda: _poll(consumer, found) >= len(VALUES))
    consumer.close()
    assert found == VALUES


def _poll(consumer: Consumer, found: list[bytes | None]) -> int:
    found += [message.value() for message in consumer.consume(1000, 1)]
    return len(found)


def test_kafka_python_produces_and_consumes(secure: SecureCluster) -> None:
    secure.new_topic("by-kafka-python")
    settings = {
        "bootstrap_servers": secure.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": secure.trusted,
        "ssl_certfile": str(secure.directory / "client.pem"),
        "ssl_keyfile": str(secure.directory / "client.pem"),
    }
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send("by-kafka-python", value)
    producer.flush(TIMEOUT_S)
    producer.close(TIMEOUT_S)
    consumer = KafkaConsumer(
        "by-kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings
    )
    found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
    consumer.close()
    assert found == VALUES


def test_aiokafka_produces_and_consumes(secure: SecureCluster) -> None:
    secure.new_topic("by-aiokafka")
    assert asyncio.run(_by_aiokafka(secure)) == VALUES


async def _by_aiokafka(secure: SecureCluster) -> list[bytes]:
    settings = {
        "bootstrap_servers": secure.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": secure.context(),
    }
    async with AIOKafkaProducer(**settings) as producer:
        for sent in [await producer.send("by-aiokafka", value) for value in VALUES]:
            await sent
    async with AIOKafkaConsumer("by-aiokafka", auto_offset_reset="earliest", **settings) as consumer:
        return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]


def test_holdfasts_own_clients_take_pkcs12_and_send_large_records(secure: SecureCluster) -> None:
    secure.new_topic("by-holdfast")
    values = [os.urandom(400_000) for _ in range(20)]
    properties = {
        "bootstrap.servers": secure.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.location": secure.trusted,
        "ssl.keystore.location": str(secure.directory / "client.p12"),
        "ssl.keystore.password": PASSWORD,
    }
    with HoldfastProducer({**properties, "acks": "all"}) as producer:
        for value in values:
            producer.send(Message("by-holdfast", value=value))
        producer.flush(TIMEOUT_S)
    with HoldfastConsumer({**properties, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("by-holdfast")
        found: list[bytes | None] = []
        until(lambda: len(found.__iadd__([each.value for each in consumer.poll(1000)])) >= len(values))
    assert found == values


def test_holdfasts_asyncio_clients_produce_and_consume(secure: SecureCluster) -> None:
    secure.new_topic("by-asyncio")
    properties = {
        "bootstrap.servers": secure.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.location": secure.trusted,
        "ssl.keystore.location": str(secure.directory / "client.p12"),
        "ssl.keystore.password": PASSWORD,
    }
    assert asyncio.run(clients.round_trip_in_loop(properties, "by-asyncio")) == b"value"


def test_a_client_without_a_certificate_gets_nothing(secure: SecureCluster) -> None:
    given = {name: value for name, value in secure.confluent.items() if "key" not in name}
    del given["ssl.certificate.location"]
    with pytest.raises(KafkaException):
        AdminClient(given).list_topics(timeout=5)


def test_a_changed_file_is_used_for_new_connections_and_a_broken_one_is_not(secure: SecureCluster) -> None:
    path = secure.directory / "broker-1.p12"
    admin = AdminClient(secure.confluent)
    admin.list_topics(timeout=TIMEOUT_S)
    before = secure.serial_number()

    path.write_bytes(b"no store")
    broker = secure.cluster.brokers[0]
    until(lambda: "keeps its present certificate" in broker.log)
    assert secure.serial_number() == before

    secure.authority.issue("broker-1", BOTH_NAMES).write_pkcs12(path, PASSWORD)
    until(lambda: secure.serial_number() != before)
    admin.list_topics(timeout=TIMEOUT_S)
    assert PASSWORD not in broker.log


def test_the_key_store_is_altered_while_the_broker_runs(secure: SecureCluster) -> None:
    setting = "listener.name.secure.ssl.keystore.location"
    before = secure.serial_number()
    new = secure.authority.issue("broker-1", BOTH_NAMES).write_pkcs12(secure.directory / "new.p12", PASSWORD)

    with pytest.raises(KafkaException, match="cannot be read"):
        _alter(secure, setting, str(secure.directory / "missing.p12"))
    assert secure.serial_number() == before
    _alter(secure, setting, new)

    until(lambda: secure.serial_number() != before)
    described = _described(secure)
    assert described[setting].value == new
    assert described["ssl.keystore.password"].value is None
    assert described["ssl.keystore.password"].is_sensitive


def _alter(secure: SecureCluster, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(secure.confluent)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(TIMEOUT_S)


def _described(secure: SecureCluster) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient(secure.confluent)
    (described,) = admin.describe_configs([resource]).values()
    found: dict[str, Any] = described.result(TIMEOUT_S)
    return found
