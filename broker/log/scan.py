"""Iterates over the batches of a log file, or over their headers only, with few reads.

Header positions are byte positions in the file. Iteration stops before the first incomplete or implausible
batch; if it stops before the end of the file, that batch is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    batch_size_at,
    has_valid_crc,
    read_header,
)
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import SliceSource

_HEADERS_CHUNK = 4 * 1024
"""Bytes per read. Most searches start at an index entry and end before the next one."""
_BATCHES_CHUNK = 1024 * 1024


def headers(
    file: DiskFile, position: int, end: int, chunk_size: int = _HEADERS_CHUNK
) -> Iterator[BatchHeader]:
    """The headers of the batches from `position` on that end at or before `end`."""
    chunk = b""
    chunk_start = position
    while position + HEADER_SIZE <= end:
        inner = position - chunk_start
        if inner < 0 or inner + HEADER_SIZE > len(chunk):
            chunk = file.pread(min(chunk_size, end - position), position)
            chunk_start, inner = position, 0
        try:
            header = read_header(chunk, inner, chunk_start)
        except BrokerError:
            return
        position += header.length + LOG_OVERHEAD
        if position > end:
            return
        yield header


def valid_batches(file: SliceSource, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches with a valid checksum from `position` on, each with its bytes.

    Stops at the first batch that is incomplete, damaged, or cut off by `end`.
    """
    chunk = memoryview(b"")
    chunk_start = position
    while position + HEADER_SIZE <= end:
        inner = position - chunk_start
        size = batch_size_at(chunk, inner)
        if size is None or inner + size > len(chunk):
            # Continue at this batch; for a batch larger than a chunk the chunk grows to its size.
            wanted = max(_BATCHES_CHUNK, size or 0)
            chunk = memoryview(file.pread(min(wanted, end - position), position))
            chunk_start, inner = position, 0
            size = batch_size_at(chunk, 0)
            if size is None or position + size > end:
                return
            if size > len(chunk):
                chunk = memoryview(file.pread(size, position))
        try:
            header = read_header(chunk, inner)
        except BrokerError:
            return
        if header.size + inner > len(chunk) or not has_valid_crc(chunk, header):
            return
        yield header._replace(position=position), chunk[inner : inner + header.size]
        position += header.size
