"""Quotas set by the script and by the admin client hold stock clients on every broker, at once."""

from __future__ import annotations

import subprocess
import time

import pytest
from confluent_kafka import Producer, ThrottleEvent

from holdfast_log.clients.admin import ANY_NAME, Admin, ClientQuotaEntity, NewTopic
from holdfast_log.protocol.errors import InvalidRequestError, QuotaExceededError
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic
from tests.integration.programs import run_module
from tests.integration.raw_socket import CLIENT_ID, RawSocket
from tests.integration.waiting import until
from tests.models.batches import batch

APP = ClientQuotaEntity.of(client_id="app")


def configs(broker: Cluster | BackgroundBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    bootstrap = broker.bootstrap if isinstance(broker, Cluster) else broker.address
    return run_module("holdfast_log.clients.tools.configs", "--bootstrap-server", bootstrap, *arguments)


def quotas_of(admin: Admin, entity: ClientQuotaEntity) -> dict[str, float]:
    return admin.describe_client_quotas(dict(entity.components), strict=True).get(entity, {})


def test_a_quota_holds_a_stock_producer_on_every_broker_without_an_error(cluster: Cluster) -> None:
    cluster.start(2)
    create_topic(cluster.bootstrap, "events", partitions=2)
    altered = configs(cluster, "--client", "app", "--alter", "--add-config", "producer_byte_rate=20000")
    assert altered.returncode == 0, altered.stderr
    assert altered.stdout == "Completed updating config for client-id 'app'.\n"
    throttled_by: set[int] = set()
    errors: list[object] = []

    def throttled(event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            throttled_by.add(event.broker_id)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "app",
            "linger.ms": 0,
            "throttle_cb": throttled,
            "on_delivery": lambda error, message: errors.append(error) if error else None,
        }
    )
    sent = 0

    def is_held_by_both() -> bool:
        nonlocal sent
        for partition in (0, 1):
            producer.produce("events", bytes(5_000), partition=partition)
        sent += 1
        producer.flush(TIMEOUT_S)
        return len(throttled_by) == 2

    until(is_held_by_both)
    configs(cluster, "--client", "app", "--alter", "--delete-config", "producer_byte_rate")
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    assert len(consume(cluster.bootstrap, "events", sent, partition=1)) == sent


def test_a_client_that_ignores_the_throttle_time_is_held(broker: BackgroundBroker, topic: str) -> None:
    create_topic(broker.address, topic)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        entity, quota = ClientQuotaEntity.of(client_id=CLIENT_ID), {"producer_byte_rate": 4_000.0}
        admin.alter_client_quotas({entity: quota})
        assert quotas_of(admin, entity) == quota  # The broker has read it for this answer, if not before.
        data = PartitionProduceData(index=0, records=batch(bytes(10_000)))
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        with RawSocket(broker.port) as client:
            asked_s = time.monotonic()
            first = client.ask(request)
            assert first is not None and 2_000 < first.throttle_time_ms < 3_000
            second = client.ask(request)
            assert second is not None and second.throttle_time_ms > 0
            assert time.monotonic() - asked_s > first.throttle_time_ms / 1000 - 0.1


def test_quotas_of_every_kind_of_entity_are_set_shown_and_removed(broker: BackgroundBroker) -> None:
    both = ("--entity-type", "users", "--entity-name", "anna b", "--entity-type", "clients")
    for entity, added in (
        (("--user", "anna b"), "producer_byte_rate=1000,consumer_byte_rate=2000"),
        ((*both, "--entity-default"), "request_percentage=12.5"),
        (("--client-defaults",), "controller_mutation_rate=3"),
        (("--ip", "192.0.2.7"), "connection_creation_rate=4"),
    ):
        altered = configs(broker, *entity, "--alter", "--add-config", added)
        assert altered.returncode == 0, altered.stderr
    for entity, shown in (
        (
            ("--entity-type", "users"),
            "user-principal 'anna b' are consumer_byte_rate=2000.0, producer_byte_rate=1000.0",
        ),
        (both, "user-principal 'anna b', the default client-id are request_percentage=12.5"),
        (("--client-defaults",), "the default client-id are controller_mutation_rate=3.0"),
        (("--entity-type", "ips"), "ip '192.0.2.7' are connection_creation_rate=4.0"),
    ):
        described = configs(broker, *entity, "--describe")
        assert described.stdout == f"Quota configs for {shown}\n", described.stderr
    with Admin({"bootstrap.servers": broker.address}) as admin:
        entity_pair = ClientQuotaEntity.of(user="anna b", client_id=None)
        assert quotas_of(admin, entity_pair) == {"request_percentage": 12.5}
        assert len(admin.describe_client_quotas({"user": ANY_NAME})) == 2
        admin.alter_client_quotas({entity_pair: {"request_percentage": None}})
        assert quotas_of(admin, entity_pair) == {}
    for entity, deleted in (
        (("--user", "anna b"), "producer_byte_rate,consumer_byte_rate"),
        (("--client-defaults",), "controller_mutation_rate"),
        (("--ip", "192.0.2.7"), "connection_creation_rate"),
    ):
        assert configs(broker, *entity, "--alter", "--delete-config", deleted).returncode == 0
    assert configs(broker, "--entity-type", "users", "--describe").stdout == ""


def test_a_quota_that_is_not_allowed_is_refused(broker: BackgroundBroker) -> None:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        with pytest.raises(InvalidRequestError, match="client-id 'app': unknown quota 'speed'"):
            admin.alter_client_quotas({APP: {"speed": 1.0}})
        with pytest.raises(InvalidRequestError, match=r"producer_byte_rate=-5\.0 is not allowed"):
            admin.alter_client_quotas({APP: {"producer_byte_rate": -5}}, validate_only=True)
        admin.alter_client_quotas({APP: {"producer_byte_rate": 5}}, validate_only=True)
        assert quotas_of(admin, APP) == {}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--entity-type", "clients", "--alter", "--add-config", "a=1"), "--alter needs a name"),
        (("--client", "a", "--alter"), "--alter needs --add-config"),
        (("--client", "a", "--alter", "--add-config", "a=much"), "a='much' is not a number"),
        (("--client", "a", "--ip", "1.2.3.4", "--describe"), "quotas are of users, of clients"),
        (("--client", "a", "--topic", "t", "--describe"), "only users and clients can be given together"),
        (("--client", "a", "--entity-type", "users", "--describe"), "cannot be combined"),
        (("--entity-type", "topics", "--entity-default", "--describe"), "topics have no --entity-default"),
    ],
)
def test_contradictory_arguments_are_refused(
    broker: BackgroundBroker, arguments: tuple[str, ...], text: str
) -> None:
    refused = configs(broker, *arguments)
    assert refused.returncode == 2
    assert text in refused.stderr


def test_connections_that_come_too_fast_are_served_later(cluster: Cluster) -> None:
    (broker,) = cluster.start(1)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.alter_client_quotas({ClientQuotaEntity.of(ip="127.0.0.1"): {"connection_creation_rate": 1}})

        def is_delayed() -> bool:
            """Whether the second of two new connections is served about a second after the first."""
            began_s = time.monotonic()
            with RawSocket(broker.port) as first, RawSocket(broker.port) as second:
                first.call(ApiVersionsRequest())
                second.call(ApiVersionsRequest())
            return time.monotonic() - began_s > 0.7

        until(is_delayed)
        admin.alter_client_quotas({ClientQuotaEntity.of(ip="127.0.0.1"): {"connection_creation_rate": None}})
        rate = ("--entity-type", "brokers", "--entity-default", "--alter", "--add-config")
        altered = configs(broker, *rate, "max.connection.creation.rate=1")
        assert altered.returncode == 0, altered.stderr
        until(is_delayed)


def test_a_client_that_creates_too_many_partitions_is_refused_and_may_try_again(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, {"controller.quota.window.num": "1"})
    with Admin({"bootstrap.servers": broker.address, "client.id": "app"}) as admin:
        admin.alter_client_quotas({APP: {"controller_mutation_rate": 0.5}})
        refusals: list[QuotaExceededError] = []
        created: list[str] = []

        def is_refused() -> bool:
            name = f"topic-{len(created)}"
            try:
                admin.create_topics([NewTopic(name, partitions=2)], retry_on_quota_violation=False)
                created.append(name)
            except QuotaExceededError as error:
                refusals.append(error)
            return bool(refusals)

        until(is_refused)
        assert "controller_mutation_rate" in str(refusals[0])
        admin.create_topics([NewTopic("late", partitions=1)])  # Asks again until the quota allows it.
        assert {"late", *created} <= set(admin.list_topics())
