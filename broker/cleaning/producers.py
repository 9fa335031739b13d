"""The last batch of each idempotent producer below an offset, whose header compaction keeps.

A replica that copies the compacted log learns from it the producer's last sequence, and recognises a repeated
batch. For workers: these functions use no log.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

from holdfast_log.broker.cleaning.sources import Source
from holdfast_log.broker.log import scan
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.producer_state import decode_snapshot

logger = logging.getLogger(__name__)


def last_batches(
    disk: Disk, snapshot: str, sources: Sequence[Source], known: Container[int]
) -> dict[int, int]:
    """Producer id → base offset of its last batch in the sources, of the producers that are `known`.

    `snapshot` is the path of the snapshot at their end; without it the headers of all batches are read, which
    may name any number of others. Raises OSError.
    """
    try:
        entries = decode_snapshot(disk.read(snapshot))
    except FileNotFoundError:
        return _scanned(disk, sources, known)
    except ValueError as error:
        logger.warning("Ignoring %s: %s", snapshot, error)
        return _scanned(disk, sources, known)
    return {
        entry.producer_id: entry.batches[-1].first_offset
        for entry in entries
        if entry.batches and entry.producer_id in known
    }


def _scanned(disk: Disk, sources: Sequence[Source], known: Container[int]) -> dict[int, int]:
    last: dict[int, int] = {}
    for source in sources:
        file = disk.open(source.path)
        try:
            for header in scan.headers(file, 0, source.size):
                if header.producer_id in known and not header.is_control:
                    last[header.producer_id] = header.base_offset
        finally:
            file.close()
    return last
