"""Transactions of Apache Kafka's Java clients, of two versions, and of its kafka-transactions.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.apache_kafka import BROKER, KRAFT_VERSION, TOOLS, VERSION
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import Cluster
from tests.compat.apache_kafka import java_or_skip
from tests.integration.test_hanging_transactions import lose_what_it_coordinates

kafka = pytest.importorskip("confluent_kafka")

DRIVERS = Path(__file__).parent / "drivers"
QUIET = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.SimpleLayout
"""
"""Settings of Kafka's log, so that standard output is the driver's."""
JAVA_TIMEOUT_S = 500
WAIT_S = 120


def command_of(directory: Path, driver: str, version: str, artifacts: str = BROKER) -> list[str]:
    """The command that runs a driver. Skips the test before a broker is started if there is no Kafka."""
    command = java_or_skip(directory, version=version, artifacts=artifacts)
    (directory / "log4j.properties").write_text(QUIET)
    return [*command, str(DRIVERS / driver)]


def printed(command: list[str]) -> list[str]:
    """The lines that a driver prints. Fails where it ends with an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", [VERSION, KRAFT_VERSION])
def test_a_java_program_copies_fences_and_describes(cluster: Cluster, tmp_path: Path, version: str) -> None:
    """Records and offsets of a group, committed and aborted; a producer that is fenced; the admin client."""
    command = command_of(tmp_path, "CopyInTransactions.java", version)
    broker = cluster.start()[0]
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("read", 3, 1), NewTopic("written", 3, 1)])
    found = printed([*command, broker.address, "read", "written"])
    fenced = next(line for line in found if line.startswith("first "))
    assert fenced in ("first ProducerFencedException", "first InvalidProducerEpochException")
    found.remove(fenced)
    assert found == [
        "copied 60, offsets 60",
        "committed 60",
        "uncommitted more",
        "second committed",
        "listed [copy CompleteCommit, open Ongoing, pair CompleteCommit]",
        "described Ongoing [written-0]",
        "open 1",
        "fenced refused",
    ]


def test_kafkas_tool_shows_transactions_and_aborts_one_that_hangs(cluster: Cluster, tmp_path: Path) -> None:
    """It hangs because its coordinator has lost its log."""
    command = command_of(tmp_path, "TransactionsTool.java", VERSION, TOOLS)
    broker = cluster.start(1, {"transaction.state.log.num.partitions": "1"})[0]
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("journal", 2, 1)])
    _begin(broker.address, "lost", 0)
    broker.stop()
    lose_what_it_coordinates(broker)
    cluster.make_whole()
    _begin(broker.address, "payments", 1)

    search = ("find-hanging", "--topic", "journal", "--max-transaction-timeout", "0")
    at = ("--topic", "journal", "--partition", "0")
    commands = [
        ("list",),
        ("describe", "--transactional-id", "payments"),
        ("describe-producers", *at),
        search,
        ("abort", *at, "--start-offset", "0"),
        search,
    ]
    words = [word for each in commands for word in (*each, ",")][:-1]
    parts = "\n".join(printed([*command, broker.address, *words])).split("# ")[1:]
    tables = [[line.split("\t") for line in part.splitlines()[1:-1]] for part in parts]
    assert [part.splitlines()[-1] for part in parts] == ["= 0"] * len(commands)
    listed, described, producers, before, _, after = [
        [[cell.strip() for cell in row] for row in table[1:]] for table in tables
    ]
    assert [(row[0], row[3]) for row in listed] == [("payments", "Ongoing")]
    assert (described[0][1], described[0][4], described[0][8]) == ("payments", "Ongoing", "journal-1")
    assert [row[5] for row in producers] == ["0"]
    assert [(row[0], row[1], row[5]) for row in before] == [("journal", "0", "0")]
    assert after == []


def _begin(bootstrap: str, transactional_id: str, partition: int) -> None:
    """Leave a transaction open in a partition of the journal."""
    config = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = kafka.Producer({"bootstrap.servers": bootstrap} | config)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("journal", b"value", partition=partition)
    assert producer.flush(WAIT_S) == 0
