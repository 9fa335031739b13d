"""Finds the last offset of each key in the uncompacted part of a log. For workers: it uses no log."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.cleaning.offset_map import OffsetMap
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.cleaning.sources import Source, SourceReader
from holdfast_log.broker.cleaning.transactions import PassTransactions
from holdfast_log.broker.log.disk import Disk
from holdfast_log.protocol import compaction
from holdfast_log.protocol.batches import BatchHeader, read_header


class KeyMapping:
    """Enters the keys of the records from `first_offset` on into a map, until the sources end or the map is
    full.

    Once `is_done`, `map` has the last offset of each key among the records from `first_offset` to before
    `end_offset`. A compressed batch is decompressed to at most `batch_bytes_max`.
    """

    def __init__(
        self,
        disk: Disk,
        sources: Sequence[Source],
        first_offset: int,
        settings: CleanerSettings,
        batch_bytes_max: int,
        transactions: PassTransactions,
    ) -> None:
        self.map: OffsetMap | None = None
        self.end_offset = sources[-1].next_offset
        self.is_done = False
        self._first_offset = first_offset
        self._settings = settings
        self._batch_bytes_max = batch_bytes_max
        self._transactions = transactions
        self._reader = SourceReader(disk, sources, settings.piece_bytes)

    def advance(self, bytes_max: int) -> int:
        """Read about `bytes_max` more bytes, up to a batch that the known transactions do not cover. Returns
        how many. Raises OSError and `UncleanableSegment`."""
        if self.map is None:
            # Here and not earlier: a worker clears the memory.
            self.map = OffsetMap.for_offsets(self.end_offset - self._first_offset, self._settings)
        done = 0
        while done < bytes_max and not self.is_done and not self._transactions.is_behind:
            piece = self._reader.next_piece()
            if piece is None:
                self.is_done = True
            else:
                self._add(piece, self.map)
                done += len(piece)
        return done

    def _add(self, piece: bytes, keys: OffsetMap) -> None:
        reader, first = self._reader, self._first_offset
        position, expected = 0, reader.expected
        while True:
            position, expected, keys.key_count, status, full_at = compaction.add_keys(
                piece, position, expected, reader.upper, keys.table, keys.key_count, keys.key_count_max, first
            )
            if status == compaction.MARKED:
                header = read_header(piece, position)
                if not self._transactions.covers(header):
                    break
                batch, inner = piece[position : header.end], header._replace(position=0)
                status, full_at = self._add_marked(batch, inner, keys)
                if status != compaction.FULL:
                    position, expected = header.end, header.next_offset
                    continue
            if status == compaction.COMPRESSED:
                header = read_header(piece, position)
                keys.key_count, status, full_at = compaction.add_compressed_keys(
                    piece[position : header.end], header._replace(position=0),
                    keys.table, keys.key_count, keys.key_count_max, first, self._batch_bytes_max,
                )  # fmt: skip
                if status != compaction.FULL:
                    position, expected = header.end, header.next_offset
                    continue
            break
        if status == compaction.DAMAGED:
            raise reader.refuse_next(position)
        if status == compaction.FULL:
            self.end_offset = full_at
            self.is_done = True
        elif position or not self._transactions.is_behind:
            reader.take(position, expected)

    def _add_marked(self, batch: bytes, header: BatchHeader, keys: OffsetMap) -> tuple[int, int]:
        """Add the keys of a batch of a transaction, unless that was aborted. Returns (FULL or ENDED, offset
        of the first record that has no place)."""
        if header.is_control:
            self._transactions.end(batch, header)
            return compaction.ENDED, 0
        if self._transactions.is_aborted(header) or header.last_offset < self._first_offset:
            return compaction.ENDED, 0
        keys.key_count, status, full_at = compaction.add_compressed_keys(
            batch, header, keys.table, keys.key_count, keys.key_count_max, self._first_offset,
            self._batch_bytes_max,
        )  # fmt: skip
        return status, full_at

    def close(self) -> None:
        """Close the file that is being read."""
        self._reader.close()
