"""The bar that shows how far a file has been read, and who does not get one."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from clients.tools.progress import progress


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"0123456789\n" * 50_000)
    return path


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def test_at_a_terminal_a_bar_comes_to_the_end_of_the_file(file: Path) -> None:
    screen = Screen(is_terminal=True)
    with file.open("rb") as source, progress(source, screen) as tell:
        for line in source:
            tell(len(line))

    assert "550.0/550.0 kB" in screen.getvalue()


def test_the_bar_counts_from_where_the_reading_begins(file: Path) -> None:
    screen = Screen(is_terminal=True)
    with file.open("rb") as source:
        source.seek(500_000)
        with progress(source, screen) as tell:
            tell(len(source.read()))

    assert "50.0/50.0 kB" in screen.getvalue()


def test_where_there_is_no_terminal_nothing_is_drawn(file: Path) -> None:
    screen = Screen(is_terminal=False)
    with file.open("rb") as source, progress(source, screen) as tell:
        tell(550_000)

    assert screen.getvalue() == ""


def test_a_pipe_and_what_is_no_file_have_no_bar() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    screen = Screen(is_terminal=True)
    for source in (os.fdopen(reader, "rb"), io.BytesIO(b"lines")):
        with source, progress(source, screen) as tell:
            tell(5)

    assert screen.getvalue() == ""
