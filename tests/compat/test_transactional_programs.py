"""Transactions of Apache Kafka's Java clients, of two versions, and of its kafka-transactions.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION, TOOLS, VERSION
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import Cluster
from tests.compat.apache_kafka import class_path, driver_or_skip
from tests.compat.java_programs import QUIET, run_tool
from tests.integration.test_hanging_transactions import lose_what_it_coordinates

kafka = pytest.importorskip("confluent_kafka")

JAVA_TIMEOUT_S = 500
TOOL = "org.apache.kafka.tools.TransactionsCommand"
WAIT_S = 120


def printed(command: list[str]) -> list[str]:
    """The lines that a driver prints. Fails where it ends with an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", [VERSION, KRAFT_VERSION])
def test_a_java_program_copies_fences_and_describes(cluster: Cluster, tmp_path: Path, version: str) -> None:
    """Records and offsets of a group, committed and aborted; a producer that is fenced; the admin client."""
    command = driver_or_skip(tmp_path, "CopyInTransactions", version)
    (tmp_path / "log4j.properties").write_text(QUIET)
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


def test_kafkas_tool_shows_transactions_and_aborts_one_that_hangs(cluster: Cluster) -> None:
    """It hangs because its coordinator has lost its log."""
    jars = class_path(VERSION, TOOLS)
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
    tables = []
    for each in commands:
        done = run_tool(jars, TOOL, "--bootstrap-server", broker.address, *each)
        assert done.status == 0, done
        tables.append([line.split("\t") for line in done.output.splitlines()])
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
