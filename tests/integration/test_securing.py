"""A cluster is secured while clients use it, by the steps of docs/security.md as they are written: no request
of a client fails, and every record that was acknowledged is read.

What the page gives in a block is what the test gives brokers and a shell, but for names, ports and paths.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from confluent_kafka import Producer as ConfluentProducer

from holdfast_log import Consumer, Message, Producer
from holdfast_log.broker.tools.broker_process import BackgroundBroker, free_port
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import AuthorizationError, BrokerError
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration.waiting import until

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "security.md").read_text()
SECTION = PAGE.split("## From a running PLAINTEXT cluster to a secured one\n")[1].split("\n## ")[0]
STEPS = re.split(r"^\d\. ", SECTION, flags=re.MULTILINE)
USERS = ("admin", "broker", "shop", "bill")
BROKER_COUNT = 3
AT_ONCE = 20
"""Records that a writer sends before it waits for all of them."""
PROGRESS = 3 * AT_ONCE
TIMEOUT_S = 300


def block(step: int, language: str) -> str:
    """The block of commands or settings in a step of the page, without its indent."""
    (found,) = re.findall(rf"^   ```{language}\n(.*?)^   ```", STEPS[step], re.DOTALL | re.MULTILINE)
    return "".join(line.removeprefix("   ") for line in found.splitlines(keepends=True))


class Application(ABC, threading.Thread):
    """A client at work until it is stopped. Between two pieces of work it takes new settings: then it closes
    its connections and opens others."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.settings = settings
        self.values: list[bytes] = []
        """What was acknowledged, or read."""
        self.errors: list[BaseException] = []
        self.is_over = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                settings = self.settings
                with ExitStack() as stack:
                    work = self.opened(settings, stack)
                    while self.settings is settings and not self.is_over.is_set():
                        work()
        except BaseException as error:
            self.errors.append(error)

    @abstractmethod
    def opened(self, settings: dict[str, Any], stack: ExitStack) -> Callable[[], None]:
        """Open a client. Returns what does one piece of work with it."""

    def stop(self) -> None:
        self.is_over.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()

    def goes_on(self) -> Callable[[], bool]:
        """Whether the application has done more work since this call."""
        wanted = len(self.values) + PROGRESS

        def has() -> bool:
            assert self.errors == []
            return len(self.values) >= wanted

        return has


class OurWriter(Application):
    def opened(self, settings: dict[str, Any], stack: ExitStack) -> Callable[[], None]:
        producer = stack.enter_context(Producer({**settings, "acks": "all"}))

        def work() -> None:
            values = [f"ours {len(self.values) + each}".encode() for each in range(AT_ONCE)]
            sent = [producer.send(Message("orders", value=value)) for value in values]
            for each in sent:
                each.result(TIMEOUT_S * 1000)
            self.values += values

        return work


class StockWriter(Application):
    """librdkafka's producer."""

    def opened(self, settings: dict[str, Any], stack: ExitStack) -> Callable[[], None]:
        producer = ConfluentProducer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        failed: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        def work() -> None:
            values = [f"stock {len(self.values) + each}".encode() for each in range(AT_ONCE)]
            for value in values:
                producer.produce("orders", value, on_delivery=delivered)
            assert producer.flush(TIMEOUT_S) == 0
            assert failed == []
            self.values += values

        return work


class Reader(Application):
    def opened(self, settings: dict[str, Any], stack: ExitStack) -> Callable[[], None]:
        group = {"group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = stack.enter_context(Consumer({**settings, **group}))
        consumer.add_topic("orders")

        def work() -> None:
            self.values += [bytes(record.value) for record in consumer.poll(500) if record.value is not None]

        return work


class Securing:
    """The cluster, the settings by which its administrator reaches it at present, and the page's files."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.ports: dict[int, int] = {}
        """Of the listener CLIENTS, by broker."""
        self.secured_ports: dict[int, int] = {}
        """Of the listener BROKERS, by broker."""
        self.settings: dict[str, Any] = {}
        """Of the administrator."""
        (directory / "passwords").mkdir()
        for user in USERS:
            (directory / "passwords" / user).write_text(f"secret-of-{user}")
        (directory / "secrets.properties").write_text("broker=secret-of-broker\n")
        authority = Authority()
        authority.write(directory / "authorities.pem")
        authority.issue("broker", BOTH_NAMES).write(directory / "broker.pem")

    def begin(self) -> None:
        properties = {
            "offsets.topic.replication.factor": str(BROKER_COUNT),
            "group.initial.rebalance.delay.ms": "0",
            "min.insync.replicas": "2",
        }
        for broker in self.cluster.start(BROKER_COUNT, properties):
            self.ports[broker.broker_id], self.secured_ports[broker.broker_id] = free_port(), free_port()
        self.settings = {"bootstrap.servers": self.cluster.bootstrap}
        self.until_whole()
        with Admin(self.settings) as admin:
            admin.create_topics([NewTopic("orders", partitions=4, replication_factor=BROKER_COUNT)])
        self.until_whole()

    def until_whole(self) -> None:
        """Wait until every replica is in sync."""
        until(self.is_whole)

    def is_whole(self) -> bool:
        for broker in self.cluster.brokers:
            assert broker.running, broker.log[-3000:]
        try:
            with Admin(self.settings) as admin:
                is_known = len(admin.describe_cluster().nodes) == BROKER_COUNT
                topics = admin.describe_topics()
        except (BrokerError, ClientError):
            return False
        rows = [row for topic in topics for row in topic.partitions]
        return is_known and all(len(row.isr) == BROKER_COUNT for row in rows)

    def here(self, text: str, broker: BackgroundBroker | None = None) -> str:
        """What the page says, with this cluster's names, ports and paths."""
        broker = broker or self.cluster.brokers[0]
        for there, here in {
            "localhost:9092": broker.address,
            "localhost:9094": f"localhost:{self.ports[broker.broker_id]}",
            "10.0.0.1:19092": f"127.0.0.1:{broker.brokers_port}",
            "10.0.0.1:19094": f"127.0.0.1:{self.secured_ports[broker.broker_id]}",
            "//:9092": f"//127.0.0.1:{broker.port}",
            "//:9094": f"//localhost:{self.ports[broker.broker_id]}",
            "/etc/holdfast": str(self.directory),
        }.items():
            text = text.replace(there, here)
        return text

    def run(self, step: int) -> None:
        """Run the commands of a step."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(block(step, "bash"))],
            cwd=HOME,
            env={**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def roll(self, step: int, without: tuple[str, ...] = ()) -> None:
        """Restart each broker with the settings of a step, and without some others."""
        for broker in self.cluster.brokers:
            broker.stop()
            broker.properties.update(javaproperties.loads(self.here(block(step, "properties"), broker)))
            for name in without:
                del broker.properties[name]
            broker.start()
            self.until_whole()

    @property
    def secured(self) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports.values())

    def ours(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.directory / "authorities.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": f"secret-of-{user}",
        }

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "authorities.pem"),
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": f"secret-of-{user}",
        }


@pytest.fixture
def securing(cluster: Cluster, tmp_path: Path) -> Iterator[Securing]:
    directory = tmp_path / "etc"
    directory.mkdir()
    found = Securing(cluster, directory)
    found.begin()
    yield found


@pytest.mark.timeout(3600)
def test_no_client_notices_but_those_who_may_not(securing: Securing) -> None:
    opened = dict(securing.settings)
    applications = (OurWriter(opened), StockWriter(opened), Reader(opened))
    ours, stock, reader = applications

    def all_go_on() -> None:
        for has in [each.goes_on() for each in applications]:
            until(has)

    all_go_on()
    securing.run(1)
    securing.roll(2)
    all_go_on()
    securing.roll(3)
    all_go_on()

    ours.settings = securing.ours("shop")
    all_go_on()
    stock.settings = securing.librdkafka("shop")
    all_go_on()
    reader.settings = securing.ours("bill")
    all_go_on()
    securing.settings = securing.ours("admin")
    securing.until_whole()

    securing.roll(5)
    properties = "".join(f"{name}={value}\n" for name, value in securing.settings.items())
    (securing.directory / "admin.properties").write_text(properties)
    all_go_on()
    securing.run(5)
    all_go_on()
    securing.roll(6, without=("broker.listeners.trusted", "allow.everyone.if.no.acl.found"))
    all_go_on()

    ours.stop()
    stock.stop()
    written = {*ours.values, *stock.values}
    until(lambda: written <= set(reader.values) or reader.errors != [])
    reader.stop()
    assert [each.errors for each in applications] == [[], [], []]
    assert set(reader.values) == written
    assert_closed(securing)


def assert_closed(securing: Securing) -> None:
    """Whoever has no right gets nothing, and no listener is open without authentication."""
    for broker in securing.cluster.brokers:
        with (
            Admin({"bootstrap.servers": broker.address, "bootstrap.timeout.ms": "500"}) as admin,
            pytest.raises(ClientError),
        ):
            admin.list_topics()
    with Producer(securing.ours("bill")) as producer, pytest.raises(AuthorizationError):
        producer.send(Message("orders", value=b"by who only reads")).result(TIMEOUT_S * 1000)
    with Admin(securing.ours("shop")) as admin, pytest.raises(AuthorizationError):
        admin.describe_acls()
