"""The ids of a log's conditional appends, by which a repeated append is recognised.

An id is in the log: in a header of the append's first record (`protocol.records.append_id_of`). So every
replica that has the batch knows the id, and can lead. A log remembers its last ids, at most `append.ids.max`,
in about 400 bytes each. Snapshots of producer state hold them too, so that a log is opened without being read
from its beginning.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

APPEND_IDS_MAX = 1000
"""Ids that a log remembers unless `append.ids.max` is set."""

_MARK = -2
"""Stands where a remembered batch has its producer id. Readers that know no append ids skip such rows,
because no producer has this id."""
_ROWS = struct.Struct(">q16sqqqi12x")
"""Two rows of the size of a remembered batch: mark, id, first offset; mark, timestamp, last offset delta."""
ROW_SIZE = 32


class NamedAppend(NamedTuple):
    """Where the batch of an append id is, and its largest timestamp in ms."""

    first_offset: int
    last_offset_delta: int
    timestamp: int


class AppendIds:
    """The last append ids of one log, at most `ids_max`, oldest first."""

    __slots__ = ("_appends", "ids_max")

    def __init__(self, ids_max: int = APPEND_IDS_MAX) -> None:
        self.ids_max = ids_max
        self._appends: dict[bytes, NamedAppend] = {}

    def __len__(self) -> int:
        return len(self._appends)

    def find(self, append_id: bytes) -> NamedAppend | None:
        """The append with this id, if it is remembered."""
        return self._appends.get(append_id)

    def add(self, append_id: bytes, append: NamedAppend) -> None:
        """Remember an append that is in the log; the oldest beyond `ids_max` are forgotten."""
        self._appends.pop(append_id, None)
        self._appends[append_id] = append
        self._trim()

    def first_offsets(self) -> list[int]:
        """The first offset of each remembered append, in ascending order."""
        return sorted(append.first_offset for append in self._appends.values())

    def known_from(self, end_offset: int) -> int:
        """The offset from which on every append id of the log, which ends at `end_offset`, is remembered."""
        oldest = next(iter(self._appends.values()), None)
        return end_offset if oldest is None else oldest.first_offset

    def clear(self) -> None:
        self._appends.clear()

    def encode(self) -> bytes:
        """All ids as rows of a snapshot of producer state."""
        return b"".join(
            _ROWS.pack(
                _MARK, append_id, append.first_offset, _MARK, append.timestamp, append.last_offset_delta
            )
            for append_id, append in self._appends.items()
        )

    def restore(self, rows: memoryview) -> None:
        """Replace all ids by those among a snapshot's rows, which may hold other rows before them. Raises
        ValueError for rows that no snapshot has."""
        appends: dict[bytes, NamedAppend] = {}
        position = 0
        while position < len(rows):
            if int.from_bytes(rows[position : position + 8], "big", signed=True) != _MARK:
                position += ROW_SIZE
                continue
            try:
                _, append_id, first_offset, _, timestamp, delta = _ROWS.unpack_from(rows, position)
            except struct.error:
                raise ValueError("the last append id of the snapshot is cut off") from None
            appends[append_id] = NamedAppend(first_offset, delta, timestamp)
            position += _ROWS.size
        self._appends = appends
        self._trim()

    def _trim(self) -> None:
        while len(self._appends) > self.ids_max:
            del self._appends[next(iter(self._appends))]
