"""Divides the memory that a broker uses for keys among the indexes of its logs.

A topic's setting says what one replica may use, and any client may create topics with it. So the indexes of
all replicas together have a limit too: each may use an equal share, and at most what its topic says.
"""

from __future__ import annotations

import weakref

BYTES_PER_KEY = 200
"""Memory of one entry of a table: the digest, the offset, and their place in the dict."""
KEYS_MIN = 100
"""Number of keys that each index may have in memory however many indexes there are: otherwise it would have
too many files."""


class KeyMemory:
    """`total_bytes` are for the tables of all indexes, those included that are being written to files."""

    def __init__(self, total_bytes: int) -> None:
        self._keys = total_bytes // BYTES_PER_KEY
        self._indexes: weakref.WeakSet[object] = weakref.WeakSet()

    def join(self, index: object) -> None:
        """Share the memory with an index, as long as it exists."""
        self._indexes.add(index)

    @property
    def keys_each(self) -> int:
        """How many keys one index may have in its table. A table that is being written counts as well."""
        return max(KEYS_MIN, self._keys // (2 * max(1, len(self._indexes))))
