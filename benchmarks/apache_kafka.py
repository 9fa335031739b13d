"""Apache Kafka itself, from Maven's jars: a broker in ZooKeeper mode, for measurements and tests beside it.

The jars are those of `HOLDFAST_KAFKA_BROKER_JARS`, a Java class path, or else what Maven resolves: from the
local repository if it has them, otherwise from Maven Central.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import javaproperties

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.parent_process import die_with_parent

VERSION = "3.9.1"
"""The last version of Kafka with brokers in ZooKeeper mode."""
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java that start a broker or tool fast and with little memory."""
KAFKAS_OWN = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""Options of Java that kafka-server-start.sh gives a broker."""
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast.tests</groupId><artifactId>apache-kafka</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_RESOLVE_TIMEOUT_S = 240
_LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n
"""
_PROPERTIES = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(2 << 20),
    "zookeeper.connection.timeout.ms": "60000",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class NoKafkaError(Exception):
    """Apache Kafka, or the Java that runs it, cannot be had on this machine."""


@cache
def class_path() -> str:
    """The class path of Kafka's broker and tools. Raises `NoKafkaError`."""
    if given := os.environ.get("HOLDFAST_KAFKA_BROKER_JARS"):
        return given
    if not shutil.which("java") or not shutil.which("mvn"):
        raise NoKafkaError("Apache Kafka needs java and mvn, or HOLDFAST_KAFKA_BROKER_JARS")
    directory = Path(tempfile.gettempdir()) / f"holdfast-apache-kafka-{VERSION}-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    (directory / "pom.xml").write_text(_POM)
    found = directory / "class-path"
    for offline in (["-o"], []):
        command = ["mvn", "-q", "-B", *offline, "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        try:
            subprocess.run(
                command, cwd=directory, capture_output=True, timeout=_RESOLVE_TIMEOUT_S, check=True
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            continue
        return found.read_text().strip()
    raise NoKafkaError(f"Maven has not resolved org.apache.kafka:kafka_2.13:{VERSION}")


def java(directory: Path, options: Sequence[str] = SMALL) -> list[str]:
    """The command that runs a class of Kafka, without the class. It logs to standard output, with a file of
    settings in `directory`. Raises `NoKafkaError`."""
    log4j = directory / "log4j.properties"
    log4j.write_text(_LOG4J)
    return ["java", *options, f"-Dlog4j.configuration=file:{log4j}", "-cp", class_path()]


class KafkaBroker(BackgroundBroker):
    """A broker of Apache Kafka, with the properties that a Holdfast broker takes."""

    def __init__(self, directory: str | Path, *, java_options: Sequence[str] = SMALL, **others: Any) -> None:
        super().__init__(directory, **others)
        self._java_options = java_options

    def start(self) -> None:
        """Start the broker without waiting for it."""
        assert not self.running, "the broker is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "kafka.properties"
        with open(config, "w", encoding="latin-1") as file:
            javaproperties.dump({**_PROPERTIES, **self.properties}, file, timestamp=False)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*java(self.directory, self._java_options), "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
                process_group=0,
            )
