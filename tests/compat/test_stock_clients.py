"""Unmodified confluent-kafka, kafka-python 2 and 3, aiokafka and kcat work with the broker.

Each client runs the same workload in its own process (tests/compat/drivers) and checks every record. By
default each runs once with each codec, with and without an idempotent producer in turn;
scripts/test-campaigns.sh runs every combination, with more records.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.compat.churn import OLD_KAFKA_PYTHON, ROOT, Library
from tests.compat.drivers.workload import late_index
from tests.covering import combinations

RECORDS = int(os.environ.get("HOLDFAST_COMPAT_RECORDS", "5000"))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class StockClient(Library):
    """A library that runs the workload against a broker."""

    def missing(self) -> str | None:
        """The reason why this machine cannot run the client; None if it can."""
        if self.driver == "kcat" and not shutil.which("kcat"):
            return "kcat is not installed (scripts/test.sh installs it if run as root on Debian)"
        if not self.python.exists():
            return f"no kafka-python 2 environment at {self.python} (scripts/test.sh creates it)"
        return None

    def run(self, action: str, broker: BackgroundBroker, topic: str, *options: str) -> dict[str, Any]:
        """Run one action. Returns the driver's result; fails the test with its error output if it exits with
        an error."""
        (answer,) = self.run_all([action], broker, topic, *options)
        return answer

    def run_all(
        self, actions: list[str], broker: BackgroundBroker, topic: str, *options: str
    ) -> list[dict[str, Any]]:
        """Run the actions in one process. Returns the driver's result of each."""
        command = [str(self.python), "-m", f"tests.compat.drivers.{self.driver}", *actions]
        command += ["--bootstrap", broker.address, "--topic", topic, *options]
        # The environment of kafka-python 2 has only that library, so a driver imports nothing of Holdfast.
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, (
            f"{self.name} {' '.join(actions)} failed:\n{done.stderr[-3000:]}\n{broker.log[-2000:]}"
        )
        return [json.loads(line) for line in done.stdout.splitlines()[-len(actions) :]]


CONFLUENT = StockClient("confluent-kafka", "confluent")
KAFKA_PYTHON_3 = StockClient("kafka-python-3", "kafka_python")
KAFKA_PYTHON_2 = StockClient("kafka-python-2", "kafka_python", OLD_KAFKA_PYTHON)
AIOKAFKA = StockClient("aiokafka", "aio")
KCAT = StockClient("kcat", "kcat")
CLIENTS = (CONFLUENT, KAFKA_PYTHON_3, KAFKA_PYTHON_2, AIOKAFKA, KCAT)


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest) -> StockClient:
    client: StockClient = request.param
    lacking = client.missing()
    if lacking:
        pytest.skip(lacking)
    return client


@pytest.mark.parametrize(
    ("client", "codec", "idempotent"),
    combinations(CLIENTS, CODECS, (False, True)),
    ids=lambda value: {False: "plain", True: "idempotent"}.get(value, str(value)),
    indirect=["client"],
)
def test_a_stock_client_creates_a_topic_produces_and_consumes(
    client: StockClient, codec: str, idempotent: bool, broker: BackgroundBroker
) -> None:
    """Records of mixed sizes, read back from the start, from an offset and from a timestamp."""
    topic = f"{client}-{codec}-{'idempotent' if idempotent else 'plain'}"
    base_ms = int(time.time() * 1000) - 3_600_000
    options = ["--count", str(RECORDS), "--codec", codec, "--base-ms", str(base_ms)]
    options += ["--idempotent"] * idempotent

    _, produced, consumed = client.run_all(["create", "produce", "consume"], broker, topic, *options)

    assert (produced["delivered"], produced["problems"]) == (RECORDS, [])
    late = RECORDS - late_index(RECORDS)
    expected = {"start": RECORDS, "offset": late, "timestamp": late}
    for reading, wanted in expected.items():
        assert consumed[reading] == {"seen": wanted, "wanted": wanted, "problems": []}, reading


def test_a_stock_consumer_continues_at_its_groups_committed_offset(
    client: StockClient, broker: BackgroundBroker
) -> None:
    """A consumer joins, commits automatically and leaves; a second one continues later."""
    topic = f"{client}-shared"
    client.run("create", broker, topic)
    assert client.run("share", broker, topic) == {"began": True, "went_on": True}


def test_the_admin_calls_of_confluent_kafka_work(broker: BackgroundBroker) -> None:
    assert CONFLUENT.run("admin", broker, "confluent-admin") == {
        "again": "TOPIC_ALREADY_EXISTS",
        "partitions": 4,
        "leaders": [1],
        "brokers": [1],
        "controller": 1,
        "retention_set_at_creation": "3600000",
        "max_message_bytes": "54321",
        "retention_replaced": "7200000",
        "max_message_bytes_is_default": True,
        "end": 10,
        "low": 4,
        "earliest": 4,
        "gone": True,
    }


@pytest.mark.parametrize("client", [KAFKA_PYTHON_2, KAFKA_PYTHON_3], ids=str, indirect=True)
def test_the_admin_calls_of_kafka_python_work(client: StockClient, broker: BackgroundBroker) -> None:
    answers = client.run("admin", broker, f"{client}-admin")
    assert "'low_watermark': 4" in answers.pop("deleted")
    assert f"{client}-admin" in answers.pop("log_dirs")
    assert answers == {
        "again": "TOPIC_ALREADY_EXISTS",
        "partitions": 4,
        "brokers": [1],
        "controller": 1,
        "retention_set_at_creation": "3600000",
        "max_message_bytes": "54321",
        "earliest": 4,
        "end": 10,
        "gone": True,
    }


def test_the_admin_calls_of_aiokafka_work(broker: BackgroundBroker) -> None:
    assert AIOKAFKA.run("admin", broker, "aiokafka-admin") == {
        "again": [36],
        "partitions": 4,
        "brokers": [1],
        "controller": 1,
        "retention_set_at_creation": "3600000",
        "max_message_bytes": "54321",
        "low": 4,
        "earliest": 4,
        "end": 10,
        "gone": True,
    }


@pytest.mark.parametrize("client", [KCAT], ids=str, indirect=True)
def test_kcat_lists_topics_and_queries_offsets(client: StockClient, broker: BackgroundBroker) -> None:
    assert client.run("admin", broker, "kcat-admin") == {
        "partitions": 3,
        "brokers": [1],
        "controller": 1,
        "offsets": "kcat-admin [0] offset 2",
    }
