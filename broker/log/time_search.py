"""Finds records of a log by timestamp; `broker.log.timestamps` explains how to run a look-up.

All functions raise BrokerError with KAFKA_STORAGE_ERROR if the file system fails.
"""

from __future__ import annotations

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.timestamps import LOOK_UP_BYTES_MAX, BatchSearch, LookUp, TimestampOffset
from holdfast_log.protocol.batches import TimestampType


def offset_for_timestamp(log: Log, timestamp: int) -> LookUp:
    """Look up the first record with `timestamp` or a later one; None if there is none."""
    log.check_usable()
    try:
        for segment in list(log.segments):
            if segment not in log.segments:
                continue  # Removed while a search was running.
            if segment.next_offset > log.log_start_offset and segment.max_timestamp >= timestamp:
                found = yield from _search(log, segment, timestamp)
                if found is not None:
                    return found
    except OSError as error:
        raise log.refused(error) from error
    except SuspectSegment as error:
        raise log.suspect(segment, error) from error
    return None


def offset_of_max_timestamp(log: Log) -> LookUp:
    """Look up the first record with the largest timestamp; None if no record has a timestamp."""
    log.check_usable()
    try:
        latest = max(segment.max_timestamp for segment in log.segments)
    except OSError as error:
        raise log.refused(error) from error
    return (yield from offset_for_timestamp(log, latest)) if latest >= 0 else None


def _search(log: Log, segment: Segment, timestamp: int) -> LookUp:
    start_offset = max(segment.offset_before(timestamp), log.log_start_offset)
    file = segment.file()
    for header in segment.headers_from(start_offset):
        if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
            continue
        if not header.record_count:
            continue  # Compaction has left no record of the batch.
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            offset = max(header.base_offset, log.log_start_offset)
            return TimestampOffset(offset, header.max_timestamp, header.leader_epoch)
        limit = max(LOOK_UP_BYTES_MAX, 8 * log.settings.max_message_bytes)
        found = yield BatchSearch(file, header, timestamp, log.log_start_offset, limit)
        if found is not None:
            return found
    return None
