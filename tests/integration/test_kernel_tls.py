"""A broker on a kernel that encrypts what it sends: large records to real clients over TLS 1.2 and 1.3.

It needs a kernel that has it; scripts/kernel-tls-test.sh boots one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast_log.broker.network.tls.kernel import lacks
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.consumer import Consumer as HoldfastConsumer
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration.monitored import MonitoredAddress
from tests.integration.waiting import until

pytestmark = pytest.mark.skipif(
    lacks() is not None and "HOLDFAST_KERNEL_TLS" not in os.environ,
    reason=f"this system cannot encrypt: {lacks()}. scripts/kernel-tls-test.sh runs the test",
)
TIMEOUT_S = 120
VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Encrypting:
    """A broker with a listener for each version of TLS."""

    broker: BackgroundBroker
    page: MonitoredAddress
    trusted: str
    ports: dict[str, int]

    def client(self, version: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.ports[version]}",
            "security.protocol": "ssl",
            "ssl.ca.location": self.trusted,
        }

    def by_kernel(self, version: str) -> float:
        name = "holdfast_tls_connections_total"
        return self.page.metrics().of(name, listener=_listener(version), encryption="kernel")


def _listener(version: str) -> str:
    return version.replace("TLSv1.", "SECURE")


@pytest.fixture(scope="module")
def encrypting(cluster_of_module: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypting]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    trusted = authority.write(directory / "authority.pem")
    page = MonitoredAddress()
    broker = cluster_of_module.add(page.settings)
    ports = {version: free_port() for version in VERSIONS}
    names = {version: _listener(version) for version in VERSIONS}
    secure = ",".join(f"{names[version]}://localhost:{ports[version]}" for version in VERSIONS)
    protocols = ",".join(f"{name}:SSL" for name in names.values())
    broker.properties |= {
        "listeners": f"PLAINTEXT://{HOST}:{broker.port},{secure},INTERNAL://{HOST}:{broker.brokers_port}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,{protocols}",
        "ssl.keystore.location": authority.issue("broker", BOTH_NAMES).write(directory / "broker.pem"),
        "message.max.bytes": "6000000",
        "ssl.kernel.tls": "auto",
        **{f"listener.name.{names[each].lower()}.ssl.enabled.protocols": each for each in VERSIONS},
    }
    broker.start()
    broker.wait_ready(1)
    yield Encrypting(broker, page, trusted, ports)
    cluster_of_module.show()


def _values(seed: int) -> list[bytes]:
    """Records from a few bytes to 5 MB, 60 MB together."""
    draw = random.Random(seed)
    sizes = [draw.choice((10, 1000, 30_000, 300_000)) for _ in range(400)] + [5_000_000] * 4
    draw.shuffle(sizes)
    return [draw.randbytes(size) for size in sizes]


def _produced(client: dict[str, Any], topic: str, values: list[bytes]) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    producer = Producer({**client, "acks": "all", "message.max.bytes": 6_000_000})
    errors: list[Any] = []
    for value in values:
        while True:
            try:
                producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors


def _by_librdkafka(client: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**client, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    until(lambda: len(found.__iadd__([each.value() for each in consumer.consume(1000, 1)])) >= count)
    consumer.close()
    return found


def _by_holdfast(client: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    properties = {
        "bootstrap.servers": client["bootstrap.servers"],
        "security.protocol": "SSL",
        "ssl.truststore.location": client["ssl.ca.location"],
        "group.id": f"{topic}-holdfast",
        "auto.offset.reset": "earliest",
    }
    found: list[bytes | None] = []
    with HoldfastConsumer(properties) as consumer:
        consumer.add_topic(topic)
        until(lambda: len(found.__iadd__([each.value for each in consumer.poll(1000)])) >= count)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_real_clients_read_from_the_kernel_what_they_have_written(
    encrypting: Encrypting, version: str
) -> None:
    values = _values(17)
    client = encrypting.client(version)
    topic = f"over-{version}"
    _produced(client, topic, values)
    before = encrypting.by_kernel(version)
    assert before > 0
    assert _by_librdkafka(client, topic, len(values)) == values
    assert _by_holdfast(client, topic, len(values)) == values
    assert encrypting.by_kernel(version) > before
    metrics = encrypting.page.metrics()
    assert not metrics.of("holdfast_tls_connections_total", listener=_listener(version), encryption="openssl")
    assert (
        f"What is sent on the listener {_listener(version)} is encrypted by the kernel"
        in encrypting.broker.log
    )
