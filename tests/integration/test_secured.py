"""TLS, SASL and access control lists together: each client over each mechanism may do what a list allows.

Each of two brokers has a listener without any of it, for the super user who makes users and lists, one of
protocol SASL_SSL for clients, and the brokers' own, also SASL_SSL.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError as AiokafkaTopicRefused
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError as KafkaPythonTopicRefused

from holdfast_log import Consumer, Message, Producer
from holdfast_log.broker.tools.broker_process import BackgroundBroker, free_port
from holdfast_log.clients.admin import (
    LATEST,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Admin,
    NewScramCredential,
    NewTopic,
    ResourcePattern,
)
from holdfast_log.protocol.errors import AuthorizationError, BrokerError, ErrorCode
from holdfast_log.protocol.sasl.mechanisms import PLAIN
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.waiting import until

MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
PASSWORD = "correct horse, battery=staple"
USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    f'password="of brokers" user_broker="of brokers" user_alice="{PASSWORD}";'
)


@dataclass(frozen=True)
class Secured:
    """Two brokers, their listeners for clients, and the file of the authority to trust."""

    cluster: Cluster
    bootstrap: str
    authority: Path

    def ours(self, mechanism: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }

    def librdkafka(self, mechanism: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanisms": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }

    def python(self, mechanism: str) -> dict[str, Any]:
        """Settings of kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.authority)),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }


def properties_of(directory: Path, broker: BackgroundBroker, port: int) -> dict[str, str]:
    return {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://localhost:{port},"
            f"INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(directory / f"broker-{broker.broker_id}.pem"),
        "ssl.truststore.location": str(directory / "authority.pem"),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "listener.name.clients.plain.sasl.jaas.config": USERS,
        "listener.name.internal.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "acls",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.replication.factor": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


def allowed(resource: AclResource, name: str, *operations: AclOperation) -> list[AclBinding]:
    pattern = ResourcePattern(resource, name, AclPattern.PREFIXED)
    return [
        AclBinding(pattern, AclEntry("User:alice", "*", operation, AclPermission.ALLOW))
        for operation in operations
    ]


@pytest.fixture(scope="module")
def secured(cluster_of_module: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    authority.write(directory / "authority.pem")
    ports = (free_port(), free_port())
    for port in ports:
        broker = cluster_of_module.add()
        name = f"broker-{broker.broker_id}"
        authority.issue(name, BOTH_NAMES).write(directory / f"{name}.pem")
        broker.properties.update(properties_of(directory, broker, port))
        broker.start()
    for broker in cluster_of_module.brokers:
        broker.wait_ready(2)
    found = Secured(cluster_of_module, f"localhost:{ports[0]}", directory / "authority.pem")
    with Admin({"bootstrap.servers": cluster_of_module.brokers[0].address}) as admin:
        admin.alter_scram_credentials(
            NewScramCredential("alice", PASSWORD, each) for each in SCRAM_MECHANISMS
        )
        admin.create_acls(
            [
                *allowed(AclResource.TOPIC, "open-", AclOperation.READ, AclOperation.WRITE),
                *allowed(AclResource.GROUP, "open-", AclOperation.READ),
            ]
        )
        admin.create_topics([NewTopic("closed", partitions=1, replication_factor=2)])
    until(lambda: all(gets_in(found, port) for port in ports))
    yield found
    cluster_of_module.show()


def gets_in(secured: Secured, port: int) -> bool:
    """Whether this broker knows the user by each mechanism, and the lists: it may learn of them later."""
    at = {"bootstrap.servers": f"localhost:{port}"}
    try:
        for mechanism in MECHANISMS:
            with Admin({**secured.ours(mechanism), **at}) as admin:
                admin.describe_groups(["open-group"])
    except BrokerError:
        return False
    return True


def new_topic(secured: Secured, name: str) -> str:
    with Admin({"bootstrap.servers": secured.cluster.brokers[0].address}) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=2)])
    return name


def written_to_closed(secured: Secured) -> int:
    """How many records are in the topic that no list opens."""
    with Admin({"bootstrap.servers": secured.cluster.brokers[0].address}) as admin:
        (found,) = admin.list_offsets({TopicPartition("closed", 0): LATEST}).values()
    return found.offset


def is_refused(call: Callable[[], object], *errors: type[BaseException]) -> bool:
    try:
        call()
    except errors:
        return True
    return False


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_clients(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured, f"open-ours-{mechanism}")
    with Producer(secured.ours(mechanism)) as producer:
        producer.send(Message(topic, value=b"value")).result(60_000)
        refused = producer.send(Message("closed", value=b"value"))
        assert is_refused(lambda: refused.result(60_000), AuthorizationError)
    group = {"group.id": f"open-{mechanism}", "auto.offset.reset": "earliest"}
    with Consumer({**secured.ours(mechanism), **group}) as consumer:
        consumer.add_topic(topic)
        found: list[Any] = []
        until(lambda: bool(found.extend(consumer.poll(1000)) or found))
    assert [record.value for record in found] == [b"value"]
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured: Secured, mechanism: str) -> None:
    topic, settings = new_topic(secured, f"open-librdkafka-{mechanism}"), secured.librdkafka(mechanism)
    assert clients.produce(secured.bootstrap, topic, [b"a", b"b"], **settings) == [0, 1]
    group = {"group.id": "open-librdkafka"}
    assert clients.consume(secured.bootstrap, topic, 2, **group, **settings) == [b"a", b"b"]
    refused = clients.produce_error(secured.bootstrap, "closed", **settings)
    assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    topic, settings = new_topic(secured, f"open-kafka-python-{mechanism}"), secured.python(mechanism)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(60)
    assert is_refused(lambda: producer.send("closed", b"value").get(60), KafkaPythonTopicRefused)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    assert next(iter(consumer)).value == b"value"
    consumer.close()
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secured: Secured, mechanism: str) -> None:
    topic, settings = new_topic(secured, f"open-aiokafka-{mechanism}"), secured.python(mechanism)

    async def go() -> Any:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(topic, b"value")
        with pytest.raises(AiokafkaTopicRefused):
            await producer.send_and_wait("closed", b"value")
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), 60)
        await consumer.stop()
        return record.value

    assert asyncio.run(go()) == b"value"
    assert written_to_closed(secured) == 0
