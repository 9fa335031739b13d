"""What travels on a connection: size-delimited frames, and responses made of parts.

A response is a list of *parts*. Most parts are bytes; a `FileSlice` stands for bytes that are still in a
file, so that a transport can hand them to the kernel (`os.sendfile`) without their ever becoming a Python
object.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

SIZE = struct.Struct(">i")
"""The length that precedes every frame: a signed 32-bit integer, the length itself not counted."""


class SliceSource(Protocol):
    """An open file of which a `FileSlice` is a piece."""

    def fileno(self) -> int:
        """The descriptor to send from; raises `OSError` where the file is not one of the system's."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """At most `length` bytes from byte `offset` on; fewer only at the end of the file."""
        ...


@dataclass(slots=True)
class FileSlice:
    """Bytes `offset` to `offset + length` of `file`, not yet read.

    A value, and never changed: it is not declared frozen because that makes the making four times as dear.
    """

    file: SliceSource
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves, for those that cannot send from a file.

        Raises EOFError where the file is shorter than the slice.
        """
        data = self.file.pread(self.length, self.offset)
        if len(data) != self.length:
            raise EOFError(f"{self.length} bytes wanted at offset {self.offset}, the file has {len(data)}")
        return data


Part: TypeAlias = bytes | bytearray | memoryview | FileSlice
Parts: TypeAlias = list[Part]


def parts_size(parts: Sequence[Part]) -> int:
    """How many bytes `parts` make on the wire."""
    return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))


def join_parts(parts: Sequence[Part]) -> bytes:
    """`parts` as one bytes object: for tests and for transports that know no files."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
