"""Records of `__consumer_offsets` read back: work for a thread, on bytes that do not change any more."""

from __future__ import annotations

from collections.abc import Callable

from protocol.batches import corrupt, has_valid_crc, whole_batches
from protocol.frames import FileSlice
from protocol.records import decode_columns


def replay_slice(piece: FileSlice, offset: int, replay: Callable[[bytes, bytes | None], None]) -> None:
    """Give the records from `offset` on to `replay`, as compaction would leave them: of those with the same
    key the last, in the log's order.

    Raises BrokerError with CORRUPT_MESSAGE for a batch that is damaged, and OSError.
    """
    data = memoryview(piece.file.pread(piece.length, piece.offset))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for header in whole_batches(data):
        if not has_valid_crc(data, header):
            raise corrupt(f"the batch at offset {header.base_offset} is damaged")
        if header.is_control:
            continue
        columns = decode_columns(data, header)
        first = 0
        if header.base_offset < offset:
            first = sum(1 for each in columns.offsets if each < offset)
        keys += columns.keys[first:]
        values += columns.values[first:]
    last = dict(zip(keys, range(len(keys)), strict=True))
    for index in sorted(last.values()):
        key = keys[index]
        if key is not None:
            replay(key, values[index])
