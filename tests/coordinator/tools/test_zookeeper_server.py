"""The ZooKeeper server of the scripts: started in the background, found by its pid file, stopped."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from holdfast_log.coordinator.tools import zookeeper_jars, zookeeper_server
from holdfast_log.coordinator.tools.directories import CACHE_VARIABLE
from holdfast_log.coordinator.tools.zookeeper_process import (
    HOST,
    ZooKeeperProcess,
    ensemble,
    free_port,
    start_all,
)
from holdfast_log.coordinator.tools.zookeeper_server import (
    ZooKeeperServerError,
    answers,
    main,
    read_config,
    server_command,
    write_config,
)


def await_answer(port: int) -> None:
    """Wait until the server answers, at most until the test's time limit."""
    while not answers(HOST, port):
        time.sleep(0.02)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "zookeeper.properties"
    write_config(
        path,
        {
            "dataDir": str(tmp_path / "data"),
            "clientPort": "1",
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
        },
    )
    return path


def test_a_daemon_is_started_once_and_stopped(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["start", "-daemon", str(config), "--override", f"clientPort={port}"]) == 0
    try:
        socket.create_connection((HOST, port)).close()
        await_answer(port)
        assert main(["start", "-daemon", str(config)]) == 1
        assert "already runs" in capfd.readouterr().err
    finally:
        assert main(["stop", str(config)]) == 0
    assert not answers(HOST, port)
    assert main(["stop", str(config)]) == 1
    assert "no ZooKeeper server runs" in capfd.readouterr().err


def test_the_configuration_of_the_project_removes_old_snapshots_and_logs() -> None:
    """By default ZooKeeper keeps all of them, until its disk is full."""
    values = read_config(Path(__file__).parents[3] / "config" / "zookeeper.properties")
    assert int(values["autopurge.snapRetainCount"]) >= 3
    assert int(values["autopurge.purgeInterval"]) > 0


def test_a_port_in_use_is_named_in_the_error(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        assert main(["start", str(config), "--override", f"clientPort={port}"]) == 1
    assert f"cannot listen on {HOST}:{port}: Address already in use. If another" in capfd.readouterr().err


def test_starting_a_daemon_that_exits_at_once_is_an_error(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--override", f"clientPort={free_port()}", "--override", "tickTime=soon"]
    assert main(["start", "-daemon", str(config), *wrong]) == 1
    said = capfd.readouterr().err
    assert "ZooKeeper did not start" in said and "zookeeper.out" in said and "soon" in said


def test_a_pid_that_now_belongs_to_another_program_is_left_alone(config: Path) -> None:
    data_dir = Path(read_config(config)["dataDir"])
    data_dir.mkdir()
    (data_dir / zookeeper_server.PID_FILE).write_text(str(os.getpid()))
    with pytest.raises(ZooKeeperServerError, match="no ZooKeeper server runs"):
        zookeeper_server.stop(config)


def test_wrong_usage_is_explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["start", str(tmp_path / "missing.properties")]) == 1
    assert "missing.properties" in capfd.readouterr().err
    assert main(["start", "x.properties", "--override", "nonsense"]) == 2
    assert "Usage:" in capfd.readouterr().err


def test_missing_jars_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(ZooKeeperServerError, match=r"jgo, which is not installed: pip install .*\[server\]"):
        server_command("zookeeper.properties")


def test_data_survives_a_kill(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path)
    server.start()
    try:
        server.wait_ready()
        server.restart()
        await_answer(server.client_port)
        assert list((tmp_path / "data" / "version-2").iterdir())
    finally:
        server.stop()


def test_an_ensemble_answers_at_every_member(tmp_path: Path) -> None:
    servers = ensemble(tmp_path)
    try:
        start_all(servers)
        for server in servers:
            await_answer(server.client_port)
    finally:
        for server in servers:
            server.stop()
