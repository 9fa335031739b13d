"""The procedures of docs/operating.md, run as they are written, on one cluster, one after the other.

A step finds the cluster as the step before has left it: starting brokers takes most of the time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from tests.integration.waiting import until

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "operating.md").read_text()
PROCEDURES = PAGE.split("## Procedures\n")[1].split("\n## ")[0]
TIMEOUT_S = 600
IDS = (1, 2, 3, 4)
ORDERS = "orders"
RECORDS = 300


def blocks(section: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


SECTIONS = {section.partition("\n")[0]: blocks(section) for section in ("\n" + PROCEDURES).split("\n### ")}
FIRST = SECTIONS.pop("")[0]


class Operated:
    """Four brokers' properties files in a directory that looks like Holdfast's, and a shell in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {broker: free_port() for broker in IDS}
        (directory / "config").mkdir()
        (directory / "scripts").symlink_to(HOME / "scripts")
        zookeeper = free_port()
        self.write(
            "zookeeper",
            dataDir="data/zookeeper",
            clientPort=zookeeper,
            clientPortAddress="127.0.0.1",
            tickTime=500,
            maxClientCnxns=0,
            **{"admin.enableServer": "false"},
        )
        for broker, port in self.ports.items():
            self.write(
                f"server-{broker}",
                listeners=f"PLAINTEXT://127.0.0.1:{port}",
                **{
                    "broker.id": broker,
                    "log.dirs": f"data/server-{broker}",
                    "zookeeper.connect": f"127.0.0.1:{zookeeper}",
                    "zookeeper.session.timeout.ms": 10_000,
                    "offsets.topic.num.partitions": 1,
                    "offsets.topic.replication.factor": 3,
                    "min.insync.replicas": 2,
                    "log.segment.bytes.min": 14,
                    "log.retention.check.interval.ms": 500,
                    "file.delete.delay.ms": 0,
                },
            )

    def write(self, name: str, **properties: object) -> None:
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.directory / "config" / f"{name}.properties").write_text(text)

    @property
    def brokers(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker]}" for broker in IDS[:3])

    def run(self, commands: str) -> str:
        """Run commands of the page after those that all procedures begin with. Returns what they print."""
        first, changed = re.subn(r"^BROKERS=.*$", f"BROKERS={self.brokers}", FIRST, flags=re.MULTILINE)
        assert changed == 1
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", first + commands],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix, "LOG_DIR": "var/log"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def follow(self, procedure: str, number: int = 0) -> str:
        """Run the commands of a procedure."""
        return self.run(SECTIONS[procedure][number])

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": self.brokers})

    def produce(self, count: int) -> None:
        """Write records that must be acknowledged by all in-sync replicas, at least two."""
        settings = {"bootstrap.servers": self.brokers, "acks": "all", "batch.size": "1000"}
        with Producer(settings) as producer:
            for number in range(count):
                producer.send(Message(ORDERS, value=bytes(500), partition=number % 4))

    def ends(self) -> int:
        """How many records have ever been written."""
        shown = self.run(f'scripts/get-offsets.sh --bootstrap-server "$BROKERS" --topic {ORDERS}')
        return sum(int(line.rpartition(":")[2]) for line in shown.split())

    def holders(self) -> list[int]:
        """How many replicas each broker has of the topic, and of how many partitions it is the leader."""
        with self.admin() as admin:
            (topic,) = admin.describe_topics([ORDERS])
        replicas = [broker for row in topic.partitions for broker in row.replicas]
        return [replicas.count(broker) for broker in IDS]


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    cluster = Operated(tmp_path)
    try:
        yield cluster
    finally:
        with ThreadPoolExecutor() as pool:
            for broker in IDS:
                pool.submit(stop, tmp_path, "scripts/server-stop.sh", f"config/server-{broker}.properties")
        stop(tmp_path, "scripts/zookeeper-server-stop.sh", "config/zookeeper.properties")
        for log in sorted((tmp_path / "var" / "log").glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")


def stop(directory: Path, *command: str) -> None:
    """Stop a server if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix}
    subprocess.run(command, cwd=directory, env=environment, capture_output=True, timeout=TIMEOUT_S)


def test_the_procedures_of_the_page_do_what_they_say(operated: Operated) -> None:
    operated.run(
        "scripts/zookeeper-server-start.sh -daemon config/zookeeper.properties\n"
        "for id in 1 2 3; do scripts/server-start.sh -daemon config/server-$id.properties & done; wait\n"
    )
    with operated.admin() as admin:
        admin.create_topics([NewTopic(ORDERS, 4, 3, {"segment.bytes": "10000"})])
    operated.produce(RECORDS)

    operated.follow("Rolling restart")
    assert operated.ends() == RECORDS
    assert operated.follow("Upgrade").count("(id: ") == 3

    operated.follow("Adding a broker")
    assert operated.holders() == [3, 3, 3, 3]

    operated.run("scripts/server-stop.sh config/server-3.properties")
    shutil.rmtree(operated.directory / "data" / "server-3")
    operated.produce(RECORDS)
    operated.follow("Replacing a broker")
    assert operated.ends() == 2 * RECORDS

    operated.follow("Removing a broker")
    assert operated.holders() == [4, 4, 4, 0]

    used = operated.follow("Disk nearly full")
    assert '"partition":"orders-0"' in used
    data = operated.directory / "data"
    until(
        lambda: (
            sum(file.stat().st_size for file in data.glob("server-[123]/orders-*/*.log")) < 3 * 4 * 110_000
        )
    )

    operated.run("scripts/zookeeper-server-stop.sh config/zookeeper.properties")
    operated.run(
        f'scripts/console-consumer.sh --bootstrap-server "$BROKERS" --topic {ORDERS} --from-beginning '
        "--max-messages 1 --formatter noop"
    )
    operated.follow("ZooKeeper away")
    operated.produce(RECORDS)

    operated.follow("Backup and restore", 0)
    operated.produce(RECORDS)
    assert operated.ends() == 4 * RECORDS
    operated.run(
        "for id in 1 2 3; do scripts/server-stop.sh config/server-$id.properties; done\n"
        "scripts/zookeeper-server-stop.sh config/zookeeper.properties\n"
    )
    operated.follow("Backup and restore", 1)
    assert operated.ends() == 3 * RECORDS
    operated.produce(RECORDS)


def test_every_procedure_of_the_page_is_run() -> None:
    test = Path(__file__).read_text()
    for procedure, commands in SECTIONS.items():
        assert test.count(f'follow("{procedure}"') == len(commands), procedure
