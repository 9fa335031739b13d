"""Finds the aborted transactions in a part of a log, in the indexes of its segments (KIP-98)."""

from __future__ import annotations

import sys

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.reading import LogRead
from holdfast_log.broker.log.transactions import AbortedEntry

ENDS_MAX = 1_000
"""Maximum number of aborted transactions that end in one read. A response names each of them: there may be
one for every 150 bytes of a log, and a read may have millions of bytes."""


def aborted_between(
    log: Log, first_offset: int, end_offset: int, ends_max: int = sys.maxsize
) -> tuple[list[AbortedEntry], int]:
    """The aborted transactions with records from `first_offset` to before `end_offset`, in the order of their
    markers, and the end: an earlier one if more than `ends_max` of them end before it, so that these are all
    up to there. Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.

    A transaction is in the index of the segment with its marker, which may be any later one. The entry of a
    marker behind which the log was stable up to `end_offset` is the last to look at.
    """
    found: list[AbortedEntry] = []
    try:
        for segment in log.segments.from_offset(first_offset):
            if segment.aborted.is_empty:
                continue
            entries, is_all, end_offset = segment.aborted.find(first_offset, end_offset, ends_max)
            found += entries
            if is_all:
                break
            ends_max -= sum(each.last_offset < end_offset for each in entries)
    except OSError as error:
        raise log.refused(error) from error
    return found, end_offset


def with_aborted(log: Log, offset: int, max_bytes: int, read: LogRead) -> tuple[LogRead, list[AbortedEntry]]:
    """What a reader of committed records gets of this read, from `offset` and of at most `max_bytes`: less of
    it if too many aborted transactions end in it, and those transactions. Raises as `aborted_between`."""
    found, end_offset = aborted_between(log, read.first_offset, read.next_offset, ENDS_MAX)
    if end_offset < read.next_offset:
        read = log.read(offset, max_bytes, upper_offset=end_offset, skips_empty=True)
    return read, found
