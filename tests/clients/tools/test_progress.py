"""The progress bar of a file being read, and the cases without a bar."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from holdfast_log.clients.tools.progress import progress


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


def test_at_a_terminal_the_bar_reaches_the_end_of_the_file(file: Path) -> None:
    screen = Screen(is_terminal=True)
    with file.open("rb") as source, progress(source, screen) as tell:
        for line in source:
            tell(len(line))

    assert "550.0/550.0 kB" in screen.getvalue()


def test_the_bar_counts_from_the_position_where_reading_starts(file: Path) -> None:
    screen = Screen(is_terminal=True)
    with file.open("rb") as source:
        source.seek(500_000)
        with progress(source, screen) as tell:
            tell(len(source.read()))

    assert "50.0/50.0 kB" in screen.getvalue()


def test_without_a_terminal_no_bar_is_drawn(file: Path) -> None:
    screen = Screen(is_terminal=False)
    with file.open("rb") as source, progress(source, screen) as tell:
        tell(550_000)

    assert screen.getvalue() == ""


def test_a_pipe_or_a_stream_that_is_not_a_file_has_no_bar() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    screen = Screen(is_terminal=True)
    for source in (os.fdopen(reader, "rb"), io.BytesIO(b"lines")):
        with source, progress(source, screen) as tell:
            tell(5)

    assert screen.getvalue() == ""
