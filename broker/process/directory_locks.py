"""The `.lock` file in each log directory: only the process that has locked it writes to the directory.

The operating system holds the lock, as for Kafka, and releases it however the process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from typing import TextIO

from holdfast_log.coordinator.private_files import make_private

NAME = ".lock"


class DirectoryInUse(Exception):
    """Another process has locked a log directory."""


class DirectoryLocks:
    """Keeps log directories locked for as long as this process lives. Raises `DirectoryInUse`.

    A directory that cannot be created or written is skipped: the log manager takes it offline, and the broker
    can run without it.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._files: list[TextIO] = []
        for directory in directories:
            try:
                make_private(directory)
                file = open(os.path.join(directory, NAME), "a", opener=_no_link)  # noqa: SIM115 - closing unlocks
            except OSError:
                continue
            self._files.append(file)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise DirectoryInUse(
                    f"log directory {directory} is in use by another broker: stop that broker, or set other "
                    "log.dirs for this one"
                ) from None


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
