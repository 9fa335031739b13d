"""Which records of a log readers of committed records do not get, so that compaction may remove them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.control_records import readable_end_marker


def uncounted_offsets(batches: Iterable[tuple[BatchHeader, bytes]]) -> frozenset[int]:
    """The offsets of records of aborted transactions, and of markers. The batches, each with the bytes that
    its header refers to, are in the order of the log."""
    found: set[int] = set()
    still_open: dict[int, list[range]] = {}
    for header, data in batches:
        offsets = range(header.base_offset, header.next_offset)
        if header.is_control:
            found.update(offsets)
            ended = still_open.pop(header.producer_id, [])
            marker = readable_end_marker(data, header)
            if marker is not None and not marker.is_commit:
                found.update(offset for some in ended for offset in some)
        elif header.is_transactional:
            still_open.setdefault(header.producer_id, []).append(offsets)
    return frozenset(found)
