"""TLS, SASL and access control lists together: each client, by each way to prove who it is over TLS, may do
what a list allows.

Each of two brokers has a listener without any of it, for the super user who makes users and lists, one of
protocol SASL_SSL for clients, one of SSL for clients with certificates, and the brokers' own, also SASL_SSL.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokenProvider
from aiokafka.errors import TopicAuthorizationFailedError as AiokafkaTopicRefused
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError as KafkaPythonTopicRefused
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from holdfast_log import Consumer, Message, Producer
from holdfast_log.aio import AsyncProducer
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
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.protocol.errors import AuthorizationError, BrokerError, ErrorCode
from holdfast_log.protocol.sasl.mechanisms import OAUTHBEARER, PLAIN
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.integration import clients
from tests.integration.test_sasl import key_file, token
from tests.integration.waiting import until

MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
CERTIFICATE = "certificate"
WAYS = (*MECHANISMS, CERTIFICATE)
"""How a client proves who it is: by a mechanism of SASL, or by the certificate that it shows."""
PASSWORD = "correct horse, battery=staple"
USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    f'password="of brokers" user_broker="of brokers" user_alice="{PASSWORD}";'
)


class KafkaPythonTokens(KafkaPythonTokenProvider):
    def token(self) -> str:
        return token()


class AiokafkaTokens(AiokafkaTokenProvider):
    async def token(self) -> str:
        return token()


@dataclass(frozen=True)
class Secured:
    """Two brokers, their listeners for clients, and a directory with the authority to trust (authority.pem),
    a client's certificate (alice.pem) and its token (token)."""

    cluster: Cluster
    addresses: dict[str, str]
    """Where the first broker is reached, by the way."""
    directory: Path

    @property
    def authority(self) -> str:
        return str(self.directory / "authority.pem")

    @property
    def certificate(self) -> str:
        return str(self.directory / "alice.pem")

    def ours(self, way: str) -> dict[str, Any]:
        found = {"bootstrap.servers": self.addresses[way], "ssl.truststore.location": self.authority}
        if way == CERTIFICATE:
            return {**found, "security.protocol": "SSL", "ssl.keystore.location": self.certificate}
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": way}
        if way == OAUTHBEARER:
            return {**found, "sasl.oauthbearer.token.file": str(self.directory / "token")}
        return {**found, "sasl.username": "alice", "sasl.password": PASSWORD}

    def librdkafka(self, way: str) -> dict[str, Any]:
        found: dict[str, Any] = {"ssl.ca.location": self.authority}
        if way == CERTIFICATE:
            own = {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
            return {**found, "security.protocol": "SSL", **own}
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanisms": way}
        if way == OAUTHBEARER:
            return {**found, "oauth_cb": lambda _: (token(), time.time() + 600)}
        return {**found, "sasl.username": "alice", "sasl.password": PASSWORD}

    def python(self, way: str, tokens: object) -> dict[str, Any]:
        """Settings of kafka-python and aiokafka."""
        context = ssl.create_default_context(cafile=self.authority)
        found = {"bootstrap_servers": self.addresses[way], "ssl_context": context}
        if way == CERTIFICATE:
            context.load_cert_chain(self.certificate)
            return {**found, "security_protocol": "SSL"}
        found |= {"security_protocol": "SASL_SSL", "sasl_mechanism": way}
        if way == OAUTHBEARER:
            return {**found, "sasl_oauth_token_provider": tokens}
        return {**found, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}

    def java(self, way: str) -> dict[str, str]:
        found = {
            "bootstrap.servers": self.addresses[way],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        if way == CERTIFICATE:
            own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
            return {**found, "security.protocol": "SSL", **own}
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": way}
        common = "org.apache.kafka.common.security"
        if way == OAUTHBEARER:
            handler = f"{common}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            return {
                **found,
                "sasl.login.callback.handler.class": handler,
                "sasl.oauthbearer.token.endpoint.url": (self.directory / "token").as_uri(),
                "sasl.jaas.config": f"{common}.oauthbearer.OAuthBearerLoginModule required;",
            }
        module = f"{common}.plain.Plain" if way == PLAIN else f"{common}.scram.Scram"
        login = f'{module}LoginModule required username="alice" password="{PASSWORD}";'
        return {**found, "sasl.jaas.config": login}


def properties_of(directory: Path, broker: BackgroundBroker, ports: tuple[int, int]) -> dict[str, str]:
    return {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://localhost:{ports[0]},"
            f"CERTIFIED://localhost:{ports[1]},INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,CERTIFIED:SSL,INTERNAL:SASL_SSL"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(directory / f"broker-{broker.broker_id}.pem"),
        "ssl.truststore.location": str(directory / "authority.pem"),
        "listener.name.certified.ssl.client.auth": "required",
        "listener.name.certified.ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/",
        "sasl.enabled.mechanisms": PLAIN,
        "listener.name.clients.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": key_file(broker).as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
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
    authority.issue("alice").write(directory / "alice.pem")
    (directory / "token").write_text(token())
    ports = [(free_port(), free_port()) for _ in range(2)]
    for pair in ports:
        broker = cluster_of_module.add()
        name = f"broker-{broker.broker_id}"
        authority.issue(name, BOTH_NAMES).write(directory / f"{name}.pem")
        broker.properties.update(properties_of(directory, broker, pair))
        broker.start()
    for broker in cluster_of_module.brokers:
        broker.wait_ready(2)
    addresses = [
        {way: f"localhost:{certified if way == CERTIFICATE else sasl}" for way in WAYS}
        for sasl, certified in ports
    ]
    found = Secured(cluster_of_module, addresses[0], directory)
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
    until(lambda: all(gets_in(found, each) for each in addresses))
    yield found
    cluster_of_module.show()


def gets_in(secured: Secured, addresses: dict[str, str]) -> bool:
    """Whether this broker knows the user by each way, and the lists: it may learn of them later."""
    try:
        for way, address in addresses.items():
            with Admin({**secured.ours(way), "bootstrap.servers": address}) as admin:
                admin.describe_groups(["open-group"])
    except (BrokerError, RequestTimeoutError):
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


@pytest.mark.parametrize("way", WAYS)
def test_our_asyncio_clients(secured: Secured, way: str) -> None:
    properties, topic = secured.ours(way), new_topic(secured, f"open-asyncio-{way}")

    async def refused() -> None:
        async with AsyncProducer(properties) as producer:
            await producer.publish(Message("closed", value=b"value"))

    found = asyncio.run(clients.round_trip_in_loop(properties, topic, f"open-asyncio-{way}"))
    assert found == b"value"
    with pytest.raises(AuthorizationError):
        asyncio.run(refused())


def is_refused(call: Callable[[], object], *errors: type[BaseException]) -> bool:
    try:
        call()
    except errors:
        return True
    return False


@pytest.mark.parametrize("way", WAYS)
def test_our_clients(secured: Secured, way: str) -> None:
    topic = new_topic(secured, f"open-ours-{way}")
    with Producer(secured.ours(way)) as producer:
        producer.send(Message(topic, value=b"value")).result(60_000)
        refused = producer.send(Message("closed", value=b"value"))
        assert is_refused(lambda: refused.result(60_000), AuthorizationError)
    group = {"group.id": f"open-{way}", "auto.offset.reset": "earliest"}
    with Consumer({**secured.ours(way), **group}) as consumer:
        consumer.add_topic(topic)
        found: list[Any] = []
        until(lambda: bool(found.extend(consumer.poll(1000)) or found))
    assert [record.value for record in found] == [b"value"]
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("way", WAYS)
def test_librdkafka(secured: Secured, way: str) -> None:
    topic, settings = new_topic(secured, f"open-librdkafka-{way}"), secured.librdkafka(way)
    address = secured.addresses[way]
    assert clients.produce(address, topic, [b"a", b"b"], **settings) == [0, 1]
    group = {"group.id": "open-librdkafka"}
    assert clients.consume(address, topic, 2, **group, **settings) == [b"a", b"b"]
    refused = clients.produce_error(address, "closed", **settings)
    assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("way", WAYS)
def test_kafka_python(secured: Secured, way: str) -> None:
    topic, settings = new_topic(secured, f"open-kafka-python-{way}"), secured.python(way, KafkaPythonTokens())
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(60)
    assert is_refused(lambda: producer.send("closed", b"value").get(60), KafkaPythonTopicRefused)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    assert next(iter(consumer)).value == b"value"
    consumer.close()
    assert written_to_closed(secured) == 0


@pytest.mark.parametrize("way", WAYS)
def test_aiokafka(secured: Secured, way: str) -> None:
    topic = new_topic(secured, f"open-aiokafka-{way}")

    async def go() -> Any:
        settings = secured.python(way, AiokafkaTokens())
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


@pytest.fixture(scope="module")
def said_by_java(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What Java prints for each way. One program goes all of them: its start takes most of the time."""
    directory = tmp_path_factory.mktemp("java")
    command = driver_or_skip(directory, "Secured")
    files = {str(directory / f"{way}.properties"): way for way in WAYS}
    pairs = []
    for file, way in files.items():
        Path(file).write_text("".join(f"{name}={value}\n" for name, value in secured.java(way).items()))
        pairs += [file, new_topic(secured, f"open-java-{way}")]
    allowed_urls = (
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(secured.directory / 'token').as_uri()}"
    )
    done = subprocess.run(
        [command[0], allowed_urls, *command[1:], "closed", "open-java", *pairs],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    parts = [part.partition("\n") for part in done.stdout.split("file: ")[1:]]
    return {files[file]: printed for file, _, printed in parts}


@pytest.mark.parametrize("way", WAYS)
def test_java(secured: Secured, said_by_java: dict[str, str], way: str) -> None:
    lines = [line.partition("answer: ") for line in said_by_java[way].splitlines()]
    answers = [answer for _, is_answer, answer in lines if is_answer]
    assert answers == ["value", "TopicAuthorizationException"], said_by_java[way][-3000:]
    assert written_to_closed(secured) == 0
