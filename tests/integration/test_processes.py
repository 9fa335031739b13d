"""Several brokers from one properties file (broker.processes): clients see brokers of one cluster, one
that is killed comes back with its data, and one signal stops them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.integration.clients import consume, create_topic, produce
from tests.integration.waiting import until

TIMEOUT_S = 180.0
PROPERTIES = """\
zookeeper.connect={zookeeper}
broker.id=3
broker.processes=2
listeners=PLAINTEXT://127.0.0.1:0
log.dirs={directory}/data
zookeeper.session.timeout.ms=30000
"""


def start(zookeeper: str, directory: Path) -> tuple[subprocess.Popen[bytes], list[dict[str, Any]]]:
    """Start the brokers. Returns the supervisor, and what each broker says of itself."""
    properties, ready = directory / "server.properties", directory / "ready.json"
    properties.write_text(PROPERTIES.format(zookeeper=zookeeper, directory=directory))
    arguments = [str(properties), "--ready-file", str(ready), "--log-dir", str(directory / "log")]
    supervisor = subprocess.Popen([sys.executable, "-m", "holdfast_log.broker", *arguments])
    until(lambda: ready.exists() or supervisor.poll() is not None)
    described = json.loads(ready.read_text())
    assert described["pid"] == supervisor.pid
    return supervisor, described["brokers"]


def log_of(directory: Path) -> str:
    return (directory / "log" / "supervisor-3.log").read_text()


def address(broker: dict[str, Any]) -> str:
    (listener,) = broker["listeners"]
    return str(listener).removeprefix("PLAINTEXT://")


def live_brokers(bootstrap: str) -> list[int]:
    return sorted(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers)


def leaders(bootstrap: str, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=60).topics[topic]
    return [found.partitions[number].leader for number in sorted(found.partitions)]


def test_brokers_of_one_file_serve_survive_a_kill_and_stop_together(zookeeper: str, tmp_path: Path) -> None:
    supervisor, (first, second) = start(zookeeper, tmp_path)
    bootstrap = address(first)
    assert [first["broker.id"], second["broker.id"]] == [3, 1003]
    assert live_brokers(bootstrap) == [3, 1003]

    create_topic(bootstrap, "events", partitions=4)
    assert sorted(leaders(bootstrap, "events")) == [3, 3, 1003, 1003]
    with pytest.raises(KafkaException, match="larger than available machines: 1"):
        create_topic(bootstrap, "twice", replicas=2)

    for partition in range(4):
        produce(bootstrap, "events", [b"%d" % partition], partition=partition)
    assert len(list((tmp_path / "data").glob("events-*"))) == 2
    assert len(list((tmp_path / "data" / "process.1").glob("events-*"))) == 2

    os.kill(second["pid"], signal.SIGKILL)
    until(
        lambda: (
            f"Broker process 1 (process id {second['pid']}) has ended: killed by SIGKILL" in log_of(tmp_path)
        )
    )
    until(lambda: sorted(leaders(bootstrap, "events")) == [3, 3, 1003, 1003])
    until(lambda: live_brokers(bootstrap) == [3, 1003])
    for partition in range(4):
        assert consume(bootstrap, "events", 1, partition) == [b"%d" % partition]

    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(TIMEOUT_S) == 0
    assert not list((tmp_path / "data").rglob("*.pid"))
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "data" / "process.1" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "ready.json").exists()


def test_the_stop_script_stops_all_brokers_of_a_file(zookeeper: str, tmp_path: Path) -> None:
    supervisor, brokers = start(zookeeper, tmp_path)
    command = [
        sys.executable,
        "-m",
        "holdfast_log.broker.tools.server_stop",
        str(tmp_path / "server.properties"),
    ]
    stopped = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert stopped.returncode == 0, stopped.stderr
    assert f"process {supervisor.pid}" in stopped.stdout
    assert supervisor.wait(TIMEOUT_S) == 0
    assert not any(Path(f"/proc/{broker['pid']}").exists() for broker in brokers)


def test_a_start_that_cannot_succeed_ends_with_the_reason(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(PROPERTIES.format(zookeeper="127.0.0.1:1", directory=tmp_path))
    began_s = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast_log.broker", str(properties),
         "--override", "zookeeper.connection.timeout.ms=1000"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "ZooKeeper at 127.0.0.1:1 (zookeeper.connect) did not answer within 1000 ms" in ended.stderr
    assert "did not start: exit status 1" in ended.stdout
    assert time.monotonic() - began_s < TIMEOUT_S
