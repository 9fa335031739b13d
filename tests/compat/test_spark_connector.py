"""Spark's own Kafka connector, unchanged, writes and reads a Holdfast broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from holdfast_log import Admin, NewTopic
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.compat.churn import ROOT
from tests.compat.drivers.spark_connector import COPY, COUNT, TOPIC

pytestmark = pytest.mark.timeout(1800)
"""Of Maven and of Spark, both of which have to start."""

ARTIFACT = "spark-sql-kafka-0-10_2.13"


def connector() -> str:
    """The Maven coordinates of the connector: `HOLDFAST_SPARK_CONNECTOR`, or PySpark's own version, or the
    newest earlier minor version that Maven finds. Skips the test if there is none."""
    if given := os.environ.get("HOLDFAST_SPARK_CONNECTOR"):
        return given
    own = metadata.version("pyspark")
    major, minor = own.split(".")[:2]
    tried = [own, *(f"{major}.{earlier}.0" for earlier in range(int(minor) - 1, -1, -1))]
    if not shutil.which("mvn"):
        pytest.skip("the connector needs mvn to be found, or HOLDFAST_SPARK_CONNECTOR")
    for version in tried:
        coordinates = f"org.apache.spark:{ARTIFACT}:{version}"
        command = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false"]
        try:
            if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0:
                return coordinates
        except subprocess.TimeoutExpired:
            pytest.skip("Maven does not answer")
    pytest.skip(f"Maven finds {ARTIFACT} in none of the versions {', '.join(tried)}")


def test_sparks_kafka_connector_writes_and_reads_in_batches_and_as_streams(
    broker: BackgroundBroker, tmp_path: Path
) -> None:
    package = connector()
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic(TOPIC, 3), NewTopic(COPY, 2)])

    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "tests.compat.drivers.spark_connector",
            broker.address,
            package,
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    if "unresolved dependency" in done.stderr or "download failed" in done.stderr:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["batch"], found["headers"], found["stream"]) == (COUNT, COUNT, COUNT), package
    assert found["has_ended"] and found["batches"] == 2
