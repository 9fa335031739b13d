"""SASL against real brokers, ZooKeeper and stock clients: who gets in, who does not, and what passwords cost.

Each broker has three listeners: one without SASL, by which the test makes users, one with SASL for clients,
and the brokers' own, at which brokers authenticate to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from kazoo.client import KazooClient

from holdfast_log import Consumer, Message, Producer
from holdfast_log.aio import AsyncAdmin
from holdfast_log.broker.tools.broker_process import BackgroundBroker, free_port
from holdfast_log.clients.admin import (
    Admin,
    ClientQuotaEntity,
    NewScramCredential,
    NewTopic,
    OldScramCredential,
)
from holdfast_log.protocol.errors import AuthenticationError, ErrorCode
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.callers import ScramCaller, ScramPasswords
from holdfast_log.protocol.sasl.mechanisms import MECHANISMS, OAUTHBEARER, PLAIN
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS, parse_server_first
from tests.certificates import Authority
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until
from tests.key_server import published

OFFERED = [each for each in MECHANISMS if each != OAUTHBEARER]
KEY = ec.generate_private_key(ec.SECP256R1())
PASSWORD = "correct horse, battery=staple"
USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    f'password="of brokers" user_broker="of brokers" user_alice="{PASSWORD}";'
)
SESSION_MS = 10_000


@dataclass(frozen=True)
class Secured:
    """Two brokers, and where their SASL listeners are."""

    cluster: Cluster
    ports: tuple[int, int]

    @property
    def open(self) -> str:
        """The address without SASL."""
        return self.cluster.brokers[0].address

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"


def public_keys() -> bytes:
    """The public key of who issues tokens, as that publishes it."""
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    return json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}).encode()


def key_file(broker: BackgroundBroker) -> Path:
    broker.directory.mkdir(parents=True, exist_ok=True)
    path = broker.directory / "keys.json"
    path.write_bytes(public_keys())
    return path


def token(key: Any = KEY) -> str:
    claims = {"sub": "alice", "aud": "kafka", "exp": int(time.time()) + 36_000}
    return jwt.encode(claims, key, "ES256", {"kid": "one"})


def sasl_listeners(broker: BackgroundBroker, port: int) -> dict[str, str]:
    return {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port},"
            f"INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": ",".join(OFFERED),
        "listener.name.clients.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": key_file(broker).as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "listener.name.clients.plain.sasl.jaas.config": USERS,
        "listener.name.internal.plain.sasl.jaas.config": USERS,
        "connections.max.reauth.ms": str(SESSION_MS),
        "offsets.topic.replication.factor": "2",
    }


@pytest.fixture(scope="module")
def keys_over_https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings of a broker that fetches the keys from a server with a certificate."""
    directory, authority = tmp_path_factory.mktemp("issuer"), Authority()
    authority.issue("issuer", ("localhost",)).write(directory / "issuer.pem")
    with published(public_keys(), directory / "issuer.pem") as url:
        yield {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.truststore.location": authority.write(directory / "trusted.pem"),
        }


@pytest.fixture(scope="module")
def secured(cluster_of_module: Cluster, keys_over_https: dict[str, str]) -> Iterator[Secured]:
    """The first broker, to which clients connect, has the keys from a server, the second one from a file."""
    ports = []
    for number in range(2):
        broker, port = cluster_of_module.add(), free_port()
        broker.properties |= sasl_listeners(broker, port) | ({} if number else keys_over_https)
        ports.append(port)
        broker.start()
    for broker in cluster_of_module.brokers:
        broker.wait_ready(2)
    found = Secured(cluster_of_module, (ports[0], ports[1]))
    with Admin({"bootstrap.servers": found.open}) as admin:
        admin.alter_scram_credentials(
            NewScramCredential("alice", PASSWORD, mechanism) for mechanism in SCRAM_MECHANISMS
        )
        admin.create_topics([NewTopic("shared", partitions=1, replication_factor=2)])
    for port in ports:
        until(lambda port=port: gets_in(f"127.0.0.1:{port}"))  # type: ignore[misc]
    yield found
    cluster_of_module.show()


def as_user(bootstrap: str, mechanism: str = PLAIN, user: str = "alice", password: str = PASSWORD) -> Any:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def gets_in(bootstrap: str) -> bool:
    """Whether the user of the fixture may log in by each mechanism: a broker may not know it yet."""
    try:
        for mechanism in OFFERED:
            with Admin(as_user(bootstrap, mechanism)) as admin:
                admin.list_topics()
    except AuthenticationError:
        return False
    return True


def new_topic(secured: Secured, name: str) -> str:
    with Admin({"bootstrap.servers": secured.open}) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=2)])
    return name


# -- clients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", OFFERED)
def test_our_clients_get_in(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured, f"ours-{mechanism}")
    with Producer(as_user(secured.bootstrap, mechanism)) as producer:
        producer.send(Message(topic, value=b"value")).result(60_000)
    group = {"group.id": f"g-{mechanism}", "auto.offset.reset": "earliest"}
    with Consumer({**as_user(secured.bootstrap, mechanism), **group}) as consumer:
        consumer.add_topic(topic)
        found: list[Any] = []
        until(lambda: bool(found.extend(consumer.poll(1000)) or found))
    assert [record.value for record in found] == [b"value"]


@pytest.mark.parametrize("mechanism", [*OFFERED, OAUTHBEARER])
def test_our_asyncio_clients_get_in(secured: Secured, tmp_path: Path, mechanism: str) -> None:
    properties = as_user(secured.bootstrap, mechanism)
    if mechanism == OAUTHBEARER:
        (tmp_path / "token").write_text(token())
        properties = {**properties, "sasl.oauthbearer.token.file": str(tmp_path / "token")}
        del properties["sasl.username"], properties["sasl.password"]

    assert asyncio.run(clients.round_trip_in_loop(properties, f"asyncio-{mechanism}")) == b"value"


def test_an_asyncio_client_with_a_wrong_password_is_told_so(secured: Secured) -> None:
    async def go() -> None:
        async with AsyncAdmin(as_user(secured.bootstrap, PLAIN, password="wrong")) as admin:
            await admin.list_topics()

    with pytest.raises(AuthenticationError):
        asyncio.run(go())


@pytest.mark.parametrize("mechanism", OFFERED)
def test_librdkafka_gets_in(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured, f"librdkafka-{mechanism}")
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    assert clients.produce(secured.bootstrap, topic, [b"a", b"b"], **sasl) == [0, 1]
    assert clients.consume(secured.bootstrap, topic, 2, **sasl) == [b"a", b"b"]


@pytest.mark.parametrize("mechanism", OFFERED)
def test_kafka_python_gets_in(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured, f"kafka-python-{mechanism}")
    sasl = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**sasl)
    producer.send(topic, b"value").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **sasl)
    assert next(iter(consumer)).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", OFFERED)
def test_aiokafka_gets_in(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured, f"aiokafka-{mechanism}")
    sasl = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }

    async def go() -> Any:
        producer = AIOKafkaProducer(**sasl)
        await producer.start()
        await producer.send_and_wait(topic, b"value")
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **sasl)
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), 60)
        await consumer.stop()
        return record.value

    assert asyncio.run(go()) == b"value"


@pytest.mark.parametrize("mechanism", OFFERED)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_others_do_not_get_in_and_learn_why(
    secured: Secured, mechanism: str, user: str, password: str
) -> None:
    with (
        Admin(as_user(secured.bootstrap, mechanism, user, password)) as admin,
        pytest.raises(AuthenticationError) as raised,
    ):
        admin.list_topics()
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    errors: list[Any] = []
    producer = ConfluentProducer(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
        }
    )
    until(lambda: producer.poll(0.1) >= 0 and any("AUTHENTICATION" in each.name() for each in errors))


def test_our_clients_get_in_with_a_token(secured: Secured, tmp_path: Path) -> None:
    topic, path = new_topic(secured, "tokens-ours"), tmp_path / "token"
    sasl = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": OAUTHBEARER,
        "sasl.oauthbearer.token.file": str(path),
    }
    path.write_text(token())
    with Producer(sasl) as producer:
        producer.send(Message(topic, value=b"value")).result(60_000)
    path.write_text(token(ec.generate_private_key(ec.SECP256R1())))
    with Admin(sasl) as admin, pytest.raises(AuthenticationError, match="invalid_token"):
        admin.list_topics()


def test_librdkafka_gets_in_with_a_token(secured: Secured) -> None:
    topic = new_topic(secured, "tokens-librdkafka")
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": OAUTHBEARER,
        "oauth_cb": lambda _: (token(), time.time() + 600),
    }
    assert clients.produce(secured.bootstrap, topic, [b"a", b"b"], **sasl) == [0, 1]


def test_kafka_python_gets_in_with_a_token(secured: Secured) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token()

    topic = new_topic(secured, "tokens-kafka-python")
    producer = KafkaProducer(
        bootstrap_servers=secured.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=OAUTHBEARER,
        sasl_oauth_token_provider=Provider(),
    )
    producer.send(topic, b"value").get(60)
    producer.close()


def test_a_client_without_sasl_is_told_what_the_port_may_want(secured: Secured) -> None:
    properties = {"bootstrap.servers": secured.bootstrap, "bootstrap.timeout.ms": "3000"}
    with Admin(properties) as admin, pytest.raises(Exception, match="SASL"):
        admin.list_topics()


def test_clients_stay_connected_beyond_the_end_of_their_session(secured: Secured) -> None:
    """Two sessions long: a client that did not authenticate again would lose its connection."""
    topic = new_topic(secured, "sessions")
    ends = time.monotonic() + 2.2 * SESSION_MS / 1000
    with Producer(as_user(secured.bootstrap, "SCRAM-SHA-512")) as producer:
        sent = 0
        while time.monotonic() < ends:
            producer.send(Message(topic, value=b"value")).result(60_000)
            sent += 1
        assert producer.feedback().connection.connections_lost == 0
    assert sent > 0


# -- brokers -------------------------------------------------------------------------------------------------


def test_brokers_know_each_other_by_their_user(secured: Secured) -> None:
    """A replica that could not fetch would leave the in-sync set; one that is no broker may not fetch."""
    topic = new_topic(secured, "replicated")
    clients.produce(secured.open, topic, [b"a"] * 10, acks="all")
    with Admin({"bootstrap.servers": secured.open}) as admin:
        (partition,) = admin.describe_topics([topic])[0].partitions
    assert sorted(partition.isr) == sorted(partition.replicas) and len(partition.replicas) == 2


# -- hostile clients -----------------------------------------------------------------------------------------


def test_nothing_but_sasl_is_answered(secured: Secured) -> None:
    with RawSocket(secured.ports[0]) as client:
        assert client.ask(MetadataRequest(topics=None)) is None
    with RawSocket(secured.ports[0]) as client:
        client.call(SaslHandshakeRequest(mechanism=PLAIN))
        assert client.ask(MetadataRequest(topics=None)) is None


def test_a_proof_is_of_no_use_to_who_has_recorded_it(secured: Secured) -> None:
    caller = ScramCaller(ScramPasswords(SCRAM_MECHANISMS["SCRAM-SHA-256"], "alice", PASSWORD))
    recorded = []
    with RawSocket(secured.ports[0]) as client:
        client.call(SaslHandshakeRequest(mechanism=caller.mechanism))
        token: bytes | None = caller.first()
        while token is not None:
            recorded.append(token)
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token))
            assert answer.error_code == 0 and answer.session_lifetime_ms in (0, SESSION_MS)
            token = caller.answered(bytes(answer.auth_bytes))
        assert client.call(MetadataRequest(topics=None)).brokers
    with RawSocket(secured.ports[0]) as client:
        client.call(SaslHandshakeRequest(mechanism=caller.mechanism))
        assert client.call(SaslAuthenticateRequest(auth_bytes=recorded[0])).error_code == 0
        refused = client.call(SaslAuthenticateRequest(auth_bytes=recorded[1]))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_hung_up()


def test_users_cannot_be_found_out_by_their_salts(secured: Secured) -> None:
    def salt(port: int, user: str) -> Any:
        caller = ScramCaller(ScramPasswords(SCRAM_MECHANISMS["SCRAM-SHA-512"], user, "x"))
        with RawSocket(port) as client:
            client.call(SaslHandshakeRequest(mechanism=caller.mechanism))
            answer = client.call(SaslAuthenticateRequest(auth_bytes=caller.first()))
            found = parse_server_first(bytes(answer.auth_bytes))
            return found.salt, found.iterations

    one, other = secured.ports
    real, decoy = salt(one, "alice"), salt(one, "nobody")
    assert real == salt(one, "alice") == salt(other, "alice")
    assert decoy == salt(one, "nobody") == salt(other, "nobody")
    assert decoy[1] == real[1] and len(decoy[0]) == len(real[0])


def test_random_bytes_harm_nobody(secured: Secured) -> None:
    generator = random.Random(3)
    for number in range(60):
        with socket.create_connection(("127.0.0.1", secured.ports[0]), 60) as client:
            if number % 2:
                handshake = bytes.fromhex("00000011 0011 0001 00000001 0001 78 0005") + b"PLAIN"
                client.sendall(handshake)
            with contextlib.suppress(OSError):  # The broker may have closed the connection by then.
                client.sendall(generator.randbytes(generator.randrange(1, 4000)))
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
    assert gets_in(secured.bootstrap)


# -- credentials ---------------------------------------------------------------------------------------------


def test_a_credential_stands_beside_quotas_and_neither_shows_the_other(secured: Secured) -> None:
    quota = {ClientQuotaEntity.of(user="bob"): {"producer_byte_rate": 1e6}}
    with Admin({"bootstrap.servers": secured.open}) as admin:
        admin.alter_client_quotas(quota)
        admin.alter_scram_credentials([NewScramCredential("bob", "geheim", "SCRAM-SHA-256", 8192)])
        assert admin.describe_client_quotas({"user": "bob"}) == quota
        assert admin.describe_scram_credentials(["bob"]) == {"bob": {"SCRAM-SHA-256": 8192}}
        admin.alter_client_quotas({ClientQuotaEntity.of(user="bob"): {"producer_byte_rate": None}})
        assert admin.describe_scram_credentials(["bob"]) == {"bob": {"SCRAM-SHA-256": 8192}}
        admin.alter_client_quotas(quota)
        admin.alter_scram_credentials([OldScramCredential("bob", "SCRAM-SHA-256")])
        assert admin.describe_client_quotas({"user": "bob"}) == quota
        assert "bob" not in admin.describe_scram_credentials()
        with pytest.raises(Exception, match="does not exist"):
            admin.alter_scram_credentials([OldScramCredential("bob", "SCRAM-SHA-256")])


def test_kafkas_admin_sets_passwords_that_zookeeper_has_in_kafkas_format(secured: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": secured.open})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("dora d", info, b"geheim")
    for outcome in admin.alter_user_scram_credentials([change]).values():
        outcome.result(60)
    described = admin.describe_user_scram_credentials(["dora d"])["dora d"].result(60)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 4096)
    ]
    zookeeper = KazooClient(secured.cluster.zookeeper_connect)
    zookeeper.start(60)
    try:
        data, _ = zookeeper.get("/config/users/dora%20d")
    finally:
        zookeeper.stop()
        zookeeper.close()
    assert data.startswith(b'{"version":1,"config":{"SCRAM-SHA-512":"salt=')
    assert b"geheim" not in data and b"iterations=4096" in data

    def logs_in() -> bool:
        try:
            with Admin(as_user(secured.bootstrap, "SCRAM-SHA-512", "dora d", "geheim")) as client:
                return bool(client.list_topics())
        except AuthenticationError:
            return False  # The broker has not read the notification yet.

    until(logs_in)


def test_a_user_who_is_removed_is_gone_from_every_broker(secured: Secured) -> None:
    mechanism = "SCRAM-SHA-512"

    def logged_in(port: int) -> RawSocket | None:
        caller = ScramCaller(ScramPasswords(SCRAM_MECHANISMS[mechanism], "frank", "geheim"))
        client = RawSocket(port)
        client.call(SaslHandshakeRequest(mechanism=mechanism))
        token: bytes | None = caller.first()
        while token is not None:
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                client.close()
                return None  # The broker has not read the notification yet.
            token = caller.answered(bytes(answer.auth_bytes))
        return client

    def once_known(port: int) -> RawSocket:
        found: list[RawSocket] = []
        until(lambda: bool(found.extend(each for each in [logged_in(port)] if each is not None) or found))
        return found[0]

    with Admin({"bootstrap.servers": secured.open}) as admin:
        admin.alter_scram_credentials([NewScramCredential("frank", "geheim", mechanism)])
        connected = [once_known(port) for port in secured.ports]
        admin.alter_scram_credentials([OldScramCredential("frank", mechanism)])
    for client in connected:
        assert client.is_hung_up()
        client.close()


@pytest.mark.parametrize("iterations", [4095, 16_385])
def test_brokers_refuse_iterations_outside_kafkas_bounds(secured: Secured, iterations: int) -> None:
    admin = AdminClient({"bootstrap.servers": secured.open})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    (outcome,) = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("eve", info, b"x", b"salt")]
    ).values()
    with pytest.raises(Exception, match="iterations"):
        outcome.result(60)
