"""A console as a process, in front of real brokers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = Path(__file__).parents[2]


@contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[str]:
    """Start a console on a free port. Yields its address without a last slash."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "holdfast_log.console.main",
            "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0", *options,
        ],
        cwd=HOME,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # Ends when the process does.
        found = re.search(r"http://[\w.:]+", line)
        assert found, f"the console did not start: {line!r}, status {process.poll()}"
        yield found.group().rstrip("/")
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
