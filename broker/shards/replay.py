"""Reads records of a shard's partition: work for a worker thread, on bytes that no longer change."""

from __future__ import annotations

from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.coordinator.shards.log import Replay, ReplayOpen
from holdfast_log.protocol.batches import corrupt, has_valid_crc, whole_batches
from holdfast_log.protocol.control_records import end_marker_of
from holdfast_log.protocol.frames import FileSlice
from holdfast_log.protocol.records import decode_columns

_KEPT_MAX = 200_000
"""Records that are held before they are replayed, so that superseded ones are skipped."""


class LatestRecords:
    """Replays a log as compaction would leave it: the last record of each key, in the log's order.

    Records of a transaction wait for its end marker. Those of a committed one count at their own offsets, so
    that a later record of the same key, which compaction keeps, stays the last.

    One worker at a time may use it. In a long log a key may be replayed more than once, still in order.
    """

    def __init__(self, replay: Replay, replay_open: ReplayOpen) -> None:
        self._replay = replay
        self._replay_open = replay_open
        self._latest: dict[bytes, bytes | None] = {}
        self._offsets: dict[bytes, int] = {}
        """The offset of the last record of each key that an open transaction has written to."""
        self._open: dict[ProducerStamp, dict[bytes, tuple[int, bytes | None]]] = {}
        """What open transactions have written: offset and value by key."""

    def take(self, piece: FileSlice, offset: int) -> None:
        """Take in the records of `piece`, whole batches of the log, from `offset` on.

        Raises BrokerError with CORRUPT_MESSAGE for a batch that is damaged, and OSError.
        """
        data = memoryview(piece.file.pread(piece.length, piece.offset))
        headers = whole_batches(data)
        if len(data) < piece.length or (headers[-1].end if headers else 0) != len(data):
            raise corrupt(f"the batches from offset {offset} on are damaged or cut off")
        for header in headers:
            if not has_valid_crc(data, header):
                raise corrupt(f"the batch at offset {header.base_offset} is damaged")
            if header.is_control:
                marker = end_marker_of(data, header)
                if marker is not None:
                    self._end(header.producer_id, is_commit=marker.is_commit)
                continue
            columns = decode_columns(data, header)
            written = self._open_of(header.producer_id, header.producer_epoch, header.is_transactional)
            for number, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
                if key is None or number < offset:
                    continue
                if written is None:
                    self._put(key, value, number)
                else:
                    written[key] = (number, value)
                    self._offsets.setdefault(key, -1)
        if len(self._latest) > _KEPT_MAX:
            self._flush()

    def finish(self) -> None:
        """Replay the records that are still held, and then those of open transactions."""
        self._flush()
        left, self._open = self._open, {}
        for stamp, written in left.items():
            for key, (number, value) in written.items():
                if number > self._offsets[key]:
                    self._replay_open(stamp, key, value)

    def _open_of(
        self, producer_id: int, producer_epoch: int, is_transactional: bool
    ) -> dict[bytes, tuple[int, bytes | None]] | None:
        if not is_transactional:
            return None
        return self._open.setdefault(ProducerStamp(producer_id, producer_epoch), {})

    def _put(self, key: bytes, value: bytes | None, number: int) -> None:
        latest = self._latest
        latest.pop(key, None)  # The key moves to the end, behind the keys of records in between.
        latest[key] = value
        if key in self._offsets:
            self._offsets[key] = number

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        """A producer's transaction has ended."""
        for stamp in [each for each in self._open if each.producer_id == producer_id]:
            written = self._open.pop(stamp)
            for key, (number, value) in written.items() if is_commit else ():
                if number > self._offsets[key]:
                    self._put(key, value, number)

    def _flush(self) -> None:
        latest, self._latest = self._latest, {}
        for key, value in latest.items():
            self._replay(key, value)
