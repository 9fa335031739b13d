"""The transactions of one log that readers of committed records may not pass yet (KIP-98).

A transaction begins in a partition with its producer's first transactional batch, and ends with the
producer's next marker. It is *unstable* while it is open, and while its marker is not below the high
watermark: the marker could still be lost with its leader. The last stable offset is the first offset of the
oldest unstable one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast_log.broker.log.append_ids import ROW_SIZE

OPEN = -1
"""Stands for the offset of the marker of a transaction that has none."""

NO_TRANSACTION = -1
"""Stands for the first offset of the transaction of a producer that has none open."""

_SETTLED_MIN = 64
_ENDED_MARK = -5
"""See `append_ids._BOUND_MARK`: the mark of a row in a snapshot of producer state."""
_ENDED_ROW = struct.Struct(">qqq8x")


class AbortedEntry(NamedTuple):
    """An aborted transaction as the index of a segment has it. `last_offset` is that of its marker, and
    `last_stable_offset` that of the log behind the marker: no transaction that ends later begins before
    it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Transactions:
    """The unstable transactions of one log, and perhaps some that are stable by now."""

    __slots__ = ("_settled_at", "unstable")

    def __init__(self) -> None:
        self.unstable: dict[int, int] = {}
        """First offset → offset of the marker, or `OPEN`; in ascending order. Public, and always the same
        object, so that compiled reads see whether there are any."""
        self._settled_at = _SETTLED_MIN

    def begin(self, first_offset: int) -> None:
        """Note that a transaction begins, at the end of the log."""
        self.unstable[first_offset] = OPEN

    def end(self, first_offset: int, marker_offset: int) -> int:
        """Note that the marker of an open transaction was appended. Returns the last stable offset behind it,
        as the index of aborted transactions has it."""
        self.unstable[first_offset] = marker_offset
        return next((first for first, marker in self.unstable.items() if marker == OPEN), marker_offset + 1)

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of the oldest unstable transaction; None if there is none."""
        unstable = self.unstable
        if len(unstable) > self._settled_at:
            # Behind one that stays open there may be any number that have ended.
            self._drop(first for first, marker in unstable.items() if OPEN < marker < high_watermark)
            self._settled_at = max(_SETTLED_MIN, 2 * len(unstable))
        while unstable:
            first, marker = next(iter(unstable.items()))
            if marker == OPEN or marker >= high_watermark:
                return first
            del unstable[first]
        return None

    def _drop(self, firsts: Iterable[int]) -> None:
        for first in list(firsts):
            del self.unstable[first]

    @property
    def first_open(self) -> int | None:
        """The offset at which the oldest open transaction began; None if none is open."""
        return next((first for first, marker in self.unstable.items() if marker == OPEN), None)

    def clear(self) -> None:
        """Forget all transactions."""
        self.unstable.clear()

    # Snapshots ----------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The transactions that have ended, as rows of a snapshot of producer state. Those that are open
        are in the entries of their producers."""
        return b"".join(
            _ENDED_ROW.pack(_ENDED_MARK, first, marker)
            for first, marker in self.unstable.items()
            if marker != OPEN
        )

    def restore(self, open_firsts: Iterable[int], rows: memoryview) -> None:
        """Replace all transactions by those of a snapshot, whose rows may hold others."""
        found = dict.fromkeys(open_firsts, OPEN)
        found.update(_ended_in(rows))
        self.unstable.clear()
        self.unstable.update(sorted(found.items()))


def _ended_in(rows: memoryview) -> Iterator[tuple[int, int]]:
    for position in range(0, len(rows) - ROW_SIZE + 1, ROW_SIZE):
        mark, first, marker = _ENDED_ROW.unpack_from(rows, position)
        if mark == _ENDED_MARK:
            yield first, marker
