"""transaction.version is raised broker by broker under a Java producer, which takes it up; and lowered."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.compat.test_java_transactions import READ_COMMITTED, described
from tests.integration.clients import consume
from tests.integration.waiting import until, until_in_sync

kafka = pytest.importorskip("confluent_kafka")

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "60000",
}
WAIT_S = 300.0
TRANSACTIONS_MIN = 20
"""Transactions that must have been committed in each state of the cluster."""


class Program:
    """A running Java producer; each line that it prints is a committed transaction."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self._process.stdout.readline, ""))

    @property
    def committed(self) -> int:
        return sum(line.isdigit() for line in self.lines)

    def progress(self) -> None:
        """Wait until it has committed some more transactions."""
        target = self.committed + TRANSACTIONS_MIN

        def has_passed() -> bool:
            assert self._process.poll() is None, "\n".join(self.lines[-40:])
            return self.committed >= target

        until(has_passed, WAIT_S)

    def end(self) -> int:
        """Have it end in order. Returns the number of committed transactions."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(300) == 0, "\n".join(self.lines[-40:])
        self._reader.join()
        assert self.lines[-1] == "done", "\n".join(self.lines[-40:])
        return self.committed

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def running(command: list[str], bootstrap: str, name: str) -> Iterator[Program]:
    program = Program([*command, bootstrap, name, "t"])
    try:
        yield program
    finally:
        program.kill()


def roll(cluster: Cluster, version: int) -> None:
    """Restart one broker after the other with this version, each once all replicas are in sync."""
    for broker in cluster.brokers:
        until_in_sync(cluster.brokers, "t", WAIT_S)
        broker.properties["transaction.version"] = str(version)
        broker.restart()
    until_in_sync(cluster.brokers, "t", WAIT_S)


def values(bootstrap: str, partition: int, count: int) -> list[bytes]:
    return consume(bootstrap, "t", count, partition, **READ_COMMITTED)


@pytest.mark.timeout(1800)
def test_the_version_of_transactions_is_raised_and_lowered_under_load(
    cluster: Cluster, tmp_path: Path
) -> None:
    command = driver_or_skip(tmp_path, "SteadyTransactions", KRAFT_VERSION)
    brokers = cluster.start(3, {**SETTINGS, "transaction.version": "1"})
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("t", 2, 3)])
    expected: list[bytes] = []

    def ended(program: Program, name: str) -> None:
        expected.extend(f"{name}{number}".encode() for number in range(program.end()))

    def epoch(name: str) -> int:
        epochs: list[int] = []

        def has_coordinator() -> bool:
            # For a moment after a restart none of them may say that it coordinates.
            found = [described(broker.port, name) for broker in brokers]
            epochs.extend(each.producer_epoch for each in found if each.error_code == 0)
            return bool(epochs)

        until(has_coordinator, WAIT_S)
        return max(epochs)

    with running(command, cluster.bootstrap, "before") as before:
        before.progress()
        roll(cluster, 2)
        before.progress()
        # The cluster decided on the version when the last broker was back. A client asks for features only
        # with a new connection, and makes one only to a broker that it needs.
        roll(cluster, 2)
        until(lambda: epoch("before") >= TRANSACTIONS_MIN, WAIT_S)
        with running(command, cluster.bootstrap, "after") as after:
            after.progress()
            before.progress()
            ended(after, "after")
        assert epoch("after") >= TRANSACTIONS_MIN
        ended(before, "before")
    roll(cluster, 1)
    with running(command, cluster.bootstrap, "lowered") as lowered:
        lowered.progress()
        ended(lowered, "lowered")
    assert epoch("lowered") == 0

    for partition in range(2):
        assert sorted(values(cluster.bootstrap, partition, len(expected))) == sorted(expected)
