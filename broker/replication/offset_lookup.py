"""Answers ListOffsets: the offset of a time, or of one of the special timestamps."""

from __future__ import annotations

from holdfast_log.broker.log.time_search import offset_for_timestamp, offset_of_max_timestamp
from holdfast_log.broker.log.timestamps import LookUp, TimestampOffset
from holdfast_log.broker.replication.partition import CONSUMER_ID, NO_EPOCH, READ_COMMITTED, Partition
from holdfast_log.protocol.errors import BrokerError, ErrorCode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
"""Special timestamps of ListOffsets (KIP-734, KIP-405)."""
NO_TIMESTAMP = -1


def offset_at(
    partition: Partition,
    timestamp: int,
    *,
    replica_id: int = CONSUMER_ID,
    current_leader_epoch: int = NO_EPOCH,
    isolation: int = 0,
) -> LookUp:
    """Look up the first offset with `timestamp` or a later one, or that of a special timestamp.

    None if there is none. Consumers see only offsets below the high watermark, and with isolation
    READ_COMMITTED only those below the last stable offset. Raises the errors of
    `Partition.leadership`, also if this broker leads no more when the look-up ends, and OFFSET_NOT_AVAILABLE
    while a new leader does not know the high watermark yet: consumers must never see the end of a log move
    back (KIP-207).
    """
    role = partition.leadership(current_leader_epoch)
    log = partition.log
    upper_offset = partition.high_watermark if replica_id < 0 else log.log_end_offset
    is_known = upper_offset >= role.start_offset
    if isolation == READ_COMMITTED and replica_id < 0:
        upper_offset = partition.last_stable_offset
    if timestamp == LATEST and is_known:
        return TimestampOffset(upper_offset, NO_TIMESTAMP, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(start, NO_TIMESTAMP, log.epochs.epoch_at(start))
    if timestamp == LATEST:
        found = None
    elif timestamp == MAX_TIMESTAMP:
        found = yield from offset_of_max_timestamp(log)
    else:
        found = yield from offset_for_timestamp(log, timestamp)
    if partition.leadership(current_leader_epoch).leader_epoch != role.leader_epoch:
        # Another broker has led meanwhile, and this log may have been cut.
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if found is not None and found.offset < upper_offset:
        return found
    if not is_known:
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None
