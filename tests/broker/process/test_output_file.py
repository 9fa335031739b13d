"""What a broker in the background prints is in a file of its own, which stays small."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.broker.process.log_file import open_log_file
from holdfast_log.broker.process.output_file import OutputFile


@pytest.fixture
def outputs() -> Iterator[tuple[int, int]]:
    """Two descriptors in the place of the process's standard output and error."""
    pair = (os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY))
    yield pair
    for descriptor in pair:
        os.close(descriptor)


def test_both_outputs_are_appended_to_the_file(tmp_path: Path, outputs: tuple[int, int]) -> None:
    path = tmp_path / "server-1.out"
    path.write_text("an earlier run\n")
    OutputFile(path, descriptors=outputs).take()
    os.write(outputs[0], b"printed\n")
    os.write(outputs[1], b"an error\n")
    assert path.read_text() == "an earlier run\nprinted\nan error\n"


def test_a_full_file_is_renamed_when_the_broker_starts_and_while_it_logs(
    tmp_path: Path, outputs: tuple[int, int]
) -> None:
    path = tmp_path / "server-1.out"
    path.write_text("an earlier run\n" * 10)
    output = OutputFile(path, 100, outputs)
    output.take()
    assert (path.read_text(), Path(f"{path}.1").read_text()) == ("", "an earlier run\n" * 10)

    for _ in range(20):
        os.write(outputs[1], b"an error that nothing catches\n")
        output.keep_small()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["server-1.out", "server-1.out.1"]
    assert path.stat().st_size < 100 and Path(f"{path}.1").stat().st_size < 150


def test_nothing_is_redirected_before_the_file_takes_the_outputs(
    tmp_path: Path, outputs: tuple[int, int]
) -> None:
    OutputFile(tmp_path / "server-1.out", 0, outputs).keep_small()
    assert list(tmp_path.iterdir()) == []


def test_two_brokers_with_one_directory_and_id_have_a_file_each(tmp_path: Path) -> None:
    first, second = open_log_file(tmp_path, "server-0", {}), open_log_file(tmp_path, "server-0", {})
    assert (first.output.path.name, second.output.path.name) == ("server-0.out", "server-0-2.out")
    for handler in (first, second):
        handler.close()


def test_each_line_of_the_log_keeps_the_file_small(tmp_path: Path, outputs: tuple[int, int]) -> None:
    handler = open_log_file(tmp_path, "server-0", {})
    handler.output = OutputFile(tmp_path / "server-0.out", 100, outputs)
    handler.output.take()
    os.write(outputs[1], b"x" * 100)
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "a line", None, None))
    assert (tmp_path / "server-0.out.1").stat().st_size == 100
    handler.close()
