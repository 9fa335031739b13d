"""The file with the broker's process id, in its first log directory; server-stop.sh reads it.

With `broker.processes` there is also a file with the id of the supervisor of all brokers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast_log.coordinator.private_files import read_pid, write_pid

NAME = "broker.pid"
SUPERVISOR_NAME = "supervisor.pid"


def path_of(log_directories: Sequence[str]) -> Path:
    return Path(log_directories[0]) / NAME


def supervisor_path_of(log_directories: Sequence[str]) -> Path:
    return Path(log_directories[0]) / SUPERVISOR_NAME


def write(path: Path) -> None:
    """Write this process's id. Raises OSError."""
    write_pid(path, os.getpid())


def remove(path: Path) -> None:
    """Remove the file, if it contains this process's id."""
    if read(path) == os.getpid():
        with contextlib.suppress(OSError):
            path.unlink()


def read(path: Path) -> int | None:
    """The id of a running process in the file; None if there is none (`coordinator.private_files`)."""
    return read_pid(path)
