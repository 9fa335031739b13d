"""Divides the memory that a broker uses for keys among the indexes of its logs.

A topic's setting says what one replica may use, and any client may create topics with it. So the indexes of
all replicas together have a limit too. Half of the memory is guaranteed, in equal shares: nobody can take
that from an index. The other half is for those that use it: an index of many keys is not held down by
thousands of others that have none.
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
        self._indexes = 0
        self._used = 0
        """Keys in the memory of all indexes."""

    def join(self, index: object) -> KeyShare:
        """Share the memory with an index, as long as it exists. Returns its share."""
        share = KeyShare(self)
        self._indexes += 1
        weakref.finalize(index, self._leave, share)
        return share

    def _leave(self, share: KeyShare) -> None:
        self._indexes -= 1
        self._used -= share.keys

    def grew(self, count: int) -> None:
        """Note that an index has so many keys more in memory."""
        self._used += count

    def keys_max(self, own: int) -> int:
        """With how many keys the table of an index that has `own` keys in memory is full. A table that is
        being written counts as well."""
        guaranteed = self._keys // (4 * max(1, self._indexes))
        of_free_half = (self._keys // 2 - (self._used - own)) // 2
        return max(KEYS_MIN, guaranteed, of_free_half)


class KeyShare:
    """What one index has of the memory."""

    __slots__ = ("keys", "memory")

    def __init__(self, memory: KeyMemory) -> None:
        self.memory = memory
        self.keys = 0
        """Keys that the index has in memory."""

    def grew(self, count: int) -> None:
        """Note that the index has so many keys more, or fewer."""
        self.keys += count
        self.memory.grew(count)

    @property
    def keys_max(self) -> int:
        """With how many keys the table of the index is full."""
        return self.memory.keys_max(self.keys)
