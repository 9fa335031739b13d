"""A group member in a process that a test pauses and kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any


class MemberProcess:
    """A group member in its own process, `reading_member`."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, session_ms: int, protocol: str = "managed"
    ) -> None:
        module = "tests.integration.reading_member"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, bootstrap, group, topic, str(session_ms), protocol],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.told: dict[str, Any] = {"owned": [], "generation": -1, "ahead": 0, "records": []}

    def poll(self) -> dict[str, Any]:
        """Have the member poll once. Returns the line it prints."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("poll\n")
        self.process.stdin.flush()
        self.told = json.loads(self.process.stdout.readline())
        return self.told

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()
