"""CRC-32C, the checksum of record batches.

One function, `crc32c(data, value=0)`. The `crc32c` package uses the processor's instruction and reads any
contiguous buffer in place. If it is not installed, crcmod is used, which is some fifty times slower.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import Protocol, cast

from holdfast_log.protocol.wire import Buffer

__all__ = ["Buffer", "Checksum", "crc32c"]


class Checksum(Protocol):
    """A checksum that can be continued."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """The checksum of `data`, an unsigned 32-bit number. `value` is the checksum of the bytes before
        it."""
        ...


def by_instruction() -> Checksum:
    """CRC-32C by the `crc32c` package. Raises ImportError if it is not installed."""
    # Imports the extension without its package, which looks up its own version at import: that would be a
    # third of the time to import a client.
    package = importlib.util.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("_crc32c", list(places))
    if spec is None or spec.loader is None:
        from crc32c import crc32c as checksum

        return cast(Checksum, checksum)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Checksum, module.crc32c)


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
