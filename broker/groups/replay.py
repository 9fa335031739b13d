"""Reads records of `__consumer_offsets`: work for a worker thread, on bytes that no longer change."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.protocol.batches import corrupt, has_valid_crc, whole_batches
from holdfast_log.protocol.frames import FileSlice
from holdfast_log.protocol.records import decode_columns

_KEPT_MAX = 200_000
"""Records that are held before they are replayed, so that superseded ones are skipped."""


class LatestRecords:
    """Replays a log as compaction would leave it: the last record of each key, in the log's order.

    One worker at a time may use it. In a long log a key may be replayed more than once, still in order.
    """

    def __init__(self, replay: Callable[[bytes, bytes | None], None]) -> None:
        self._replay = replay
        self._latest: dict[bytes, bytes | None] = {}

    def take(self, piece: FileSlice, offset: int) -> None:
        """Take in the records of `piece`, whole batches of the log, from `offset` on.

        Raises BrokerError with CORRUPT_MESSAGE for a batch that is damaged, and OSError.
        """
        data = memoryview(piece.file.pread(piece.length, piece.offset))
        latest = self._latest
        headers = whole_batches(data)
        if len(data) < piece.length or (headers[-1].end if headers else 0) != len(data):
            raise corrupt(f"the batches from offset {offset} on are damaged or cut off")
        for header in headers:
            if not has_valid_crc(data, header):
                raise corrupt(f"the batch at offset {header.base_offset} is damaged")
            if header.is_control:
                continue
            columns = decode_columns(data, header)
            for number, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
                if key is not None and number >= offset:
                    latest.pop(key, None)  # The key moves to the end, behind the keys of records in between.
                    latest[key] = value
        if len(latest) > _KEPT_MAX:
            self.finish()

    def finish(self) -> None:
        """Replay the records that are still held."""
        latest, self._latest = self._latest, {}
        for key, value in latest.items():
            self._replay(key, value)
