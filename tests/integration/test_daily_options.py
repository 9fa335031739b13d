"""Options of Kafka's tools that people type daily, against a broker."""

from __future__ import annotations

import functools
import json
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from tests.cluster import Cluster
from tests.integration import scripts
from tests.integration.scripts import SCRIPTS
from tests.integration.waiting import until

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
}
UNTIL_SILENT = ("--from-beginning", "--timeout-ms", "5000")


@pytest.fixture
def bootstrap(cluster: Cluster) -> str:
    cluster.start(1, SETTINGS)
    return cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        yield admin


consume = functools.partial(scripts.run, "console-consumer")


def values(bootstrap: str, topic: str, *options: str) -> list[str]:
    done = consume(bootstrap, "--topic", topic, *UNTIL_SILENT, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_readers_of_committed_records_see_no_aborted_and_no_open_ones(bootstrap: str, admin: Admin) -> None:
    admin.create_topics([NewTopic("journal", 1)])
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "pay", "transaction.timeout.ms": 600_000}
    with Producer(settings) as producer:
        for value, commits in ((b"kept", True), (b"dropped", False)):
            transaction = producer.transaction()
            transaction.send(Message("journal", value=value)).result()
            (transaction.commit if commits else transaction.abort)()
        until(lambda: [each.state for each in admin.list_transactions()] == ["CompleteAbort"])
        still_open = producer.transaction()
        still_open.send(Message("journal", value=b"pending")).result()
        began_s = time.monotonic()

        assert values(bootstrap, "journal") == ["kept", "dropped", "pending"]
        assert values(bootstrap, "journal", "--isolation-level", "read_uncommitted") == [
            "kept", "dropped", "pending",
        ]  # fmt: skip
        assert values(bootstrap, "journal", "--isolation-level", "read_committed") == ["kept"]

        listed = functools.partial(scripts.rows, "transactions", bootstrap, "list")
        age_ms = int((time.monotonic() - began_s) * 1000)
        assert [row["transactionalId"] for row in listed("--duration-filter", str(age_ms // 2))] == ["pay"]
        assert listed("--duration-filter", "600000") == []
        still_open.commit()
    assert values(bootstrap, "journal", "--isolation-level", "read_committed") == ["kept", "pending"]


def test_numbers_are_printed_as_text_and_what_is_none_may_be_left_out(bootstrap: str, admin: Admin) -> None:
    admin.create_topics([NewTopic("numbers", 1)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for key, value in ((1, struct.pack(">q", 10)), (2, b"no number"), (3, struct.pack(">q", -30))):
            producer.send(Message("numbers", key=struct.pack(">i", key), value=value))
    keys = ("--key-deserializer", "Integer", "--property", "print.key=true")
    values_too = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    assert values(bootstrap, "numbers", *keys, *values_too, "--skip-message-on-error") == ["1\t10", "3\t-30"]
    stopped = consume(bootstrap, "--topic", "numbers", *UNTIL_SILENT, *keys, *values_too)
    assert (stopped.returncode, stopped.stdout) == (1, "1\t10\n")
    assert "numbers-0 at offset 1" in stopped.stderr and "Long needs 8" in stopped.stderr
    only_keys = values(
        bootstrap, "numbers", *keys, "--property", "print.value=false", "--property", "print.epoch=true"
    )
    assert only_keys == ["Epoch:0\t1", "Epoch:0\t2", "Epoch:0\t3"]


def test_options_of_the_console_producer_set_what_they_name(
    bootstrap: str, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topics([NewTopic("lines", 1)])
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    options = (
        "--max-block-ms", "60000", "--max-memory-bytes", "33554432", "--max-partition-memory-bytes", "16384",
        "--message-send-max-retries", "3", "--retry-backoff-ms", "100", "--request-timeout-ms", "20000",
        "--metadata-expiry-ms", "300000", "--socket-buffer-size", "102400", "--line-reader",
        "org.apache.kafka.tools.LineMessageReader",
    )  # fmt: skip
    command = [str(SCRIPTS / "console-producer.sh"), "--broker-list", bootstrap, "--topic", "lines", *options]
    with open(lines, "rb") as source:
        done = subprocess.run(command, stdin=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert values(bootstrap, "lines") == ["a", "b"]
    refused = scripts.run("console-producer", bootstrap, "--topic", "lines", "--max-memory-bytes", "0")
    assert refused.returncode == 1 and "buffer.memory" in refused.stderr
    other = scripts.run(
        "console-producer", bootstrap, "--topic", "lines", "--line-reader", "com.example.Mine"
    )
    assert other.returncode == 2 and "LineMessageReader is the only one" in other.stderr


def test_topics_by_id_levels_of_loggers_and_transactions_under_load(
    bootstrap: str, admin: Admin, cluster: Cluster
) -> None:
    admin.create_topics([NewTopic("by-id", 2), NewTopic("measured", 1)])
    (described,) = scripts.rows("topics", bootstrap, "--describe", "--topic", "by-id")
    found = scripts.rows("topics", bootstrap, "--describe", "--topic-id", described["topicId"])
    assert found == [described]
    absent = scripts.run("topics", bootstrap, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAA")
    assert absent.returncode == 1 and "no topic with the id" in absent.stderr
    assert scripts.run("topics", bootstrap, "--list", "--topic-id", "x").returncode == 2

    loggers = functools.partial(scripts.run, "configs", bootstrap, "--broker-logger", "1")
    altered = loggers("--alter", "--force", "--add-config", "holdfast_log.broker.cleaning=DEBUG")
    assert altered.returncode == 0, altered.stderr
    assert "holdfast_log.broker.cleaning=DEBUG" in loggers("--describe").stdout

    measured = scripts.run(
        "producer-perf-test", bootstrap, "--topic", "measured", "--num-records", "500", "--record-size", "10",
        "--throughput", "1000", "--transaction-duration-ms", "100", "--transactional-id", "perf",
    )  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    assert len(values(bootstrap, "measured", "--isolation-level", "read_committed")) == 500
    until(lambda: [each.state for each in admin.list_transactions()] == ["CompleteCommit"])
    (end,) = scripts.rows("get-offsets", bootstrap, "--topic", "measured")
    assert end["offset"] >= 503, "each of several transactions has a marker"

    (directory,) = cluster.brokers[0].log_dirs
    state = directory / "__transaction_state-0" / f"{0:020d}.log"
    flags = ("--transaction-log-decoder", "--skip-record-metadata")
    dumped = subprocess.run(
        [str(SCRIPTS / "dump-log.sh"), "--files", str(state), *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    last = [line for line in dumped.stdout.splitlines() if line.startswith("| key: ")][-1]
    key, _, payload = last.removeprefix("| key: ").partition(" payload: ")
    assert json.loads(key)["data"] == {"transactionalId": "perf"}
    assert json.loads(payload)["data"]["transactionTimeoutMs"] == 60_000
