"""Rows on their way into one topic partition, cut into chunks. A chunk is one batch, appended all or none."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat

from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.record_codec import encode_headers
from holdfast_log.protocol.records import APPEND_ID_HEADER, TYPICAL_OVERHEAD, BatchBuilder, Headers

_PREFIX_SIZE = 12
_NUMBER_SIZE = 4
NO_HEADERS: Headers = ()

SinkRow = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""


@dataclass(slots=True)
class RowColumns:
    """Rows as columns of equal length. `headers` is None if no row has any."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[SinkRow]:
        headers = self.headers if self.headers is not None else [NO_HEADERS] * len(self.values)
        return iter(list(zip(self.keys, self.values, headers, strict=True)))

    def extend(self, other: RowColumns) -> None:
        """Add the rows of `other` at the end."""
        if self.headers is None and other.headers is not None:
            self.headers = [NO_HEADERS] * len(self.values)
        self.keys += other.keys
        self.values += other.values
        if self.headers is not None:
            self.headers += other.headers if other.headers is not None else [NO_HEADERS] * len(other)

    def take(self, count: int) -> RowColumns:
        """Remove and return the first `count` rows."""
        taken = RowColumns(
            self.keys[:count], self.values[:count], None if self.headers is None else self.headers[:count]
        )
        del self.keys[:count], self.values[:count]
        if self.headers is not None:
            del self.headers[:count]
        return taken

    def sizes(self) -> list[int]:
        """The bytes of each row in a batch, about."""
        sizes = [
            key + value + TYPICAL_OVERHEAD
            for key, value in zip(_lengths(self.keys), _lengths(self.values), strict=True)
        ]
        if self.headers is not None:
            for index, headers in enumerate(self.headers):
                if headers:
                    sizes[index] += len(encode_headers(headers))
        return sizes

    @classmethod
    def of(cls, rows: Iterable[SinkRow]) -> RowColumns:
        """Columns of these rows."""
        found = list(rows)
        headers: list[Headers] = [tuple(headers) for _, _, headers in found]
        return cls(
            [key for key, _, _ in found],
            [value for _, value, _ in found],
            headers if any(headers) else None,
        )


def _lengths(column: Sequence[bytes | None]) -> Iterable[int]:
    """The length of each value, 0 for null."""
    if not any(column):
        return repeat(0, len(column))
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # Some value is null.
        return [len(value or b"") for value in column]


class RowBuffer:
    """Rows that are not in a chunk yet. Cuts depend only on the rows, their order and the limits.

    So attempts of a task that see the same rows in the same order cut the same chunks.
    """

    def __init__(self, bytes_max: int, rows_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows_max = rows_max
        self._rows = RowColumns()
        self._sizes: list[int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for a chunk that later rows cannot change."""
        return self._bytes > self._bytes_max or len(self._rows) > self._rows_max

    @property
    def fill(self) -> float:
        """How many chunks the rows are, about."""
        return self._bytes / self._bytes_max

    def add(self, rows: RowColumns) -> None:
        sizes = rows.sizes()
        self._rows.extend(rows)
        self._sizes += sizes
        self._bytes += sum(sizes)

    def cut(self) -> RowColumns:
        """Remove and return the rows of the next chunk: as many as the limits allow, at least one."""
        count = min(bisect_right(list(accumulate(self._sizes)), self._bytes_max), self._rows_max)
        count = max(1, count)
        self._bytes -= sum(self._sizes[:count])
        del self._sizes[:count]
        return self._rows.take(count)

    def take_all(self) -> RowColumns:
        """Remove and return all rows."""
        rows, self._rows, self._sizes, self._bytes = self._rows, RowColumns(), [], 0
        return rows


@dataclass(frozen=True, slots=True)
class LineIdentity:
    """Whose chunks these are. All attempts of a task of a micro-batch have the same identity.

    `query` is the id of a streaming query or the key of a job, `batch` the id of the micro-batch, `task` the
    number of the Spark partition.
    """

    query: str
    batch: int
    task: int

    @property
    def prefix(self) -> bytes:
        """The first 12 bytes of the append ids of all chunks; the last 4 are the number of the chunk."""
        text = f"holdfast spark sink\0{self.query}\0{self.batch}\0{self.task}"
        return hashlib.blake2b(text.encode(), digest_size=_PREFIX_SIZE).digest()


def append_id(prefix: bytes, number: int) -> bytes:
    """The append id of a line's chunk."""
    return prefix + number.to_bytes(_NUMBER_SIZE, "big")


def number_in(prefix: bytes, found: bytes) -> int | None:
    """The number of the chunk that has this append id; None if the chunk is of another line."""
    return int.from_bytes(found[_PREFIX_SIZE:], "big") if found[:_PREFIX_SIZE] == prefix else None


def encode_chunk(
    rows: RowColumns, name: bytes, timestamp_ms: int, codec: Compression, level: int | None = None
) -> bytearray:
    """The batch of a chunk. Its first record gets a header with the append id `name`."""
    builder = BatchBuilder(codec, level)
    headers = rows.headers
    first: Headers = ((APPEND_ID_HEADER, name), *(headers[0] if headers else NO_HEADERS))
    builder.append(timestamp_ms, rows.keys[0], rows.values[0], first)
    if headers is None:
        builder.extend(timestamp_ms, rows.keys[1:], rows.values[1:], 0)
    else:
        for key, value, of_row in zip(rows.keys[1:], rows.values[1:], headers[1:], strict=True):
            builder.append(timestamp_ms, key, value, of_row)
    return builder.build(has_append_id=True)
