"""Sorted files of keys and the offsets of their last records, beside a log's segments.

A file (a *run*) covers the records from one offset to another. It holds the digest and the last offset of
each key in that range, in order of digests, in blocks of 4 KiB with a CRC-32C each. A trailer names the
range. A run never changes. Nothing of it is in memory: because digests are evenly distributed, a digest's
place in the file is nearly proportional to its value, so a search reads one or two blocks.

The functions raise OSError from the disk, and `DamagedRun` for content that no broker writes.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.protocol.checksum import crc32c

logger = logging.getLogger(__name__)

DIGEST_BYTES = 20
"""Size of a key's digest. Nobody can compute enough digests of this size to find two keys with the same
one."""
NO_VERSION = -1
"""Offset of the last record of a key that has none."""

_ENTRY = struct.Struct(f">{DIGEST_BYTES}sq")
_CRC = struct.Struct(">I")
_BLOCK_BYTES = 4096
BLOCK_ENTRIES = (_BLOCK_BYTES - _CRC.size) // _ENTRY.size
_TRAILER = struct.Struct(">8sqqiq")
_MAGIC = b"HFKEYS\x00\x01"
_TRAILER_BYTES = _TRAILER.size + _CRC.size
_BLOCKS_PER_WRITE = 64
_NAME = re.compile(r"(\d{20})-(\d{20})\.keys")

KeyEntry = tuple[bytes, int]
"""A key's digest and the offset of its last record."""


class DamagedRun(Exception):
    """A run is missing, or holds content that no broker writes. It is to be removed: the log has the same
    information."""


class ColdBlock(Exception):
    """A block of a run is not in the page cache: reading it would wait for the device."""


@dataclass(frozen=True, slots=True)
class KeyRun:
    """A run with the last offsets of the keys of the records from `first_offset` to before `end_offset`.

    `end_epoch` is the leader epoch of the record before `end_offset`: two logs with the same epoch at the
    same offset are the same up to there. `count` is the number of keys.
    """

    path: str
    first_offset: int
    end_offset: int
    end_epoch: int
    count: int

    @property
    def blocks(self) -> int:
        return -(-self.count // BLOCK_ENTRIES)


def run_name(first_offset: int, end_offset: int) -> str:
    return f"{first_offset:020d}-{end_offset:020d}.keys"


def is_run_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def write_run(
    disk: Disk, path: str, entries: Iterable[KeyEntry], first_offset: int, end_offset: int, end_epoch: int
) -> KeyRun:
    """Write a run, whose entries are in order of digests, and make it durable."""
    disk.remove(path)
    file = disk.open(path, create=True)
    count = 0
    remaining = iter(entries)
    while some := list(islice(remaining, BLOCK_ENTRIES * _BLOCKS_PER_WRITE)):
        count += len(some)
        starts = range(0, len(some), BLOCK_ENTRIES)
        file.append([_block(some[start : start + BLOCK_ENTRIES]) for start in starts])
    trailer = _TRAILER.pack(_MAGIC, first_offset, end_offset, end_epoch, count)
    file.append([trailer, _CRC.pack(crc32c(trailer))])
    file.fsync()
    file.close()
    return KeyRun(path, first_offset, end_offset, end_epoch, count)


def _block(entries: Sequence[KeyEntry]) -> bytes:
    body = b"".join([_ENTRY.pack(*entry) for entry in entries]).ljust(_BLOCK_BYTES - _CRC.size, b"\x00")
    return body + _CRC.pack(crc32c(body))


def read_run(disk: Disk, path: str) -> KeyRun:
    """The run at `path`, from its trailer."""
    file = disk.open(path)
    try:
        size = file.size()
        data = file.pread(_TRAILER_BYTES, max(0, size - _TRAILER_BYTES))
    finally:
        file.close()
    if (
        len(data) != _TRAILER_BYTES
        or crc32c(data[: _TRAILER.size]) != _CRC.unpack_from(data, _TRAILER.size)[0]
    ):
        raise DamagedRun(f"{path} has no valid trailer")
    magic, first_offset, end_offset, end_epoch, count = _TRAILER.unpack_from(data)
    run = KeyRun(path, first_offset, end_offset, end_epoch, count)
    if magic != _MAGIC or size != run.blocks * _BLOCK_BYTES + _TRAILER_BYTES:
        raise DamagedRun(f"{path} has {size} bytes, which do not fit {count} keys")
    if os.path.basename(path) != run_name(first_offset, end_offset):
        raise DamagedRun(f"{path} holds the keys of offsets {first_offset} to {end_offset - 1}")
    return run


def find_runs(disk: Disk, directory: str) -> list[KeyRun]:
    """The runs in a directory, by their trailers. Removes those that are damaged."""
    runs = []
    for name in filter(is_run_name, disk.list(directory)):
        path = os.path.join(directory, name)
        try:
            runs.append(read_run(disk, path))
        except DamagedRun as error:
            logger.warning("Removing %s, whose keys are read from the log again: %s", path, error)
            disk.remove(path)
    return runs


def entries_of(run: KeyRun, file: DiskFile) -> Iterator[KeyEntry]:
    """All entries, in order of digests."""
    for number in range(run.blocks):
        block, count = _read_block(run, file, number)
        yield from _ENTRY.iter_unpack(block[: count * _ENTRY.size])


def merged(newest_first: Sequence[Iterator[KeyEntry]], log_start_offset: int) -> Iterator[KeyEntry]:
    """The entries of several runs, each key once, with its last offset. Keys whose records all lie before
    `log_start_offset` are left out."""
    last = b""
    for digest, offset in heapq.merge(*newest_first, key=lambda entry: (entry[0], -entry[1])):
        if digest != last and offset >= log_start_offset:
            yield digest, offset
        last = digest


def find(run: KeyRun, file: DiskFile, digest: bytes, *, may_wait: bool = True) -> int:
    """The offset that a run holds for a digest, or `NO_VERSION`. Unless it `may_wait`, raises `ColdBlock`
    instead of reading from the device."""
    wanted = int.from_bytes(digest[:8])
    low, high = 0, run.blocks - 1
    low_value, high_value = 0, 1 << 64
    guesses = 0
    while low <= high:
        # Bisect every third time, in case the digests are not evenly distributed.
        number = (low + high) // 2
        if guesses % 3 != 2:
            number = low + (wanted - low_value) * (high - low + 1) // max(1, high_value - low_value)
            number = min(max(number, low), high)
        guesses += 1
        if not may_wait and not file.is_cached(_BLOCK_BYTES, number * _BLOCK_BYTES):
            raise ColdBlock
        block, count = _read_block(run, file, number)
        first = block[:DIGEST_BYTES]
        last_start = (count - 1) * _ENTRY.size
        last = block[last_start : last_start + DIGEST_BYTES]
        if digest < first:
            high, high_value = number - 1, int.from_bytes(first[:8])
        elif digest > last:
            low, low_value = number + 1, int.from_bytes(last[:8])
        else:
            return _find_in_block(block, count, digest)
    return NO_VERSION


def _find_in_block(block: bytes, count: int, digest: bytes) -> int:
    def digest_at(index: int) -> bytes:
        return block[index * _ENTRY.size : index * _ENTRY.size + DIGEST_BYTES]

    index = bisect_left(range(count), digest, key=digest_at)
    if index == count or digest_at(index) != digest:
        return NO_VERSION
    offset: int = _ENTRY.unpack_from(block, index * _ENTRY.size)[1]
    return offset


def _read_block(run: KeyRun, file: DiskFile, number: int) -> tuple[bytes, int]:
    """A block and the number of its entries."""
    block = file.pread(_BLOCK_BYTES, number * _BLOCK_BYTES)
    body_bytes = _BLOCK_BYTES - _CRC.size
    if len(block) != _BLOCK_BYTES or crc32c(block[:body_bytes]) != _CRC.unpack_from(block, body_bytes)[0]:
        raise DamagedRun(f"block {number} of {run.path} does not match its checksum")
    return block, min(BLOCK_ENTRIES, run.count - number * BLOCK_ENTRIES)
