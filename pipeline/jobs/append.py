"""Appends the rows of one partition at fixed offsets, so that any number of attempts writes each row once.

Row n belongs at offset `base` + n. Every append is conditional (KIP-27): the broker refuses it unless the log
ends exactly there. So the log itself shows how many rows are written, and an attempt that was killed, or that
still runs somewhere, does no harm: both would write the same rows at the same offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast_log.protocol.errors import OffsetMismatchError
from holdfast_log.protocol.records import Headers

CHUNK_ROWS = 1_000
CHUNK_BYTES = 512 * 1024
_UNDER_WAY_MAX = 4


class OutRow(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """In ms since 1970; None for a row that gets the time at which it is appended."""


class ForeignRecordsError(Exception):
    """The partition has records that this job did not write. Nothing more was appended."""


class Pending(Protocol):
    """An append under way."""

    def result(self) -> object:
        """Wait for the answer. Raises OffsetMismatchError if the log ended elsewhere, and other errors."""
        ...


class TargetLog(Protocol):
    """The partition that rows are appended to."""

    def end(self) -> int:
        """The offset after the last record."""
        ...

    def record_at(self, offset: int) -> OutRow:
        """The record at an offset; its `timestamp_ms` is None if the broker has set it."""
        ...

    def append(self, offset: int, rows: Sequence[OutRow]) -> Pending:
        """Append rows one after the other, all or none, if the log ends at `offset`."""
        ...


@dataclass(frozen=True, slots=True)
class AppendCounts:
    """How many rows an attempt has appended, and how many were there before."""

    appended: int
    present: int


def append_rows(rows: Iterable[OutRow], log: TargetLog, base: int) -> AppendCounts:
    """Append the rows that the log does not have yet.

    Raises `ForeignRecordsError`, and errors of the client.
    """
    return _Attempt(log, base).run(iter(rows))


def _is_same(record: OutRow, row: OutRow) -> bool:
    if record[:3] != row[:3]:
        return False
    return None in (record.timestamp_ms, row.timestamp_ms) or record.timestamp_ms == row.timestamp_ms


def _size(row: OutRow) -> int:
    """The bytes of a row, without its lengths and offsets."""
    size = len(row.key or b"") + len(row.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in row.headers) if row.headers else size


class _Attempt:
    def __init__(self, log: TargetLog, base: int) -> None:
        self._log = log
        self._base = base
        self._next = base  # The offset of the next row.
        self._present_until = log.end()
        if self._present_until < base:
            raise ForeignRecordsError(
                f"the log ends at {self._present_until}, before offset {base}, where row 0 belongs"
            )
        self._chunk: list[OutRow] = []
        self._chunk_bytes = 0
        self._under_way: deque[tuple[int, list[OutRow], Pending]] = deque()
        self._again: deque[OutRow] = deque()
        self._appended = 0

    def run(self, rows: Iterator[OutRow]) -> AppendCounts:
        while True:
            row = self._again.popleft() if self._again else next(rows, None)
            if row is not None:
                self._take(row)
                continue
            self._send()
            while self._under_way:
                self._settle()
            if not self._again:
                break
        if self._present_until > self._next:
            raise ForeignRecordsError(
                f"the log ends at {self._present_until}, but the rows end at {self._next}: another program "
                "writes to the partition"
            )
        return AppendCounts(self._appended, self._next - self._base - self._appended)

    def _take(self, row: OutRow) -> None:
        offset = self._next
        self._next += 1
        if offset >= self._present_until:
            self._chunk.append(row)
            self._chunk_bytes += _size(row)
            if len(self._chunk) >= CHUNK_ROWS or self._chunk_bytes >= CHUNK_BYTES:
                self._send()
        elif offset == self._present_until - 1 and not _is_same(self._log.record_at(offset), row):
            # Only the last one is compared: this job appends behind no record that is not its own.
            raise ForeignRecordsError(
                f"the record at offset {offset} is not row {offset - self._base} of this job: another "
                "program writes to the partition, or the rows are not the same in every attempt"
            )

    def _send(self) -> None:
        if self._chunk:
            at = self._next - len(self._chunk)
            self._under_way.append((at, self._chunk, self._log.append(at, self._chunk)))
            self._chunk, self._chunk_bytes = [], 0
        while len(self._under_way) > _UNDER_WAY_MAX:
            self._settle()

    def _settle(self) -> None:
        """Wait for the oldest append. If the log ended elsewhere, look where, and take the rows again."""
        at, rows, pending = self._under_way.popleft()
        try:
            pending.result()
            self._appended += len(rows)
            return
        except OffsetMismatchError:
            refused = [rows]
        for _, later, answer in self._under_way:
            try:
                answer.result()
                self._appended += len(later)
            except OffsetMismatchError:
                pass
            refused.append(later)
        self._under_way.clear()
        end = self._log.end()
        if end <= at:
            raise ForeignRecordsError(f"the log ends at {end}, before offset {at}: records were lost")
        self._again.extendleft(row for chunk in reversed([*refused, self._chunk]) for row in reversed(chunk))
        self._chunk, self._chunk_bytes = [], 0
        self._next, self._present_until = at, end
