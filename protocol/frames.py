"""What travels on a connection: size-delimited frames, and responses made of parts.

A response is a list of *parts*. Most parts are bytes. A `FileSlice` stands for bytes that are still in a
file, so that a transport can pass them to the kernel (`os.sendfile`) without reading them into Python.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

SIZE = struct.Struct(">i")
"""The length before every frame: a signed 32-bit integer that does not count itself."""


class SliceSource(Protocol):
    """The open file of a `FileSlice`."""

    def fileno(self) -> int:
        """The descriptor to send from. Raises `OSError` if the file has none."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from byte `offset` on; fewer only at the end of the file."""
        ...


@dataclass(slots=True)
class FileSlice:
    """Bytes `offset` to `offset + length` of `file`, not read unless they are few.

    Not declared frozen, because a frozen dataclass takes four times as long to create. Nothing is changed but
    `data`.
    """

    file: SliceSource
    offset: int
    length: int
    data: bytes | None = None
    """The bytes themselves, where they have been read: see `copy_small`."""

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves, for transports that cannot send from a file.

        Raises EOFError if the file is shorter than the slice.
        """
        if self.data is not None:
            return self.data
        data = self.file.pread(self.length, self.offset)
        if len(data) != self.length:
            raise EOFError(f"expected {self.length} bytes at offset {self.offset}, the file has {len(data)}")
        return data


def copy_small(piece: FileSlice, max_bytes: int) -> None:
    """Read a slice of at most `max_bytes` into memory. A slice of a few kilobytes is sent with the bytes
    around it in one system call then, which takes less time than to have the kernel send it from the file."""
    if piece.length > max_bytes or piece.data is not None:
        return
    try:
        piece.data = piece.read()
    except (OSError, EOFError):
        return  # The sender of the slice finds out.


Part: TypeAlias = bytes | bytearray | memoryview | FileSlice
Parts: TypeAlias = list[Part]


def parts_size(parts: Sequence[Part]) -> int:
    """The total size of `parts`, in bytes."""
    return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))


def join_parts(parts: Sequence[Part]) -> bytes:
    """`parts` as one bytes object."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
