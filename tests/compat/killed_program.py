"""A program of a test that ends without a goodbye."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_log.coordinator.parent_process import die_with_parent


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a program, which writes to the log, and kill it (SIGKILL) at the end."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()
