"""Whether the end of a file is the beginning of a batch whose write a killed process has not finished.

A killed process loses nothing that it has written: the system keeps it, and the file's size. A batch whose
write was interrupted was never acknowledged, and recovery may remove it without a word. All else that
recovery cannot read may be a whole batch that the disk has changed, and that clients rely on. No checksum
covers the length of a batch: of a changed one, a whole batch seems to reach beyond the end of its file.

So the end of a file counts as an interrupted write only if all of this is true:

- The file ends where a page ends. The system writes page by page, and lets a signal interrupt it in between.
- The bytes are the beginning of a batch that follows the batch before, and is longer than they are.
- They hold no whole batch, of whatever length: the checksum of its header matches no part of them.

Recovery also knows when the process went on after the write (see `broker.log.segment_recovery`): then the
write was finished, and the disk has lost its end.
"""

from __future__ import annotations

import struct

from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.protocol.batches import (
    CHECKED_FROM,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    batch_size_at,
    read_header,
)
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.errors import BrokerError

PAGE_BYTES = 4096
"""The smallest page of a system, in bytes. Larger pages end where one of these does."""
_OFFSET = struct.Struct(">q")
_MAGIC_AT = 16


def is_interrupted_write(file: DiskFile, position: int, next_offset: int) -> bool:
    """Whether the bytes of a file from `position` on are what an interrupted write of the batch with
    `next_offset` has left there. Raises OSError."""
    size = file.size()
    if size % PAGE_BYTES:
        return False
    rest = file.pread(size - position, position)
    return _begins_batch(rest, next_offset) and (len(rest) < HEADER_SIZE or not _has_whole_batch(rest))


def _begins_batch(rest: bytes, next_offset: int) -> bool:
    """Whether the bytes are the beginning of a batch with this offset, and less than the whole of it."""
    offset = _OFFSET.pack(next_offset)[: len(rest)]
    if not rest.startswith(offset) or rest[_MAGIC_AT : _MAGIC_AT + 1] not in (b"", bytes([MAGIC])):
        return False
    if len(rest) < LOG_OVERHEAD:
        return True
    batch_size = batch_size_at(rest, 0)
    return batch_size is not None and batch_size > len(rest)


def _has_whole_batch(rest: bytes) -> bool:
    """Whether the checksum of the first header matches the bytes up to the end, or up to a place where the
    next batch may begin."""
    try:
        header = read_header(rest)
    except BrokerError:
        return True
    checksum, checked = 0, CHECKED_FROM
    view = memoryview(rest)
    for end in _ends(rest, header):
        checksum, checked = crc32c(view[checked:end], checksum), end
        if checksum == header.crc:
            return True
    return False


def _ends(rest: bytes, header: BatchHeader) -> list[int]:
    """Where a batch may end: before each place that holds the offset after its last one, and at the end."""
    ends = []
    following = _OFFSET.pack(max(0, header.next_offset))
    found = rest.find(following, HEADER_SIZE)
    while found >= 0:
        ends.append(found)
        found = rest.find(following, found + 1)
    return [*ends, len(rest)]
