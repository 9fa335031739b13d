"""Apache Kafka's class path: Maven is asked once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import apache_kafka
from benchmarks.apache_kafka import BROKER, VERSION, NoKafkaError, class_path, sum_of


def test_a_class_path_is_used_again_while_its_jars_are_there_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = [tmp_path / "kafka.jar", tmp_path / "clients.jar"]
    for jar in jars:
        jar.write_text(jar.name)
    resolved = ":".join(map(str, jars))
    asked: list[object] = []

    def maven(command: list[str], **_: object) -> None:
        asked.append(command)
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOLDFAST_KAFKA_BROKER_JARS", raising=False)
    monkeypatch.setitem(apache_kafka._SUMS, (BROKER, VERSION), sum_of(resolved))
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", maven)
    with pytest.raises(NoKafkaError):
        class_path.__wrapped__()
    asked.clear()
    (tmp_path / "cache" / "apache-kafka" / VERSION / "class-path").write_text(resolved)

    assert class_path.__wrapped__() == resolved
    assert asked == []

    jars[0].write_text("changed")
    with pytest.raises(NoKafkaError):
        class_path.__wrapped__()
    assert asked
