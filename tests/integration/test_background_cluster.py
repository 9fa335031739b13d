"""A background cluster is started, used, stopped, and restarted on the same data."""

from __future__ import annotations

import subprocess
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


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    started = cluster("start", "--directory", str(tmp_path), "-n", "1", "--override", "num.partitions=0")
    assert started.returncode == 1
    assert "num.partitions" in started.stderr
    assert processes_naming(tmp_path) == {}
