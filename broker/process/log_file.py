"""The broker's log file: one per broker, rotated by size, never truncated.

A broker locks its log file while it runs. So a second broker that is started with the same directory and
broker id takes the next free name, and never writes into the first one's file.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

from holdfast_log.broker.process.output_file import OutputFile
from holdfast_log.coordinator.private_files import make_private

MAX_BYTES = "HOLDFAST_LOG_MAX_BYTES"
BACKUPS = "HOLDFAST_LOG_BACKUPS"
_DEFAULT_MAX_BYTES = 100 * 1024 * 1024
_DEFAULT_BACKUPS = 10


class BrokerLogFile(RotatingFileHandler):
    """Appends to a file. At `max_bytes` renames it to NAME.1, NAME.1 to NAME.2 and so on, and keeps `backups`
    of these. `lock` is kept open, and locked, as long as the handler. Each line also keeps `output` small,
    the file beside it of what the process prints."""

    def __init__(self, path: Path, max_bytes: int, backups: int, lock: IO[bytes]) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
        self.path = path
        self.output = OutputFile(path.with_suffix(".out"))
        self._held = lock

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            self.output.keep_small()
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        super().close()
        self._held.close()


def server_name(kind: str, broker_id: int) -> str:
    """Name of a log file, without its suffix: `kind`-ID, or without the id if that is not set (negative)."""
    return f"{kind}-{broker_id}" if broker_id >= 0 else kind


def open_log_file(directory: Path, name: str, environment: Mapping[str, str]) -> BrokerLogFile:
    """Open `name`.log in `directory`, or `name`-2.log and so on if another process uses it.

    The environment variables HOLDFAST_LOG_MAX_BYTES and HOLDFAST_LOG_BACKUPS set its size and the number of
    older files. Raises ValueError if one is not a whole number, and OSError.
    """
    max_bytes = _whole(environment, MAX_BYTES, _DEFAULT_MAX_BYTES)
    backups = _whole(environment, BACKUPS, _DEFAULT_BACKUPS)
    make_private(directory)
    for number in itertools.count(1):
        path = directory / f"{name}.log" if number == 1 else directory / f"{name}-{number}.log"
        lock = _locked(path.with_suffix(".lock"))
        if lock is not None:
            return BrokerLogFile(path, max_bytes, backups, lock)
    raise AssertionError("unreachable")


def _locked(path: Path) -> IO[bytes] | None:
    """The file, open and locked; None if another process has locked it."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name}={text}: expected a whole number")
    return int(text)
