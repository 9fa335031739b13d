"""Apache Kafka itself, from Maven's jars: brokers in ZooKeeper and in KRaft mode, for measurements and tests
beside them.

The jars of the version with ZooKeeper are those of `HOLDFAST_KAFKA_BROKER_JARS`, a Java class path, if it is
set. All others are what Maven resolves: from the local repository if it has them, otherwise from Maven
Central. Their contents must be those whose sum is kept here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import javaproperties

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.private_files import make_private
from holdfast_log.coordinator.tools.directories import cache_directory

VERSION = "3.9.1"
"""The last version of Kafka with brokers in ZooKeeper mode."""
KRAFT_VERSION = "4.1.1"
"""The version of Kafka whose brokers are measured in KRaft mode, the only one since 4.0."""
BROKER = "kafka_2.13"
"""Apache Kafka's broker, with the oldest of its tools: the artifact in Maven's group org.apache.kafka."""
TOOLS = "kafka-tools"
STREAMS = "kafka-streams"
CONNECT = "connect-runtime+connect-file"
"""Two artifacts: Kafka Connect, and its connectors that read and write files."""
_SUMS = {
    (BROKER, VERSION): "7ea79b6a1e9d0254b48b596a4c4ff7666a67bec4cce0f1d9a3488e920f35e67f",
    (BROKER, KRAFT_VERSION): "fe4178ec15480c6587e31d766bb464eb7aa3ae1d852c2c13f5fb08d7107facb4",
    (TOOLS, VERSION): "769dcede3b382c570134c38a6a2d8282a4fc2a1907c8184574b94c92dfd3fe59",
    (TOOLS, KRAFT_VERSION): "a497653b982d19d3fe99a6b7f9216083213880af9b6abd857b830439ce4f8ba2",
    (STREAMS, VERSION): "d4a6cfec3509799b10bbf510d769dd2419715c6be028d76d71722703f690558e",
    (CONNECT, VERSION): "39b3d70ad18d2296e682d3169dbca08c78460d65e494d5e1829132e023c1c043",
}
"""SHA-256 of the lines "sum name" of all jars of a class path, sorted by name."""
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java that start a broker or tool fast and with little memory."""
KAFKAS_OWN = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""Options of Java that kafka-server-start.sh gives a broker."""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast.tests</groupId><artifactId>apache-kafka</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    {artifacts}
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>{log}</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_ARTIFACT = """\
<dependency>
      <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>"""
_LOGS = {VERSION: "slf4j-reload4j", KRAFT_VERSION: "slf4j-simple"}
"""What writes a broker's log to its output."""
_RESOLVE_TIMEOUT_S = 240
_FORMAT_TIMEOUT_S = 60
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Of every cluster in KRaft mode: none of them meets another."""
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


class WrongJarsError(Exception):
    """Maven's jars are not those whose sum is known."""


@cache
def class_path(version: str = VERSION, artifacts: str = BROKER) -> str:
    """The class path of Kafka's broker and tools, or of other artifacts of its, joined by "+". Raises
    `NoKafkaError`, and `WrongJarsError` if the content of the jars is not as expected."""
    if (version, artifacts) == (VERSION, BROKER) and (given := os.environ.get("HOLDFAST_KAFKA_BROKER_JARS")):
        return given
    if not shutil.which("java") or not shutil.which("mvn"):
        raise NoKafkaError("Apache Kafka needs java and mvn, or HOLDFAST_KAFKA_BROKER_JARS")
    name = version if artifacts == BROKER else f"{artifacts}-{version}"
    directory = cache_directory() / "apache-kafka" / name
    make_private(directory)
    wanted = "\n    ".join(
        _ARTIFACT.format(artifact=artifact, version=version) for artifact in artifacts.split("+")
    )
    found = directory / "class-path"
    if (known := _resolved_before(found, _SUMS[artifacts, version])) is not None:
        return known  # Maven takes seconds to find out.
    (directory / "pom.xml").write_text(_POM.format(artifacts=wanted, log=_LOGS[version]))
    # Strict: a download whose checksum is not the repository's fails.
    for online in (["-o"], ["--strict-checksums"]):
        command = ["mvn", "-q", "-B", *online, "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        try:
            subprocess.run(
                command, cwd=directory, capture_output=True, timeout=_RESOLVE_TIMEOUT_S, check=True
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            continue
        resolved = found.read_text().strip()
        if (actual := sum_of(resolved)) != (expected := _SUMS[artifacts, version]):
            raise WrongJarsError(
                f"the jars of Apache Kafka {name} have the sum {actual}, not {expected}. Remove "
                f"org/apache/kafka from Maven's local repository, and try again"
            )
        return resolved
    raise NoKafkaError(f"Maven has not resolved org.apache.kafka:{artifacts}:{version}")


def _resolved_before(found: Path, expected: str) -> str | None:
    """The class path that Maven has written to this file earlier, if its jars have the expected sum."""
    try:
        resolved = found.read_text().strip()
        return resolved if sum_of(resolved) == expected else None
    except OSError:
        return None


def sum_of(jars: str) -> str:
    """The sum of the jars of a class path, by their names and contents."""
    lines = []
    for jar in sorted(map(Path, jars.split(os.pathsep)), key=lambda path: path.name):
        with open(jar, "rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()} {jar.name}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def java(
    directory: Path, options: Sequence[str] = SMALL, version: str = VERSION, artifacts: str = BROKER
) -> list[str]:
    """The command that runs a class of Kafka, without the class. It logs to standard output, with a file of
    settings in `directory`. Raises `NoKafkaError`."""
    log4j = directory / "log4j.properties"
    log4j.write_text(_LOG4J)
    return ["java", *options, f"-Dlog4j.configuration=file:{log4j}", "-cp", class_path(version, artifacts)]


class KafkaBroker(BackgroundBroker):
    """A broker of Apache Kafka in ZooKeeper mode, with the properties that a Holdfast broker takes."""

    can_restrict_znodes = False
    version = VERSION

    def __init__(self, directory: str | Path, *, java_options: Sequence[str] = SMALL, **others: Any) -> None:
        super().__init__(directory, **others)
        self._java_options = java_options

    def all_properties(self) -> dict[str, str]:
        """The properties of the broker's file."""
        return {**_PROPERTIES, **self.properties}

    def start(self) -> None:
        """Start the broker without waiting for it."""
        assert not self.running, "the broker is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "kafka.properties"
        with open(config, "w", encoding="latin-1") as file:
            javaproperties.dump(self.all_properties(), file, timestamp=False)
        self._prepare(config)
        command = java(self.directory, self._java_options, self.version)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
                process_group=0,
            )

    def _prepare(self, config: Path) -> None:
        """Do what the version needs before a start."""


class KraftBroker(KafkaBroker):
    """A broker of Apache Kafka that is also one of the controllers: `voters` has the controllers' addresses
    by the brokers' ids, the same for all brokers of a cluster."""

    version = KRAFT_VERSION

    def __init__(self, directory: str | Path, *, voters: Mapping[int, str], **others: Any) -> None:
        super().__init__(directory, zookeeper_connect="", **others)
        self._voters = voters

    def all_properties(self) -> dict[str, str]:
        voters = ",".join(f"{number}@{address}" for number, address in self._voters.items())
        old = {name for name in (*_PROPERTIES, *self.properties) if name.startswith("zookeeper.")}
        properties = {
            name: value for name, value in super().all_properties().items() if name not in {*old, "broker.id"}
        }
        protocols = properties["listener.security.protocol.map"]
        return properties | {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id),
            "listeners": f"{properties['listeners']},CONTROLLER://{self._voters[self.broker_id]}",
            "advertised.listeners": properties["listeners"],
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
        }

    def _prepare(self, config: Path) -> None:
        if self.log_dirs[0].exists():
            return
        command = [*java(self.directory, SMALL, self.version), "kafka.tools.StorageTool", "format"]
        subprocess.run(
            [*command, "--cluster-id", _CLUSTER_ID, "--config", str(config)],
            capture_output=True,
            check=True,
            timeout=_FORMAT_TIMEOUT_S,
        )
