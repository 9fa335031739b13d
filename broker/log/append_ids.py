"""The ids of a log's conditional appends, by which a repeated append is recognised.

An id is in the log: in a header of the append's first record (`protocol.records.named_append_of`). So every
replica that has the batch knows the id, and can lead. Memory is bounded, so ids are forgotten:

- A producer has at most `append.ids.max.per.producer`: one more takes the place of its own oldest.
- All producers together have at most `append.ids.max`. One more takes the place of the oldest id if that is
  older than `append.ids.retention.ms`, else of the oldest of the producer that has the most, among those of
  the source that has the most. A producer id costs a client nothing: one that writes each append with another
  id takes places only from itself, as long as others have fewer (`introductions`).
- All logs of a broker together have at most `append.ids.total.max` (`producer_totals`). One more takes the
  place of ids in the log that has the most: the oldest of the producer that has the most there, among those
  of the source that has the most.

So an id survives any number of appends by another source: its producers keep the last `append.ids.max`
divided by the number of sources, while the broker has room for the ids of all its logs. Without need nothing
is forgotten, however old. Which source introduced a producer is known to the leader that saw it, in memory;
all others count as those of one source, and only among them each producer has its share.

Clients must be able to tell "not in the log" from "forgotten". `known_from` is the offset from which
on every id is remembered. It rises where an id is forgotten, and where a replica cannot have seen the ids:
before the records with which it began, where compaction has left a gap, and where a batch cannot be read.
Snapshots of producer state hold the ids and `known_from`, so that a log is opened without being read from its
beginning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast_log.broker.log.holders import Holders
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.protocol.records import CONTENT_DIGEST_SIZE

NO_DIGEST = bytes(CONTENT_DIGEST_SIZE)
"""Stands for the digest of an append whose records are not all there any more."""

_ID_MARK = -2
_ORIGIN_MARK = -3
_BOUND_MARK = -4
"""A mark stands where a remembered batch has its producer id. Readers that do not know a mark skip the row,
because no producer has such an id. A snapshot without `_BOUND_MARK` is one of Kafka, or of a version that did
not know from where on it remembered all ids."""
_ID_ROWS = struct.Struct(">q16sqqqi12x")
"""Two rows of the size of a remembered batch: mark, id, first offset; mark, timestamp, last offset delta."""
_ORIGIN_ROW = struct.Struct(">qqq8s")
"""The row after those of an id: mark, producer id, time in ms when it was remembered, digest."""
_BOUND_ROW = struct.Struct(">qq16x")
ROW_SIZE = 32


@dataclass(frozen=True, slots=True)
class AppendIdLimits:
    """How many ids a log remembers: of all producers, of each, and the age in ms from which on an id is the
    first to be forgotten. 0 ids: none are remembered."""

    ids_max: int = 10_000
    ids_max_per_producer: int = 5_000
    retention_ms: int = 86_400_000


class NamedAppend(NamedTuple):
    """Where the batch of an append id is, its largest timestamp in ms, and the producer that wrote it.

    `remembered_ms`: when this broker first saw the batch. `digest`: `protocol.records.content_digest` of its
    records; NO_DIGEST if some of them are gone.
    """

    first_offset: int
    last_offset_delta: int
    timestamp: int
    producer_id: int = -1
    remembered_ms: int = 0
    digest: bytes = NO_DIGEST


class AppendIds:
    """The append ids that one log remembers."""

    __slots__ = ("_appends", "_of_producer", "_producers", "_source_of", "_sources", "known_from", "limits")

    def __init__(self, limits: AppendIdLimits | None = None) -> None:
        self.limits = limits or AppendIdLimits()
        self.known_from = 0
        """The offset from which on every append id of the log is remembered."""
        self._appends: dict[bytes, NamedAppend] = {}
        """Oldest first."""
        self._of_producer: dict[int, dict[bytes, None]] = {}
        """The ids of each producer, oldest first."""
        self._source_of: dict[int, str] = {}
        """The source of each producer that has ids."""
        self._sources: Holders[str] = Holders()
        self._producers: dict[str, Holders[int]] = {}
        """The producers of each source."""

    def __len__(self) -> int:
        return len(self._appends)

    def find(self, append_id: bytes) -> NamedAppend | None:
        """The append with this id, if it is remembered."""
        return self._appends.get(append_id)

    def add(self, append_id: bytes, append: NamedAppend, source: str = UNKNOWN_SOURCE) -> None:
        """Remember an append that is in the log. `source` is who introduced its producer; it counts if the
        producer has no ids yet. One append beyond the limits is forgotten, perhaps another producer's."""
        if append_id in self._appends:
            self._remove(append_id)
        self._appends[append_id] = append
        producer_id = append.producer_id
        ids = self._of_producer.setdefault(producer_id, {})
        ids[append_id] = None
        source = self._source_of.setdefault(producer_id, source)
        self._sources.add(source)
        self._producers.setdefault(source, Holders()).add(producer_id)
        if len(ids) > self.limits.ids_max_per_producer:
            self._forget(next(iter(ids)))
        while len(self._appends) > self.limits.ids_max:
            self._forget(self._least_needed(append))

    def skip_to(self, offset: int) -> None:
        """Note that appends before `offset` may have ids that this log does not remember."""
        self.known_from = max(self.known_from, offset)

    def first_offsets(self) -> list[int]:
        """The first offset of each remembered append, in ascending order."""
        return sorted(append.first_offset for append in self._appends.values())

    def forget_some(self, count: int) -> None:
        """Forget so many ids, the oldest of the producer with the most first, in the source with the most."""
        for _ in range(min(count, len(self._appends))):
            producer_id = self._producers[self._sources.first_with_most()].first_with_most()
            self._forget(next(iter(self._of_producer[producer_id])))

    def clear(self, known_from: int) -> None:
        """Forget all ids: the log has no batches before `known_from`, or they have not been read."""
        self._appends.clear()
        self._of_producer.clear()
        self._source_of.clear()
        self._sources.clear()
        self._producers.clear()
        self.known_from = known_from

    def _least_needed(self, newest: NamedAppend) -> bytes:
        """The id to forget for `newest`: an old one, else one of the source with the most, and in it of the
        producer with the most; those of `newest` if no others have more."""
        oldest, append = next(iter(self._appends.items()))
        if newest.remembered_ms - append.remembered_ms >= self.limits.retention_ms:
            return oldest
        source = self._sources.first_with_most(self._source_of[newest.producer_id])
        producer_id = self._producers[source].first_with_most(newest.producer_id)
        return next(iter(self._of_producer[producer_id]))

    def _forget(self, append_id: bytes) -> None:
        self.skip_to(self._remove(append_id).first_offset + 1)

    def _remove(self, append_id: bytes) -> NamedAppend:
        append = self._appends.pop(append_id)
        producer_id = append.producer_id
        ids = self._of_producer[producer_id]
        del ids[append_id]
        source = self._source_of[producer_id]
        self._sources.take(source)
        producers = self._producers[source]
        producers.take(producer_id)
        if not ids:
            del self._of_producer[producer_id], self._source_of[producer_id]
        if not len(producers):
            del self._producers[source]
        return append

    # Snapshots ----------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """All ids and `known_from`, as rows of a snapshot of producer state."""
        return b"".join(self._rows())

    def _rows(self) -> Iterator[bytes]:
        yield _BOUND_ROW.pack(_BOUND_MARK, self.known_from)
        for append_id, append in self._appends.items():
            yield _ID_ROWS.pack(
                _ID_MARK, append_id, append.first_offset, _ID_MARK, append.timestamp, append.last_offset_delta
            )
            yield _ORIGIN_ROW.pack(_ORIGIN_MARK, append.producer_id, append.remembered_ms, append.digest)

    def restore(self, rows: memoryview, end_offset: int) -> None:
        """Replace all ids by those among the rows of a snapshot for `end_offset`, which may hold other rows
        before them. Raises ValueError for rows that no snapshot has."""
        appends: dict[bytes, NamedAppend] = {}
        known_from = end_offset
        position = 0
        latest = b""
        while position < len(rows):
            mark = int.from_bytes(rows[position : position + 8], "big", signed=True)
            try:
                if mark == _ID_MARK:
                    _, latest, first_offset, _, timestamp, delta = _ID_ROWS.unpack_from(rows, position)
                    appends[latest] = NamedAppend(first_offset, delta, timestamp)
                    position += _ID_ROWS.size
                    continue
                if mark == _ORIGIN_MARK:
                    _, producer_id, remembered_ms, digest = _ORIGIN_ROW.unpack_from(rows, position)
                    appends[latest] = appends[latest]._replace(
                        producer_id=producer_id, remembered_ms=remembered_ms, digest=digest
                    )
                elif mark == _BOUND_MARK:
                    _, known_from = _BOUND_ROW.unpack_from(rows, position)
            except (struct.error, KeyError):
                raise ValueError("the last append id of the snapshot is cut off") from None
            position += ROW_SIZE
        self.clear(known_from)
        for append_id, append in appends.items():
            self.add(append_id, append)
