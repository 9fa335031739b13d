"""CRC-32C, the checksum of record batches.

One function, `crc32c(data, value=0)`. The `crc32c` package uses the processor's instruction and reads any
contiguous buffer in place; where it cannot be installed, crcmod's loop, some fifty times slower, stands in.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview

__all__ = ["Buffer", "Checksum", "crc32c"]


class Checksum(Protocol):
    """A checksum that can be continued."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """The checksum of `data`, an unsigned 32-bit number; `value` is that of the bytes before it."""
        ...


def by_instruction() -> Checksum:
    """CRC-32C by the `crc32c` package. Raises ImportError where there is none."""
    from crc32c import crc32c as checksum

    return cast(Checksum, checksum)


def by_table() -> Checksum:
    """CRC-32C by crcmod."""
    from crcmod.predefined import mkPredefinedCrcFun

    return cast(Checksum, mkPredefinedCrcFun("crc-32c"))


def _fastest() -> Checksum:
    try:
        return by_instruction()
    except ImportError:
        return by_table()


crc32c = _fastest()
