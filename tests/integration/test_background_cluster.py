"""A background cluster is started, used, stopped, and restarted on the same data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.integration.clients import consume, create_topic, produce
from tests.integration.programs import run_module
from tests.integration.test_local_cluster import processes_naming
from tests.integration.test_replication import values


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script that starts a cluster in the background, and return when the script does."""
    return run_module("holdfast_log.broker.tools.background_cluster", *arguments)


def bootstrap_of(started: subprocess.CompletedProcess[str]) -> str:
    assert started.returncode == 0, started.stderr
    return started.stdout.splitlines()[0].removeprefix("bootstrap.servers=")


def test_a_cluster_serves_until_it_is_stopped_and_keeps_its_records(tmp_path: Path) -> None:
    where = ("--directory", str(tmp_path / "cluster"))
    size = ("-n", "2")
    try:
        bootstrap = bootstrap_of(cluster("start", *size, *where))
        assert len(bootstrap.split(",")) == 2
        create_topic(bootstrap, "events", 1, 2)
        produce(bootstrap, "events", values(100), acks="all")

        again = cluster("start", *where)
        assert again.returncode == 1
        assert "runs in" in again.stderr

        stopped = cluster("stop", *where)
        assert stopped.returncode == 0, stopped.stderr
        assert processes_naming(tmp_path) == {}

        bootstrap = bootstrap_of(cluster("start", *size, *where))
        assert consume(bootstrap, "events", 100) == values(100)
    finally:
        cluster("stop", *where)
    assert cluster("stop", *where).returncode == 1


def test_the_others_live_on_when_a_broker_is_killed_and_it_can_be_started_again(tmp_path: Path) -> None:
    where = ("--directory", str(tmp_path / "cluster"))
    try:
        bootstrap = bootstrap_of(cluster("start", "-n", "2", *where))
        create_topic(bootstrap, "events", 1, 2)
        produce(bootstrap, "events", values(10), acks="all")
        assert cluster("status", *where).returncode == 0
        assert "already runs" in cluster("start", "--broker", "2", *where).stderr
        killed = brokers(where)[2]
        assert isinstance(killed, int)

        os.kill(killed, signal.SIGKILL)

        while brokers(where)[2] is not None:
            time.sleep(0.1)
        shown = cluster("status", *where)
        assert shown.returncode == 1 and "broker 2 at " in shown.stdout
        assert "has ended (killed by SIGKILL)" in shown.stdout
        assert "cluster-start.sh --broker 2 starts it again" in (tmp_path / "cluster/cluster.log").read_text()
        assert consume(bootstrap.split(",")[0], "events", 10) == values(10)

        again = cluster("start", "--broker", "2", *where)

        assert again.returncode == 0 and again.stdout.startswith("Broker 2 serves again at "), again.stderr
        assert cluster("status", *where).returncode == 0
        assert brokers(where)[2] not in (None, killed)
        assert "has no broker 7, only 1, 2" in cluster("start", "--broker", "7", *where).stderr
    finally:
        cluster("stop", *where)
    assert "no cluster runs" in cluster("status", *where).stderr


def brokers(where: tuple[str, str]) -> dict[int, int | None]:
    """The process of each broker, None for one that has ended."""
    shown = json.loads(cluster("status", "--json", *where).stdout)
    return {broker["id"]: broker["pid"] for broker in shown["brokers"]}


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    started = cluster("start", "--directory", str(tmp_path), "-n", "1", "--override", "num.partitions=0")
    assert started.returncode == 1
    assert "num.partitions" in started.stderr
    assert processes_naming(tmp_path) == {}
