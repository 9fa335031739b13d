"""A source of Kafka Connect with exactly-once support (KIP-618), under kill -9 of worker and brokers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from benchmarks.apache_kafka import CONNECT, VERSION
from holdfast_log.clients.admin import Admin
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from tests.cluster import Cluster
from tests.compat.apache_kafka import java_or_skip
from tests.compat.exactly_once import SETTINGS, CommittedReader, running
from tests.integration.clients import create_topic
from tests.integration.waiting import until, until_in_sync

pytestmark = pytest.mark.timeout(1500)

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
BURSTS = 20
LINES = 10
"""Lines of a burst. The source reads what it finds, and makes one transaction of it."""
WAIT_S = 400
REQUEST_TIMEOUT_S = 90
CONNECTOR = {
    "connector.class": "FileStreamSource",
    "tasks.max": "1",
    "topic": "lines",
    "exactly.once.support": "required",
    "transaction.boundary": "poll",
}


def worker_settings(bootstrap: str, rest_port: int) -> dict[str, str]:
    """Settings of a worker whose sources are exactly once, with its three topics on three brokers."""
    text = "org.apache.kafka.connect.storage.StringConverter"
    topics = {
        f"{use}.storage.{setting}": value
        for use in ("config", "offset", "status")
        for setting, value in (("topic", f"connect-{use}"), ("replication.factor", "3"))
    }
    return topics | {
        "bootstrap.servers": bootstrap,
        "group.id": "lines-of-a-file",
        "exactly.once.source.support": "enabled",
        "key.converter": text,
        "value.converter": text,
        "producer.transaction.timeout.ms": "600000",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
        "scheduled.rebalance.max.delay.ms": "0",
        "listeners": f"http://127.0.0.1:{rest_port}",
    }


def transactional_ids(bootstrap: str) -> list[str]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        return [each.transactional_id for each in admin.list_transactions()]


class Connector:
    """The source, as a worker's REST interface has it."""

    def __init__(self, rest_port: int) -> None:
        self._url = f"http://127.0.0.1:{rest_port}/connectors/lines"

    def accepts(self, config: dict[str, str]) -> bool:
        """Whether a worker that is ready has taken the configuration."""
        request = urllib.request.Request(
            f"{self._url}/config",
            json.dumps(config).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        return self._answer(request) is not None

    def is_running(self) -> bool:
        status = self._answer(urllib.request.Request(f"{self._url}/status"))
        return status is not None and [task["state"] for task in status["tasks"]] == ["RUNNING"]

    @staticmethod
    def _answer(request: urllib.request.Request) -> dict[str, list[dict[str, str]]] | None:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
                found: dict[str, list[dict[str, str]]] = json.load(response)
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None


class Lines:
    """The file that the source reads, and what of it has been read back from the cluster."""

    def __init__(self, path: Path, bootstrap: str) -> None:
        self.written: list[str] = []
        self.read: list[str] = []
        self._path = path
        path.touch()
        self._reader = CommittedReader(bootstrap, "lines")

    def write(self) -> None:
        """Append bursts of lines to the file, each line with its number, and read meanwhile."""
        for _ in range(BURSTS):
            new = [f"line {len(self.written) + index}" for index in range(LINES)]
            with self._path.open("a") as file:
                file.write("".join(f"{line}\n" for line in new))
            self.written += new
            self.has(len(self.written), look_s=0.05)

    def has(self, count: int, look_s: float = 1.0) -> bool:
        """Whether so many lines have been read, after a look."""
        self.read += [found.value().decode() for found in self._reader.look(look_s)]
        return len(self.read) >= count

    def have_all(self) -> bool:
        return self.has(len(self.written))

    def close(self) -> None:
        self._reader.close()


def test_each_line_of_a_file_arrives_exactly_once_while_worker_and_brokers_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The worker is killed between lines, and starts anew; then each broker is."""
    java = java_or_skip(tmp_path, artifacts=CONNECT, version=VERSION)
    brokers = cluster.start(3, SETTINGS)
    bootstrap = cluster.bootstrap
    create_topic(bootstrap, "lines", 1, 3, {"min.insync.replicas": "2"})
    rest_port = free_port()
    properties = tmp_path / "worker.properties"
    settings = worker_settings(bootstrap, rest_port)
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*java, WORKER, str(properties)]
    log = tmp_path / "worker.log"
    lines = Lines(tmp_path / "lines.txt", bootstrap)
    connector = Connector(rest_port)
    config = CONNECTOR | {"file": str(tmp_path / "lines.txt")}
    try:
        with running(command, log):
            until(lambda: connector.accepts(config), WAIT_S)
            lines.write()
            until(lambda: lines.has(1), WAIT_S)
        # Killed, maybe within a transaction, which the next task of the connector ends by taking its place.
        lines.write()
        with running(command, log):
            until(lines.have_all, WAIT_S)
            for broker in brokers:
                cluster.lose(broker)
                lines.write()
                cluster.make_whole()
                until(lines.have_all, WAIT_S)
                # With the next one in addition, one replica would be left, to which nobody may write.
                until_in_sync(brokers, "lines", WAIT_S)
            until(connector.is_running, WAIT_S)
        lines.has(len(lines.written) + 1)
        # A coordinator that has just taken over lists them once it has read them.
        until(lambda: "lines-of-a-file-lines-0" in transactional_ids(bootstrap), WAIT_S)
    finally:
        lines.close()
        print(f"--- log of the worker\n{log.read_text()[-6000:] if log.exists() else ''}")
    assert lines.read == lines.written
