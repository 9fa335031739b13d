"""Apache Kafka itself, a broker in ZooKeeper mode, and its tools: see `benchmarks.apache_kafka`. Tests skip
where it cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import apache_kafka
from benchmarks.apache_kafka import BROKER, VERSION, KafkaBroker, NoKafkaError, java
from holdfast_log.broker.tools.broker_process import BackgroundBroker

__all__ = ["KafkaBroker", "acl_command", "class_path", "config_command", "dump", "java_or_skip"]

_TOOL_TIMEOUT_S = 120


def java_or_skip(directory: Path, version: str = VERSION, artifacts: str = BROKER) -> list[str]:
    """As `benchmarks.apache_kafka.java`. Skips the test where Kafka cannot be had."""
    try:
        return java(directory, version=version, artifacts=artifacts)
    except NoKafkaError as error:
        pytest.skip(str(error))


def class_path(version: str = VERSION) -> str:
    """The class path of Kafka's broker and tools. Skips the test where they cannot be had."""
    try:
        return apache_kafka.class_path(version)
    except NoKafkaError as error:
        pytest.skip(str(error))


def dump(directory: Path, *arguments: str) -> str:
    """What Kafka's DumpLogSegments prints. Fails where it ends with an error."""
    return _run(directory, "kafka.tools.DumpLogSegments", *arguments)


def config_command(broker: BackgroundBroker, *arguments: str) -> list[str]:
    """The lines that Kafka's ConfigCommand (kafka-configs.sh) prints, its log included. Fails
    where it ends with an error."""
    printed = _run(
        broker.directory, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *arguments
    )
    return [line.strip() for line in printed.splitlines()]


def acl_command(directory: Path, *arguments: str) -> str:
    """What Kafka's AclCommand (kafka-acls.sh) prints, its log included. Fails where it ends with an error."""
    return _run(directory, "kafka.admin.AclCommand", *arguments)


def _run(directory: Path, tool: str, *arguments: str) -> str:
    done = subprocess.run(
        [*java(directory), tool, *arguments],
        capture_output=True,
        text=True,
        timeout=_TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
