"""A local cluster that ends, for whatever reason, ends all processes that it has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.broker.tools.local_cluster import LocalCluster

UP = "import os, time; print(os.environ['HOLDFAST_BOOTSTRAP'], flush=True); time.sleep(600)"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A local cluster whose command is running."""
    command = [sys.executable, "-m", "holdfast_log.broker.tools.local_cluster", "--directory", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--", sys.executable, "-c", UP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("127.0.0.1:")
    yield process
    process.kill()
    process.communicate()


def processes_naming(directory: Path) -> dict[int, str]:
    """The processes whose command line contains the directory's path, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if str(directory) in line:
                found[int(entry.name)] = line
    return found


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the cluster to end. Returns its exit status and its error output."""
    _, errors = process.communicate(timeout=180)
    return process.returncode, errors


def test_ctrl_c_ends_all_processes(running: subprocess.Popen[str], tmp_path: Path) -> None:
    assert len(processes_naming(tmp_path)) == 3

    os.killpg(running.pid, signal.SIGINT)

    assert end(running)[0] == 130
    assert processes_naming(tmp_path) == {}
    assert list((tmp_path / "broker-1" / "data").glob(".kafka_cleanshutdown"))


def test_sigterm_to_the_front_process_ends_all_processes(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.terminate()

    assert end(running)[0] == 130
    assert processes_naming(tmp_path) == {}


def test_a_broker_that_exits_while_a_command_runs_ends_the_whole_cluster(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    (broker,) = [pid for pid, line in processes_naming(tmp_path).items() if "-m holdfast_log.broker " in line]

    os.kill(broker, signal.SIGKILL)

    status, errors = end(running)
    assert status == 1
    assert "broker 1 has ended" in errors
    assert processes_naming(tmp_path) == {}


def test_the_cluster_exits_with_its_commands_status(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast_log.broker.tools.local_cluster", "--directory", str(tmp_path)]

    done = subprocess.run(
        [*command, "--", sys.executable, "-c", "raise SystemExit(7)"], timeout=120, check=False
    )

    assert done.returncode == 7
    assert processes_naming(tmp_path) == {}


def test_a_broker_reuses_its_former_port_if_it_is_free(tmp_path: Path) -> None:
    properties = tmp_path / "broker-1" / "server.properties"
    properties.parent.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        properties.write_text(f"listeners=PLAINTEXT\\://127.0.0.1\\:{port}\n")
        assert LocalCluster(tmp_path).brokers[0].port != port
    assert LocalCluster(tmp_path).brokers[0].port == port
    properties.write_text("listeners=nonsense\n")
    assert LocalCluster(tmp_path).brokers[0].port > 0
