"""The broker's log has one line for each change that a client makes, with its sender."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.admin.configs import ConfigChange, ConfigResource
from holdfast_log.clients.admin.topics import NewTopic
from holdfast_log.protocol.configs import ResourceType
from tests.cluster import Cluster
from tests.integration.waiting import until

HOME = Path(__file__).parent.parent.parent
BY = "by User:ANONYMOUS, client 'operator', at 127.0.0.1 (holdfast_log.broker.requests.audit)"


def lines_with(log: str, text: str) -> list[str]:
    return [line for line in log.splitlines() if text in line]


def test_each_change_of_a_topic_has_one_line_with_its_sender(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    with Admin({"bootstrap.servers": cluster.bootstrap, "client.id": "operator"}) as admin:
        admin.create_topics([NewTopic("orders", 2, 1, {"retention.ms": "5000"})])
        admin.create_topics([NewTopic("only-checked", 1, 1)], validate_only=True)
        admin.create_partitions({"orders": 4})
        change = ConfigChange("max.message.bytes", "54321")
        admin.alter_configs({ConfigResource(ResourceType.TOPIC, "orders"): [change]})
        admin.delete_topics(["orders"])

    log = broker.log
    for told in (
        "INFO Created topic orders with 2 partitions, 1 replicas each, settings {'retention.ms': '5000'}",
        "INFO Topic orders now has 4 partitions",
        "INFO Altered settings of topic orders: {'max.message.bytes': '54321'}",
        "INFO Deleted topic orders with all its records",
    ):
        (line,) = lines_with(log, told)
        assert line.endswith(f"{told[5:]}, {BY}")
    assert lines_with(log, "only-checked") == []


def test_brokers_started_as_daemons_keep_a_log_each_and_append_to_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Both brokers have the same id, as in two clusters on one machine."""
    logs = tmp_path / "logs"
    pids: list[int] = []
    try:
        pids.append(start_daemon(logs, cluster.zookeeper_connect, tmp_path / "one"))
        pids.append(start_daemon(logs, cluster.zookeeper_connect, tmp_path / "two"))
        paths = (logs / "server-5.log", logs / "server-5-2.log")

        def starts() -> list[int]:
            return [path.read_text().count("INFO started") for path in paths]

        until(lambda: starts() == [1, 1])  # A broker says so just after the script knows that it serves.
        stop(pids.pop(0))
        pids.append(start_daemon(logs, cluster.zookeeper_connect, tmp_path / "one"))
        until(lambda: starts() == [2, 1])
        assert {path.name for path in logs.glob("*.out*")} == {"server-5.out", "server-5-2.out"}
    finally:
        for pid in pids:
            stop(pid)


def test_a_daemon_that_cannot_start_says_why_and_where_its_log_is(cluster: Cluster, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    pid = start_daemon(logs, cluster.zookeeper_connect, tmp_path / "one")
    try:
        second = run_daemon(logs, cluster.zookeeper_connect, tmp_path / "one")
        unreadable = run_daemon(logs, cluster.zookeeper_connect, tmp_path / "two", "num.partitions=many")
    finally:
        stop(pid)

    assert second.returncode == 1
    assert "Cannot start: " in second.stderr and f"its log is {logs / 'server-5-2.log'}\n" in second.stderr
    assert "Cannot start: " in (logs / "server-5-2.out").read_text()
    assert (logs / "server-5.out").read_text() == ""
    assert unreadable.returncode == 1
    assert "num.partitions" in unreadable.stderr and "the broker did not start\n" in unreadable.stderr


def start_daemon(logs: Path, zookeeper_connect: str, data: Path) -> int:
    """Start a broker of id 5 in a cluster of its own by the script. Returns the process id when it serves."""
    done = run_daemon(logs, zookeeper_connect, data)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"The broker has started \(process (\d+)\)\. Its log is (.*)\n", done.stdout)
    assert found is not None, done.stdout
    assert Path(found[2]).exists()
    return int(found[1])


def run_daemon(
    logs: Path, zookeeper_connect: str, data: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """What the script answers that starts a broker in the background."""
    settings = {
        "broker.id": "5",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "zookeeper.connect": f"{zookeeper_connect}-{data.name}",
    }
    given = [*(f"{key}={value}" for key, value in settings.items()), *more]
    overrides = [part for each in given for part in ("--override", each)]
    return subprocess.run(
        [HOME / "scripts" / "server-start.sh", "-daemon", HOME / "config" / "server.properties", *overrides],
        env={**os.environ, "LOG_DIR": str(logs)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def stop(pid: int) -> None:
    """Stop a broker that is no child of this process, and wait for its end."""
    os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + 120
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline_s, f"process {pid} does not stop"
        time.sleep(0.05)
