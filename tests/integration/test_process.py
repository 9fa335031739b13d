"""The broker process: its ready file, its stop by script and by signal, and the files it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.cluster import Cluster
from tests.integration.clients import create_topic, produce
from tests.zookeeper import ZooKeeperProcess

TIMEOUT_S = 180


def command(zookeeper: str, directory: Path, *more: str) -> list[str]:
    properties = directory / "server.properties"
    properties.write_text(
        f"zookeeper.connect={zookeeper}\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={directory / 'data'}\n"
    )
    return [sys.executable, "-m", "holdfast_log.broker", str(properties), *more]


def start(zookeeper: str, directory: Path) -> tuple[subprocess.Popen[str], dict[str, object]]:
    """Start a broker that chooses its own id and port. Returns its process and its ready file's content."""
    process = subprocess.Popen(
        command(zookeeper, directory, "--ready-file", str(directory / "ready.json")),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if " started (" in line:
            break
    return process, json.loads((directory / "ready.json").read_text())


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends."""
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_a_broker_writes_its_ready_file_and_cleans_up_when_stopped(zookeeper: str, tmp_path: Path) -> None:
    process, described = start(zookeeper, tmp_path)
    assert described["pid"] == process.pid
    assert described["broker.id"] == 1001  # the first above reserved.broker.max.id
    (listener,) = described["listeners"]  # type: ignore[misc]
    address = str(listener).removeprefix("PLAINTEXT://")
    assert not address.endswith(":0")
    create_topic(address, "events")
    produce(address, "events", [b"x"])
    assert (tmp_path / "data" / "broker.pid").read_text() == f"{process.pid}\n"

    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    assert "Received SIGTERM: stopping the broker" in output
    assert "stopped" in output
    assert not (tmp_path / "ready.json").exists()
    assert not (tmp_path / "data" / "broker.pid").exists()
    assert not (tmp_path / "data" / ".zookeeper-session").exists()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "broker.id=1001" in (tmp_path / "data" / "meta.properties").read_text()


def test_a_broker_that_gets_a_second_signal_exits_with_status_0(zookeeper: str, tmp_path: Path) -> None:
    process, _ = start(zookeeper, tmp_path)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_stop_that_waits_for_a_controller_that_hangs_ends_in_time(cluster: Cluster) -> None:
    controller, broker = (cluster.add({"stop.timeout.ms": "2000"}) for _ in range(2))
    for number, each in enumerate((controller, broker), 1):
        each.start()
        each.wait_ready(number)
    controller.pause()
    try:
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.wait() == 1
    finally:
        controller.resume()
    assert "has not stopped within 2000 ms (stop.timeout.ms): the process ends" in broker.log
    broker.start()
    broker.wait_ready(2)


def test_a_broker_stops_in_order_while_zookeeper_is_away(
    zookeeper_process: Callable[..., ZooKeeperProcess], tmp_path: Path
) -> None:
    server = zookeeper_process()
    process, _ = start(server.connect, tmp_path)
    server.kill()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broker_that_waits_for_zookeeper_stops_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("127.0.0.1:1", tmp_path, "--override", "zookeeper.connection.timeout.ms=600000"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    until_line(process.stdout, "connecting to ZooKeeper")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output


def until_line(output: Iterable[str], part: str) -> None:
    """Read lines until one has a part."""
    assert any(part in line for line in output)


def test_the_stop_script_ends_the_broker_of_its_properties_file(zookeeper: str, tmp_path: Path) -> None:
    process, _ = start(zookeeper, tmp_path)
    stop = [
        sys.executable,
        "-m",
        "holdfast_log.broker.tools.server_stop",
        str(tmp_path / "server.properties"),
    ]
    ended = run(stop)
    assert ended.returncode == 0, ended.stderr
    assert f"process {process.pid}" in ended.stdout
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    again = run(stop)
    assert again.returncode == 1
    assert "no broker is running" in again.stderr


def test_a_pid_that_now_belongs_to_another_program_is_left_alone(zookeeper: str, tmp_path: Path) -> None:
    command(zookeeper, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker.pid").write_text(f"{os.getpid()}\n")
    stop = [
        sys.executable,
        "-m",
        "holdfast_log.broker.tools.server_stop",
        str(tmp_path / "server.properties"),
    ]
    ended = run(stop)
    assert ended.returncode == 1
    assert "no broker is running" in ended.stderr


def test_a_start_without_zookeeper_fails_with_the_reason(tmp_path: Path) -> None:
    ended = run(command("127.0.0.1:1", tmp_path, "--override", "zookeeper.connection.timeout.ms=1000"))
    assert ended.returncode == 1
    assert "ZooKeeper at 127.0.0.1:1 (zookeeper.connect) did not answer within 1000 ms" in ended.stderr


def test_a_start_on_another_brokers_log_directory_fails(cluster: Cluster, tmp_path: Path) -> None:
    (broker,) = cluster.start()
    broker.stop()
    ended = run(
        command(
            cluster.zookeeper_connect,
            tmp_path,
            "--override",
            f"log.dirs={broker.log_dirs[0]}",
            "--override",
            "broker.id=7",
        )
    )
    assert ended.returncode == 1
    assert "the log directories belong to broker 1, not to broker 7" in ended.stderr


def test_a_start_on_a_port_in_use_fails_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    (broker,) = cluster.start()
    ended = run(
        command(cluster.zookeeper_connect, tmp_path, "--override", f"listeners=PLAINTEXT://{broker.address}")
    )
    assert ended.returncode == 1
    assert (
        f"Stopping the broker: listener PLAINTEXT://{broker.address} cannot be opened: another program"
        in ended.stderr
    )


def refused(command: list[str]) -> str:
    """Run a broker that must fail to start, with one error line and no traceback. Returns the line."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "Traceback" not in ended.stdout
    return line


def test_a_second_broker_on_a_log_directory_in_use_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    (broker,) = cluster.start()
    log_dir = f"log.dirs={broker.log_dirs[0]}"
    start = command(cluster.zookeeper_connect, tmp_path, "--override", log_dir, "--override", "broker.id=1")
    line = refused(start)
    assert f"log directory {broker.log_dirs[0]} is in use by another broker: stop that broker" in line
    create_topic(cluster.bootstrap, "events")
    assert produce(cluster.bootstrap, "events", [b"undisturbed"]) == [0]
    broker.kill()
    broker.start()  # A lock left behind by the kill would prevent this start.
    broker.wait_ready()


def test_a_second_broker_with_the_id_of_a_live_one_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    overrides = (
        "--override", "broker.id=1", "--override", "zookeeper.session.timeout.ms=2000",
        "--override", "zookeeper.connection.timeout.ms=60000",
    )  # fmt: skip
    line = refused(command(cluster.zookeeper_connect, tmp_path, *overrides))
    missing = re.search(r"are missing: (\S+) \(last at", line)
    assert missing is not None and "give this broker another broker.id" in line
    lost = f"log.dirs.lost={missing[1]}"
    line = refused(command(cluster.zookeeper_connect, tmp_path, *overrides, "--override", lost))
    assert "broker id 1 belongs to a live broker" in line
    assert "give this broker another broker.id" in line


def test_a_start_on_log_directories_of_another_cluster_is_refused(zookeeper: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    identity = "version=0\nbroker.id=1\ncluster.id=another\n"
    (tmp_path / "data" / "meta.properties").write_text(identity)
    line = refused(command(zookeeper, tmp_path))
    assert "the log directories belong to cluster another" in line
    assert "correct zookeeper.connect" in line
    assert (tmp_path / "data" / "meta.properties").read_text() == identity


def test_a_start_with_unusable_log_directories_fails_with_the_reason(zookeeper: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    line = refused(command(zookeeper, tmp_path))
    assert "none of the log directories (log.dirs) can be used" in line
    assert f"{tmp_path / 'data'}: File exists. Give the broker's user directories" in line


def test_a_killed_broker_restarts_without_waiting_for_its_old_session(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, {"zookeeper.session.timeout.ms": "60000"})  # It outlives a slow start.
    broker.kill()
    broker.start()
    broker.wait_ready()
    assert "of an earlier process that was killed" in broker.log
    assert "is still registered by another session" not in broker.log
