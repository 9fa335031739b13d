"""The file in a broker's first log directory that says which process it is, so that it can be stopped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

NAME = "broker.pid"


def path_of(log_directories: Sequence[str]) -> Path:
    return Path(log_directories[0]) / NAME


def write(path: Path) -> None:
    """Note this process. Raises OSError."""
    path.write_text(f"{os.getpid()}\n")


def remove(path: Path) -> None:
    """Forget this process, if it is the one noted."""
    if read(path) == os.getpid():
        with contextlib.suppress(OSError):
            path.unlink()


def read(path: Path) -> int | None:
    """The noted process; None where there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
