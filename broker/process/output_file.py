"""The file of what a broker in the background prints: uncaught errors, crashes, Python's warnings.

The broker's log is elsewhere (`broker.process.log_file`), so little is printed. Still the file is kept small.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

MAX_BYTES = 1024 * 1024
_STANDARD_OUTPUTS = (1, 2)


class OutputFile:
    """Takes what the process writes to `descriptors`, once `take` was called. At `max_bytes` the file is
    renamed to NAME.1, which replaces an older one."""

    def __init__(
        self, path: Path, max_bytes: int = MAX_BYTES, descriptors: Sequence[int] = _STANDARD_OUTPUTS
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._descriptors = descriptors
        self._is_taken = False

    def take(self) -> None:
        """Append to the file from now on what the process prints. Raises OSError."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        for descriptor in self._descriptors:
            os.dup2(file, descriptor)
        os.close(file)
        self._is_taken = True
        self.keep_small()

    def keep_small(self) -> None:
        """Begin a new file if this one is full. Raises OSError."""
        if self._is_taken and os.fstat(self._descriptors[0]).st_size >= self._max_bytes:
            os.replace(self.path, f"{self.path}.1")
            self.take()
