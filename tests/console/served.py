"""A console as a process, in front of real brokers."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = Path(__file__).parents[2]
PATIENCE_MS = 60_000
"""How long the console waits for brokers of a busy machine, unless a test is about lost ones."""
LONG_SESSION = {"zookeeper.session.timeout.ms": "60000"}
"""Keeps brokers of a busy machine in the cluster."""
_TIMEOUTS = ("bootstrap.timeout.ms", "default.api.timeout.ms", "request.timeout.ms")


@contextmanager
def running_console(bootstrap: str, *options: str, properties: str = "") -> Iterator[str]:
    """Start a console on a free port, whose clients have these properties. Yields its address without a last
    slash."""
    with tempfile.TemporaryDirectory(prefix="holdfast-console-") as directory:
        config = Path(directory) / "client.properties"
        config.write_text("".join(f"{name}={PATIENCE_MS}\n" for name in _TIMEOUTS) + properties)
        process = subprocess.Popen(
            [
                sys.executable, "-m", "holdfast_log.console.main",
                "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0",
                "--command-config", str(config), *options,
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
            process.wait(180)
            if process.stdout is not None:
                process.stdout.close()
