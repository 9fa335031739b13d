"""The file system as the log uses it: an interface that a simulated disk can implement.

`OsDisk` is the real one. The log accesses files only through the two interfaces `Disk` and `DiskFile`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Protocol

from holdfast_log.protocol.wire import Buffer


class DiskFile(Protocol):
    """One open file. All methods raise OSError as the system does."""

    path: str

    def fileno(self) -> int: ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of `buffers`, in order, at the end of the file."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """At most `length` bytes from byte `offset` on; fewer only at the end of the file."""
        ...

    def is_cached(self, length: int, offset: int) -> bool:
        """Whether a read of this range would come from memory, without waiting for the device."""
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def close(self) -> None:
        """Close the file. Dropping the last reference to it closes it too."""
        ...


class Disk(Protocol):
    """A file system. Paths are plain strings; all methods raise OSError as the system does."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open the file at `path` for reading and appending; with `create`, create a missing file."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since the epoch."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; an existing one is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing an existing file. Durable once `fsync_directory` has returned."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file; a missing one is no error."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory and all that is in it; a missing one is no error."""
        ...

    def fsync_directory(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file's content. After a crash the file has all of the old or all of the new content."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


_PROBE = (bytearray(1),)
"""Buffer for a byte that is read only to see whether it is cached."""


class OsFile:
    """A file of the operating system. `broker/log/_segment_append.c` appends to it without `append`."""

    __slots__ = ("__weakref__", "_fd", "_size", "path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(f"{self.path} is closed")
        return self._fd

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        if len(buffers) == 1:
            total = len(buffers[0])
            written = os.pwrite(self._fd, buffers[0], self._size)
        else:
            total = sum(map(len, buffers))
            written = os.pwritev(self._fd, buffers, self._size)
        if written != total:
            rest = b"".join(buffers)[written:]
            while rest:
                count = os.pwrite(self._fd, rest, self._size + written)
                written += count
                rest = rest[count:]
        self._size += total

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def is_cached(self, length: int, offset: int) -> bool:
        # One byte at each end: the system evicts a range that was read or written as a whole from its ends.
        ends = (offset, offset + length - 1) if length > 1 else (offset,)
        for position in ends:
            try:
                os.preadv(self._fd, _PROBE, position, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True  # This file system does not support the query.
        return True

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def fsync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # The cache may drop a file while responses still send slices of it; the last slice closes it.
        if getattr(self, "_fd", -1) >= 0:
            self.close()


class OsDisk:
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        if not os.path.isdir(path):
            return
        for name in os.listdir(path):
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                self.remove_directory(inner)
            else:
                self.remove(inner)
        os.rmdir(path)

    def fsync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        # Two threads may replace the same file: each writes a complete file, and the later rename wins.
        temporary = f"{path}.{threading.get_ident()}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            # On a full disk the part that was written would take space until the next write.
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.fsync_directory(os.path.dirname(path) or ".")

    def free_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize
