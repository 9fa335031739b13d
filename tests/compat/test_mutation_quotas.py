"""controller_mutation_rate (KIP-599) with stock admin clients: librdkafka's requests are of versions from
before that KIP, so they are carried out and the client is held back; Java's are refused, and tried again."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.apache_kafka import KRAFT_VERSION
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, ClientQuotaEntity
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.integration.waiting import until

KEY = "controller_mutation_rate"
RATE = 2.0
"""Partitions a second. Twice as many may be created at once, since there are two windows of a second."""
WAIT_S = 120.0


@pytest.fixture
def broker(cluster: Cluster) -> BackgroundBroker:
    (broker,) = cluster.start(1, {"controller.quota.window.num": "2"})
    with Admin({"bootstrap.servers": broker.address}) as admin:
        for client_id in ("app", "java"):
            entity = ClientQuotaEntity.of(client_id=client_id)
            admin.alter_client_quotas({entity: {KEY: RATE}})
    return broker


def admin_of(broker: BackgroundBroker, client_id: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, "client.id": client_id, "log_level": 0})


def create(admin: AdminClient, name: str, partitions: int) -> None:
    (created,) = admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=WAIT_S).values()
    created.result(WAIT_S)


def test_librdkafka_creates_grows_and_deletes_beyond_the_quota_and_is_held_back(
    broker: BackgroundBroker,
) -> None:
    client, other = admin_of(broker, "app"), admin_of(broker, "other")
    client.list_topics(timeout=WAIT_S)  # It is connected.
    for act, partitions in (
        (lambda: create(client, "one", 10), 10),
        (lambda: client.create_partitions([NewPartitions("one", 18)])["one"].result(WAIT_S), 8),
        (lambda: client.delete_topics(["one"], operation_timeout=30)["one"].result(WAIT_S), 18),
    ):
        began_s = time.monotonic()
        act()
        create(other, f"beside-{partitions}", 1)  # The quota is that of one client id.
        client.list_topics(timeout=WAIT_S)
        # So long it takes to pay off what is beyond the quota, from the request on.
        assert time.monotonic() - began_s >= (partitions - 2 * RATE) / RATE - 0.1
        until(lambda: f"over its {KEY}" in broker.log)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command that runs the driver. Skips the test before a broker is started if there is no Kafka."""
    return driver_or_skip(tmp_path, "MutationQuota", KRAFT_VERSION)


def test_java_is_refused_what_is_beyond_the_quota_and_succeeds_by_trying_again(
    command: list[str], broker: BackgroundBroker
) -> None:
    done = subprocess.run(
        [*command, broker.address, "java"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "created java-first",
        "refused java-refused for a time: true",
        "exists: false",
        "created java-refused by trying again",
    ]
