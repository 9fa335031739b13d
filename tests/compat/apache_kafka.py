"""Apache Kafka itself, a broker in ZooKeeper mode, and its tools: see `benchmarks.apache_kafka`. Tests skip
where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import apache_kafka
from benchmarks.apache_kafka import BROKER, VERSION, KafkaBroker, NoKafkaError, java
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.compat.java_programs import run_tool, with_driver

__all__ = [
    "KafkaBroker",
    "acl_command",
    "class_path",
    "config_command",
    "driver_or_skip",
    "dump",
    "java_or_skip",
]


def java_or_skip(directory: Path, version: str = VERSION, artifacts: str = BROKER) -> list[str]:
    """As `benchmarks.apache_kafka.java`. Skips the test where Kafka cannot be had."""
    try:
        return java(directory, version=version, artifacts=artifacts)
    except NoKafkaError as error:
        pytest.skip(str(error))


def driver_or_skip(
    directory: Path, driver: str, version: str = VERSION, artifacts: str = BROKER
) -> list[str]:
    """The command that runs a program of `drivers`. Skips the test where Kafka cannot be had."""
    return with_driver(java_or_skip(directory, version, artifacts), driver)


def class_path(version: str = VERSION, artifacts: str = BROKER) -> str:
    """As `benchmarks.apache_kafka.class_path`. Skips the test where Kafka cannot be had."""
    try:
        return apache_kafka.class_path(version, artifacts)
    except NoKafkaError as error:
        pytest.skip(str(error))


def dump(*arguments: str) -> str:
    """What Kafka's DumpLogSegments prints. Fails where it ends with an error."""
    return _run("kafka.tools.DumpLogSegments", *arguments)


def config_command(broker: BackgroundBroker, *arguments: str) -> list[str]:
    """The lines that Kafka's ConfigCommand (kafka-configs.sh) prints. Fails where it ends with an
    error."""
    printed = _run("kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *arguments)
    return [line.strip() for line in printed.splitlines()]


def acl_command(*arguments: str) -> str:
    """What Kafka's AclCommand (kafka-acls.sh) prints. Fails where it ends with an error."""
    return _run("kafka.admin.AclCommand", *arguments)


def _run(tool: str, *arguments: str) -> str:
    done = run_tool(class_path(), tool, *arguments)
    assert done.status == 0, done.output[-3000:] + done.errors[-3000:]
    return done.output + done.errors
