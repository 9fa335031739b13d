"""A broker's log file is appended to, rotated by size, and used by one process at a time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast_log.broker.process.log_file import BACKUPS, MAX_BYTES, BrokerLogFile, open_log_file


def write(handler: BrokerLogFile, text: str) -> None:
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, text, None, None))


def test_a_restarted_broker_appends_to_its_log(tmp_path: Path) -> None:
    for text in ("first run", "second run"):
        handler = open_log_file(tmp_path, "server-7", {})
        write(handler, text)
        handler.close()
    assert (tmp_path / "server-7.log").read_text() == "first run\nsecond run\n"


def test_a_second_broker_does_not_touch_the_log_of_the_first(tmp_path: Path) -> None:
    first, second = open_log_file(tmp_path, "server-0", {}), open_log_file(tmp_path, "server-0", {})
    write(first, "the first")
    write(second, "the second")
    assert (tmp_path / "server-0.log").read_text() == "the first\n"
    assert (tmp_path / "server-0-2.log").read_text() == "the second\n"
    for handler in (first, second):
        handler.close()


def test_the_log_is_rotated_by_size_and_the_oldest_file_is_removed(tmp_path: Path) -> None:
    handler = open_log_file(tmp_path, "server", {MAX_BYTES: "100", BACKUPS: "2"})
    for number in range(20):
        write(handler, f"line {number:03d} of fifty bytes, or of about fifty bytes")
    handler.close()
    names = sorted(path.name for path in tmp_path.glob("*.log*"))
    assert names == ["server.log", "server.log.1", "server.log.2"]
    assert all((tmp_path / name).stat().st_size <= 100 for name in names)
    assert "line 019" in (tmp_path / "server.log").read_text()


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_size_that_is_no_number_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="HOLDFAST_LOG_MAX_BYTES"):
        open_log_file(tmp_path, "server-1", {MAX_BYTES: text})
