"""A stock producer with a transactional id fails at once, for lack of the feature, and idempotent ones work.

docs/transactions.md has what each client shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.compat.churn import ROOT
from tests.compat.drivers.workload import TRANSACTION_S
from tests.compat.test_stock_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON_3, StockClient

SHOWN = {
    CONFLUENT: ("KafkaException", "Required feature not supported by broker"),
    KAFKA_PYTHON_3: ("KafkaError", "UnsupportedVersionError"),
    AIOKAFKA: ("KafkaError", "IncompatibleBrokerVersion"),
}
"""The type of each client's error, and a part of its text."""

JAVA_DRIVER = Path(__file__).parent / "drivers" / "Transaction.java"


@pytest.mark.parametrize("client", SHOWN, ids=str)
def test_a_transactional_producer_fails_at_once_for_lack_of_the_feature(
    client: StockClient, broker: BackgroundBroker
) -> None:
    answer = client.run("transaction", broker, f"{client}-transaction")

    kind, text = SHOWN[client]
    assert answer["error"] == kind, answer
    assert text in answer["text"]
    assert "uthoriz" not in answer["text"], "the user would look for missing ACLs"
    assert answer["seconds"] < TRANSACTION_S, "the client gave up, so it had retried until then"


def java_class_path() -> str | None:
    """Kafka's Java client and the jars that it needs: `HOLDFAST_KAFKA_JARS`, or the newest in a local Maven
    repository; None if there are none."""
    if given := os.environ.get("HOLDFAST_KAFKA_JARS"):
        return given
    repository = Path.home() / ".m2" / "repository"
    kafka = sorted(repository.glob("org/apache/kafka/kafka-clients/*/kafka-clients-*[0-9].jar"))
    slf4j = sorted(repository.glob("org/slf4j/slf4j-api/1.*/slf4j-api-*[0-9].jar"))
    return f"{kafka[-1]}:{slf4j[-1]}" if kafka and slf4j else None


def run_java(action: str, broker: BackgroundBroker, topic: str) -> tuple[str, str]:
    """The class of the exception of the Java producer, or "none", and its text. Java compiles the driver."""
    class_path = java_class_path()
    if class_path is None or not shutil.which("javac"):
        pytest.skip("no Kafka client in ~/.m2 or HOLDFAST_KAFKA_JARS, or no Java compiler")
    done = subprocess.run(
        ["java", "-cp", class_path, str(JAVA_DRIVER), action, broker.address, topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kind, text, _ = done.stdout.splitlines()
    return kind, text


def test_a_transactional_java_producer_fails_at_once_for_lack_of_the_feature(
    broker: BackgroundBroker,
) -> None:
    kind, text = run_java("transaction", broker, "java-transaction")
    assert kind == "UnsupportedVersionException", text
    assert "Cannot create a v0 FindCoordinator request" in text


def test_an_idempotent_java_producer_writes(broker: BackgroundBroker) -> None:
    assert run_java("idempotent", broker, "java-idempotent") == ("none", "")
