"""The note of a broker's ZooKeeper session: believed only where its author is sure to be dead."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from broker.process.session_file import NAME, SessionFile, boot_id
from coordinator.zookeeper.session_memory import SessionKey

KEY = SessionKey(0x1000_0000_0000_0007, b"\x01" * 16)


def session_file(directory: Path, boot: str | None = "this run") -> SessionFile:
    return SessionFile([str(directory)], boot)


def test_the_next_process_on_the_same_directory_and_run_of_the_machine_knows_the_session(
    tmp_path: Path,
) -> None:
    session_file(tmp_path).remember(SessionKey(5, b"older"))
    session_file(tmp_path).remember(KEY)
    assert session_file(tmp_path).recall() == KEY


def test_nothing_is_known_after_another_start_of_the_machine(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    assert session_file(tmp_path, "another run").recall() is None


def test_a_copy_of_the_directory_knows_nothing(tmp_path: Path) -> None:
    """Its owner may be alive, and would lose its session."""
    (tmp_path / "one").mkdir()
    session_file(tmp_path / "one").remember(KEY)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert session_file(tmp_path / "two").recall() is None


def test_where_runs_cannot_be_told_apart_nothing_is_noted(tmp_path: Path) -> None:
    session_file(tmp_path, None).remember(KEY)
    assert list(tmp_path.iterdir()) == []
    assert session_file(tmp_path, None).recall() is None


def test_a_session_that_was_ended_in_order_is_forgotten(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    session_file(tmp_path).forget()
    assert session_file(tmp_path).recall() is None
    assert list(tmp_path.iterdir()) == []


def test_only_its_owner_may_read_the_password(tmp_path: Path) -> None:
    session_file(tmp_path).remember(KEY)
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"boot": "this run", "inode": 1}', "\x00\xff"])
def test_a_damaged_note_is_no_note(content: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(content)
    assert session_file(tmp_path).recall() is None


def test_a_directory_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session_file(tmp_path / "file").remember(KEY)
    assert session_file(tmp_path / "file").recall() is None
    session_file(tmp_path / "file").forget()


def test_this_machine_tells_its_runs_apart() -> None:
    assert boot_id() == boot_id() is not None
