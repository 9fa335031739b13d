"""When the tombstones that compaction has left in a log may be removed.

A pass gives each batch with tombstones its *delete horizon* (KIP-534): the time of day in ms from which on a
later pass removes them. A log into which nobody writes has nothing dirty; it is compacted again once the
first of its horizons has passed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from holdfast_log.broker.cleaning.sources import Source
from holdfast_log.broker.log import scan
from holdfast_log.broker.log.disk import Disk
from holdfast_log.protocol.batches import DELETE_HORIZON

NEVER_MS = 2**63 - 1
"""The next horizon of a log without tombstones."""
_ATTRIBUTES_AT = 21
_HORIZON = struct.Struct(">h4xq")
"""A batch's attributes and base timestamp, from `_ATTRIBUTES_AT` on."""


def horizons_in(batches: bytes, sizes: Iterable[int]) -> set[int]:
    """The delete horizons of batches, which have these sizes."""
    found, position = set(), 0
    for size in sizes:
        attributes, horizon_ms = _HORIZON.unpack_from(batches, position + _ATTRIBUTES_AT)
        if attributes & DELETE_HORIZON:
            found.add(horizon_ms)
        position += size
    return found


class HorizonSearch:
    """Finds the horizons in segments that an earlier process has compacted. For workers: it uses no log."""

    def __init__(self, disk: Disk, sources: Sequence[Source]) -> None:
        self.horizons: set[int] = set()
        self.is_done = not sources
        self._disk = disk
        self._sources = list(sources)
        self._position = 0

    def advance(self, bytes_max: int) -> int:
        """Read the headers in about `bytes_max` more bytes of the files. Returns how many. Raises OSError."""
        source = self._sources[0]
        file = self._disk.open(source.path)
        start, end = self._position, source.size
        self._position = end
        try:
            for header in scan.headers(file, start, end):
                if header.has_delete_horizon:
                    self.horizons.add(header.base_timestamp)
                if header.end - start >= bytes_max:
                    self._position = header.end
                    break
        finally:
            file.close()
        read = self._position - start
        if self._position >= end:
            del self._sources[0]
            self._position = 0
            self.is_done = not self._sources
        return read
