"""Brokers of the nursery are processes like those that are started alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker, BrokerProcessError
from tests.cluster import Cluster
from tests.forked_brokers import ForkedBroker
from tests.integration.waiting import until

LEAVES_A_BROKER = """
import os, sys
from tests.forked_brokers import ForkedBroker
broker = ForkedBroker(sys.argv[1], broker_id=1, zookeeper_connect="127.0.0.1:1")
broker.start()
print(broker.pid, flush=True)
os._exit(0)
"""


def files_of(pid: int, directory: str) -> set[str]:
    """What each open file of a process is, without numbers and without the name of its directory: sockets,
    pipes, paths."""
    names = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(entry).partition("[")[0].rstrip("0123456789")
        except FileNotFoundError:
            continue  # Closed in between.
        names.add(name.replace(directory, "directory"))
    return names


def test_a_broker_of_the_nursery_differs_from_one_that_is_started_alone_in_its_imports_only(
    cluster: Cluster, tmp_path: Path
) -> None:
    (forked,) = cluster.start()
    alone = BackgroundBroker(tmp_path / "alone", broker_id=2, zookeeper_connect=cluster.zookeeper_connect)
    alone.start()
    try:
        alone.wait_ready(2)
        forked.wait_ready(2)
        for broker in (forked, alone):
            assert os.getpgid(broker.pid) == broker.pid
        # A broker may have a file open for a moment, such as a checkpoint that it writes. What the nursery
        # has left open stays open.
        until(lambda: files_of(forked.pid, "broker-1") == files_of(alone.pid, "alone"))
    finally:
        alone.stop()


def test_the_exit_status_is_that_of_the_broker(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    assert broker.exit_status is None
    os.kill(broker.pid, signal.SIGTERM)
    assert broker.wait() == 0

    broker.start()
    os.kill(broker.pid, signal.SIGKILL)
    assert broker.wait() == -signal.SIGKILL
    assert broker.exit_status == -signal.SIGKILL

    broker.properties["log.retention.ms"] = "soon"
    broker.start()
    with pytest.raises(BrokerProcessError, match=r"Cannot start: .*log\.retention\.ms"):
        broker.wait_ready()
    assert broker.exit_status == 1


def test_a_broker_has_the_environment_of_its_start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = cluster.add({"zookeeper.connect": "${env:PLACE}"})
    monkeypatch.setenv("PLACE", cluster.zookeeper_connect)
    broker.start()
    broker.wait_ready()


def test_a_broker_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_A_BROKER, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    left = Path(f"/proc/{done.stdout.strip()}")

    until(lambda: not left.exists())


def test_a_wait_for_the_end_ends_in_time(cluster: Cluster) -> None:
    (broker,) = cluster.start()

    with pytest.raises(BrokerProcessError, match="did not end within 0 s"):
        broker.wait(0.01)

    assert isinstance(broker, ForkedBroker) and broker.running
