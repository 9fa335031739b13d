"""Brokers that are operated as docs/operating.md says: properties files, scripts, and a shell that runs the
commands of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.coordinator.tools.zookeeper_process import free_port

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "operating.md").read_text()
PROCEDURES = PAGE.split("## Procedures\n")[1].split("\n## ")[0]
TIMEOUT_S = 600
LIMIT_S = 1800
"""Time limit of a test that follows procedures: it starts a hundred programs, perhaps on a busy machine."""
IDS = (1, 2, 3, 4)
ORDERS = "orders"
RECORDS = 300


def blocks(section: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


SECTIONS = {section.partition("\n")[0]: blocks(section) for section in ("\n" + PROCEDURES).split("\n### ")}
FIRST = SECTIONS.pop("")[0]


class Operated:
    """Four brokers' properties files in a directory that looks like Holdfast's, and a shell in it. `home` has
    the Holdfast of that directory. `newer` is a directory with another one, with which brokers are started
    while it is set."""

    def __init__(self, directory: Path, home: Path = HOME) -> None:
        self.directory = directory
        self.newer: Path | None = None
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(home),
            "HOLDFAST_VENV": sys.prefix,
            "LOG_DIR": "var/log",
        }
        self.ports = {broker: free_port() for broker in IDS}
        (directory / "config").mkdir()
        (directory / "scripts").symlink_to(home / "scripts")
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
                    "zookeeper.session.timeout.ms": 60_000,
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
        if self.newer is not None:
            first, changed = re.subn(r"^HOLDFAST=\.", f"HOLDFAST={self.newer}", first, flags=re.MULTILINE)
            assert changed == 1
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", first + commands],
            cwd=self.directory,
            env=self._environment,
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

    def stop(self, *command: str) -> None:
        """Stop a server if it still runs."""
        subprocess.run(
            command, cwd=self.directory, env=self._environment, capture_output=True, timeout=TIMEOUT_S
        )

    def start(self) -> None:
        """Start ZooKeeper and the first three brokers."""
        self.run(
            "scripts/zookeeper-server-start.sh -daemon config/zookeeper.properties\n"
            "for id in 1 2 3; do scripts/server-start.sh -daemon config/server-$id.properties & done; wait\n"
        )

    def start_with_orders(self) -> None:
        """As `start`, and write the topic of orders, with segments of a few records."""
        self.start()
        with self.admin() as admin:
            admin.create_topics([NewTopic(ORDERS, 4, 3, {"segment.bytes": "10000"})])
        self.produce(RECORDS)

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": self.brokers})

    def produce(self, count: int) -> None:
        """Write records that must be acknowledged by all in-sync replicas, at least two."""
        settings = {"bootstrap.servers": self.brokers, "acks": "all", "batch.size": "1000"}
        with Producer(settings) as producer:
            for number in range(count):
                producer.send(Message(ORDERS, value=bytes(500), partition=number % 4))

    def ends(self, topic: str = ORDERS) -> int:
        """How many records of a topic have ever been written."""
        shown = self.run(f'scripts/get-offsets.sh --bootstrap-server "$BROKERS" --topic {topic}')
        return sum(int(line.rpartition(":")[2]) for line in shown.split())

    def holders(self) -> list[int]:
        """How many replicas each broker has of the topic, and of how many partitions it is the leader."""
        with self.admin() as admin:
            (topic,) = admin.describe_topics([ORDERS])
        replicas = [broker for row in topic.partitions for broker in row.replicas]
        return [replicas.count(broker) for broker in IDS]


@contextmanager
def operating(directory: Path, home: Path = HOME) -> Iterator[Operated]:
    """Brokers and ZooKeeper in a directory; those that still run at the end are stopped, and their logs
    shown."""
    cluster = Operated(directory, home)
    try:
        yield cluster
    finally:
        with ThreadPoolExecutor() as pool:
            for broker in IDS:
                pool.submit(cluster.stop, "scripts/server-stop.sh", f"config/server-{broker}.properties")
        cluster.stop("scripts/zookeeper-server-stop.sh", "config/zookeeper.properties")
        for log in sorted((directory / "var" / "log").glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}")
