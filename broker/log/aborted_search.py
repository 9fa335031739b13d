"""Finds the aborted transactions in a part of a log, in the indexes of its segments (KIP-98)."""

from __future__ import annotations

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.transactions import AbortedEntry


def aborted_between(log: Log, first_offset: int, end_offset: int) -> list[AbortedEntry]:
    """The aborted transactions with records from `first_offset` to before `end_offset`, in the order of their
    markers. Raises BrokerError with KAFKA_STORAGE_ERROR where the file system fails.

    A transaction is in the index of the segment with its marker, which may be any later one. The entry of a
    marker behind which the log was stable up to `end_offset` is the last to look at.
    """
    found: list[AbortedEntry] = []
    try:
        for segment in log.segments.from_offset(first_offset):
            if segment.aborted.is_empty:
                continue
            entries, is_all = segment.aborted.find(first_offset, end_offset)
            found += entries
            if is_all:
                break
    except OSError as error:
        raise log.refused(error) from error
    return found
