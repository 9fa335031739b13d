"""Programs in the background: each in a session of its own, it outlives the process that starts it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast_log.coordinator.tools.directories import import_path

_POLL_S = 0.05


def start_in_background(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a program that adds what it prints to a file. If it is Python, it finds Holdfast."""
    with open(output, "ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": import_path()},
            start_new_session=True,
        )


def wait_for_start(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], timeout_s: float | None = None
) -> bool:
    """Wait until the program is ready. Returns whether it is: False if it has ended, or takes longer."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while process.poll() is None:
        if is_ready():
            return True
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return False
