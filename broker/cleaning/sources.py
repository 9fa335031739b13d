"""Reads the batches of closed segments, in pieces of bounded size. For workers: it uses no log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.protocol.batches import batch_size_at


class UncleanableSegment(Exception):
    """A segment holds something that no broker writes; the message says what. `offset` lies in the
    segment."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment: its log file, its size in bytes, and its offsets, the last one excluded."""

    path: str
    base_offset: int
    next_offset: int
    size: int


class SourceReader:
    """Reads segments one after the other, about `piece_bytes` at a time; a larger batch is read as a whole.

    `expected` is the offset after the last batch that was taken, and `upper` that after the present segment.
    Each file stays open until its end, so that its removal does not disturb the reading.
    """

    def __init__(self, disk: Disk, sources: Sequence[Source], piece_bytes: int) -> None:
        self.expected = sources[0].base_offset
        self.upper = self.expected
        self._disk = disk
        self._sources = list(sources)
        self._piece_bytes = piece_bytes
        self._wanted = piece_bytes
        self._file: DiskFile | None = None
        self._position = 0
        self._last_piece = b""

    def next_piece(self) -> bytes | None:
        """The bytes after the last batch that was taken; None after the last segment. Raises OSError, and
        `UncleanableSegment` if a file is too short."""
        while self._sources and self._position == self._sources[0].size:
            self._next_source()
        if not self._sources:
            return None
        source = self._sources[0]
        if self._file is None:
            self._file = self._disk.open(source.path)
            self.expected, self.upper = source.base_offset, source.next_offset
        length = min(self._wanted, source.size - self._position)
        piece = self._file.pread(length, self._position)
        if len(piece) < length:
            raise self.refusal(f"ends at byte {self._position + len(piece)} of {source.size}")
        self._last_piece = piece
        return piece

    def _next_source(self) -> None:
        self.close()
        del self._sources[0]
        self._position = 0

    def take(self, size: int, expected: int) -> None:
        """Note that the batches in the first `size` bytes of the piece are dealt with. Raises
        `UncleanableSegment` if the next batch can never be read as a whole."""
        self._position += size
        self.expected = expected
        self._wanted = self._piece_bytes
        if size:
            return
        whole = batch_size_at(self._last_piece, 0)
        source = self._sources[0]
        if whole is None or whole <= len(self._last_piece) or whole > source.size - self._position:
            raise self.refusal(f"has no sound batch at byte {self._position}")
        self._wanted = whole

    def refusal(self, why: str) -> UncleanableSegment:
        """The error for a segment that cannot be read at the present position."""
        source = self._sources[0]
        return UncleanableSegment(source.base_offset, f"{source.path} {why}")

    def refuse_next(self, size: int) -> UncleanableSegment:
        """The error for a batch that is not sound, `size` bytes after the beginning of the piece."""
        return self.refusal(f"has no sound batch at byte {self._position + size}")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
