"""A disk on which one chosen call fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.protocol.wire import Buffer

OPENING = frozenset({"open"})
"""The calls that open a file descriptor."""


class FaultyDisk:
    """Passes every call to `disk`, except call number `fails_at` (1 is the first), which raises
    OSError(`errno`).

    `counts` limits the count to calls of these names; None counts all. `failed` names the call that failed.
    """

    def __init__(self, disk: Disk, fails_at: int, errno: int, counts: frozenset[str] | None = None) -> None:
        self._disk = disk
        self._left = fails_at
        self._errno = errno
        self._counts = counts
        self.failed: str | None = None

    def check(self, name: str, path: str) -> None:
        if self._counts is not None and name not in self._counts:
            return
        self._left -= 1
        if self._left == 0:
            self.failed = f"{name} {path}"
            raise OSError(self._errno, os.strerror(self._errno), path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.check("open", path)
        return FaultyFile(self, self._disk.open(path, create=create))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._disk, name)

        def call(path: str, *args: Any) -> Any:
            self.check(name, path)
            return method(path, *args)

        return call


class FaultyFile:
    """One open file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, file: DiskFile) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._disk.check("append", self.path)
        self._file.append(buffers)

    def pread(self, length: int, offset: int) -> bytes:
        self._disk.check("pread", self.path)
        return self._file.pread(length, offset)

    def is_cached(self, length: int, offset: int) -> bool:
        return self._file.is_cached(length, offset)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._file.truncate(size)

    def fsync(self) -> None:
        self._disk.check("fsync", self.path)
        self._file.fsync()

    def close(self) -> None:
        self._file.close()
