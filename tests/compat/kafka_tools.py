"""Apache Kafka's own command-line tools, from a local Maven repository.

`mvn dependency:get -Dartifact=org.apache.kafka:kafka_2.13:3.9.1` puts them there; tests that need them are
skipped otherwise.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.compat.java_programs import Done, run_tool

VERSION = "3.9.1"
_GROUPS = (
    "com/fasterxml/jackson", "com/typesafe/scala-logging", "com/yammer/metrics", "commons-validator",
    "net/sf/jopt-simple", "net/sourceforge/argparse4j", "org/scala-lang", "org/slf4j/slf4j-api",
)  # fmt: skip
"""Groups of the libraries that the tools need, besides Kafka itself."""


def class_path() -> str | None:
    """The jars of Kafka's tools: `HOLDFAST_KAFKA_TOOLS`, or those in the local Maven repository, if any."""
    if given := os.environ.get("HOLDFAST_KAFKA_TOOLS"):
        return given
    repository = Path.home() / ".m2" / "repository"
    kafka = sorted(repository.glob(f"org/apache/kafka/*/{VERSION}/*{VERSION}.jar"))
    if not any(jar.name.startswith("kafka_2.13") for jar in kafka):
        return None
    libraries = [jar for group in _GROUPS for jar in sorted((repository / group).rglob("*.jar"))]
    return ":".join(map(str, [*kafka, *libraries]))


def done_by_kafka_tool(main_class: str, *arguments: str) -> Done:
    """Run one of Kafka's tools. Skips the test if there are none."""
    jars = class_path()
    if jars is None or not shutil.which("java"):
        pytest.skip(f"no Kafka {VERSION} tools in ~/.m2 or HOLDFAST_KAFKA_TOOLS, or no Java")
    return run_tool(jars, main_class, *arguments)


def run_kafka_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools, and return its output. Skips the test if there are none, fails where it ends
    with an error."""
    done = done_by_kafka_tool(main_class, *arguments)
    assert done.status == 0, done.output + done.errors[-3000:]
    return done.output
