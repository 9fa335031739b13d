"""The file with a broker's ZooKeeper session is used only if its writer is certainly dead."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from holdfast_log.broker.process.session_file import NAME, SessionFile, boot_id
from holdfast_log.coordinator.zookeeper.session_memory import SessionKey

KEY = SessionKey(0x1000_0000_0000_0007, b"\x01" * 16)


def session_file(directory: Path, boot: str | None = "this run") -> SessionFile:
    return SessionFile([str(directory)], boot)


def test_the_next_process_in_the_same_boot_reads_the_session(tmp_path: Path) -> None:
    session_file(tmp_path).remember(SessionKey(5, b"older"))
    session_file(tmp_path).remember(KEY)
    assert session_file(tmp_path).recall() == KEY


def test_a_session_file_of_an_earlier_boot_is_ignored(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    assert session_file(tmp_path, "another run").recall() is None


def test_a_session_file_in_a_copied_directory_is_ignored(tmp_path: Path) -> None:
    """The copy's original owner may be alive, and would lose its session."""
    (tmp_path / "one").mkdir()
    session_file(tmp_path / "one").remember(KEY)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert session_file(tmp_path / "two").recall() is None


def test_no_session_file_is_written_without_a_boot_id(tmp_path: Path) -> None:
    session_file(tmp_path, None).remember(KEY)
    assert list(tmp_path.iterdir()) == []
    assert session_file(tmp_path, None).recall() is None


def test_an_orderly_end_deletes_the_session_file(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    session_file(tmp_path).forget()
    assert session_file(tmp_path).recall() is None
    assert list(tmp_path.iterdir()) == []


def test_only_the_files_owner_may_read_it(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"boot": "this run", "inode": 1}', "\x00\xff"])
def test_a_damaged_session_file_is_ignored(content: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(content)
    assert session_file(tmp_path).recall() is None


def test_an_unwritable_directory_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session_file(tmp_path / "file").remember(KEY)
    assert session_file(tmp_path / "file").recall() is None
    session_file(tmp_path / "file").forget()


def test_this_machine_has_a_boot_id() -> None:
    assert boot_id() == boot_id() is not None
