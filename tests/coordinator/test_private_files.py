"""Servers create directories for themselves alone, and neither write through links nor believe strangers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_log.broker.log.settings import log_directories
from holdfast_log.broker.process import pid_file
from holdfast_log.broker.process.directory_locks import DirectoryLocks
from holdfast_log.broker.process.log_file import open_log_file
from holdfast_log.broker.settings.command_line import read_settings
from holdfast_log.coordinator.private_files import make_private, read_pid, write_pid
from holdfast_log.coordinator.tools.directories import STATE_VARIABLE
from holdfast_log.coordinator.tools.zookeeper_server import read_config

HOME = Path(__file__).parent.parent.parent
_NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_and_its_parents_are_for_their_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b")
        make_private(tmp_path / "a" / "b")
        DirectoryLocks([str(tmp_path / "data" / "one")])
        open_log_file(tmp_path / "var" / "log", "server-1", {}).close()
    finally:
        os.umask(old)

    for made in ("a", "a/b", "data", "data/one", "var", "var/log"):
        assert mode(tmp_path / made) == 0o700


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)

    make_private(tmp_path / "shared")

    assert mode(tmp_path / "shared") == 0o770


def test_a_process_id_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    for name in ("broker.pid", "broker.pid.tmp"):
        (tmp_path / name).symlink_to(precious)

    pid_file.write(tmp_path / "broker.pid")

    assert precious.read_text() == "keep me"
    assert not (tmp_path / "broker.pid").is_symlink()
    assert pid_file.read(tmp_path / "broker.pid") == os.getpid()
    pid_file.remove(tmp_path / "broker.pid")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


def test_a_lock_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").symlink_to(tmp_path / "elsewhere")

    DirectoryLocks([str(tmp_path / "data")])

    assert not (tmp_path / "elsewhere").exists()


def test_a_process_id_is_read_from_a_file_of_its_own_only(tmp_path: Path) -> None:
    write_pid(tmp_path / "pid", os.getpid())
    (tmp_path / "link").symlink_to(tmp_path / "pid")
    (tmp_path / "words").write_text("soon")
    os.mkfifo(tmp_path / "pipe")

    assert read_pid(tmp_path / "pid") == os.getpid()
    for name in ("link", "words", "pipe", "missing"):
        assert read_pid(tmp_path / name) is None


def test_the_id_of_a_process_that_has_ended_is_none(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write_pid(tmp_path / "pid", ended.pid)

    assert read_pid(tmp_path / "pid") is None


@only_root
def test_a_user_can_name_only_processes_of_their_own(tmp_path: Path) -> None:
    write_pid(tmp_path / "pid", os.getpid())
    os.chown(tmp_path / "pid", _NOBODY, _NOBODY)

    assert read_pid(tmp_path / "pid") is None


def test_data_are_by_default_in_the_directory_of_the_users_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))

    broker = read_settings(str(HOME / "config" / "server.properties"), [])
    zookeeper = read_config(HOME / "config" / "zookeeper.properties")

    assert log_directories(broker) == (str(tmp_path / "data"),)
    assert zookeeper["dataDir"] == str(tmp_path / "zookeeper")
    named = read_settings(str(HOME / "config" / "server.properties"), ["log.dir=elsewhere"])
    assert log_directories(named) == ("elsewhere",)


def test_no_program_has_a_path_in_a_directory_of_everybody() -> None:
    """A template of mktemp or a mount of a container's own may be there; a fixed name may not."""
    suspect = ("/tmp/", "mktemp -u", "gettempdir")
    allowed = ("mktemp -d", 'mktemp "${TMPDIR', "mountPath: /tmp", "tmpfs: [/tmp]")
    folders = (
        "scripts",
        "config",
        "command",
        "broker",
        "coordinator",
        "clients",
        "checker",
        "console",
        "testing",
    )
    files = [path for folder in folders for path in (HOME / folder).rglob("*") if path.suffix in _TEXT]
    found = [
        f"{path.relative_to(HOME)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(word in line for word in suspect) and not any(word in line for word in allowed)
    ]

    assert len(files) > 300 and found == []


_TEXT = {".sh", ".py", ".properties", ".service", ".yaml"}
