"""A follower's fetch position in one partition, and the application of the leader's response.

The follower writes the bytes that it receives, and decodes no record. It finds the offset at which its log
diverges from the leader's by leader epochs, not by high watermarks (KIP-101, KIP-279). Each fetch has the
epoch of the follower's last batch; if that epoch ends earlier in the leader's log, the response has the end
offset (KIP-595). The follower then truncates its log and fetches again, until both logs agree.
"""

from __future__ import annotations

import enum
import logging
from typing import cast

from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import advance_log_start, keeps_all_before
from holdfast_log.broker.replication.partition import NO_EPOCH, Partition
from holdfast_log.broker.replication.partition_values import NO_OFFSET
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.fetch import FetchPartition, PartitionData

_log = logging.getLogger(__name__)


class FetchOutcome(enum.Enum):
    """A follower's next action after a fetch response."""

    GO_ON = "fetch again at once"
    BACK_OFF = "fetch again after a pause"
    START_OVER = "fetch from the start of the leader's log, after a pause that grows"
    WAIT = "stop fetching until the controller assigns a role"


def wanted(partition: Partition, max_bytes: int) -> FetchPartition:
    """The replica's entry in a fetch request: the records after its last one. The log start in it is the one
    that is durable: the leader tells a client that records are deleted once that is so on every replica."""
    log = partition.log
    return FetchPartition(
        partition=partition.index,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=log.epochs.latest,
        log_start_offset=log.durable_start_offset,
        partition_max_bytes=max_bytes,
        has_refused=partition.refused_offset == log.log_end_offset,
    )


def take(partition: Partition, data: PartitionData, date_ms: int) -> FetchOutcome:
    """Append, truncate or restart the log, according to the leader's response.

    The response must be to the position that `wanted` returned in the replica's present leader epoch, and the
    log must not have changed since.
    """
    try:
        match data.error_code:
            case ErrorCode.NONE:
                return _take_good(partition, data, date_ms)
            case ErrorCode.OFFSET_OUT_OF_RANGE if data.log_start_offset >= 0:
                _start_at(partition, data.log_start_offset, date_ms)
                return FetchOutcome.START_OVER
            case ErrorCode.FENCED_LEADER_EPOCH:
                # A newer epoch exists; the controller will send it to this broker.
                return FetchOutcome.WAIT
            case code:
                raise error_for(code, "the leader's answer")
    except BrokerError as error:
        if partition.is_offline:
            return FetchOutcome.WAIT
        _log.log(
            _severity(error),
            "Copying %s-%d failed; retrying after a pause: %s",
            partition.topic,
            partition.index,
            error,
        )
        return FetchOutcome.BACK_OFF


def _take_good(partition: Partition, data: PartitionData, date_ms: int) -> FetchOutcome:
    log, diverging = partition.log, data.diverging_epoch
    is_diverging = diverging.end_offset >= 0
    end_offset = log.log_end_offset
    if is_diverging:
        end_offset = truncation_offset(log, diverging.epoch, diverging.end_offset)
    if end_offset < log.mapped_offset and data.log_start_offset >= 0 and _may_lack(partition, end_offset):
        _copy_anew(partition, end_offset, data.log_start_offset, date_ms)
        return FetchOutcome.START_OVER
    if is_diverging:
        _cut(partition, diverging.epoch, diverging.end_offset, date_ms)
        return FetchOutcome.GO_ON
    if data.records:
        # A view of the received frame, without a copy.
        _append(partition, cast(memoryview, data.records), date_ms)
    partition.take_high_watermark(data.high_watermark)
    if data.log_start_offset > log.log_start_offset:
        advance_log_start(log, min(data.log_start_offset, log.log_end_offset), now_ms=date_ms)
    return FetchOutcome.GO_ON


def _may_lack(partition: Partition, end_offset: int) -> bool:
    """Whether the leader may have records before `end_offset` that this log lacks if it ends there:
    compaction has removed them because of later ones, which the log does not have any more.

    If the controller counts this replica as having every committed record, it has agreed with its leader's
    log before, and must not become empty: it might be elected."""
    log = partition.log
    if partition.is_counted_on or log.log_start_offset == log.log_end_offset:
        log.mapped_offset = end_offset
    return end_offset < log.mapped_offset


def _append(partition: Partition, records: memoryview, date_ms: int) -> None:
    """Append the leader's batches up to the first that is not sound. Raises BrokerError for that one; the
    next fetch tells the leader, which examines its own."""
    log = partition.log
    written_before = log.written_bytes
    try:
        result = append_as_follower(log, records, now_ms=date_ms, leader_epoch=partition.leader_epoch)
        if result.last_offset < result.first_offset:
            raise error_for(
                ErrorCode.CORRUPT_MESSAGE,
                f"the {len(records)} bytes that the leader has at offset {log.log_end_offset} are no batch",
            )
    except BrokerError as error:
        if error.code in _DAMAGED:
            partition.refused_offset = log.log_end_offset
        raise
    finally:
        partition.traffic.replication_bytes_in += log.written_bytes - written_before
    partition.refused_offset = NO_OFFSET


_DAMAGED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE})
"""What `append_as_follower` raises for a batch that is not sound."""


def _cut(partition: Partition, epoch: int, end_offset: int, date_ms: int) -> None:
    """Truncate the log: in the leader's log `epoch` ends at `end_offset`, and no later epoch up to the
    replica's last one exists."""
    log = partition.log
    before = (log.log_end_offset, log.epochs.latest)
    offset = truncation_offset(log, epoch, end_offset)
    lost = partition.high_watermark - offset
    _check_damage(partition, offset)
    partition.truncate_to(offset, date_ms)
    if (log.log_end_offset, log.epochs.latest) == before:
        raise error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"truncating to {offset} leaves the log different from the leader's, where epoch {epoch} "
            f"ends at {end_offset}",
        )
    _log.log(
        logging.WARNING if lost > 0 else logging.INFO,
        "Truncated the log of %s-%d from offset %d to %d, because it differs from its leader's log%s",
        partition.topic,
        partition.index,
        before[0],
        log.log_end_offset,
        "; committed records were lost in an unclean election" if lost > 0 else "",
    )


def _check_damage(partition: Partition, offset: int) -> None:
    """Raise BrokerError if this replica is in sync or eligible, and damage would end its log before `offset`.

    An earlier leader has counted the records before `offset` as replicated, so this replica must not be
    elected without them. It truncates its log once the controller has removed it from both sets (see
    `Roles`).
    """
    log, is_known = partition.log, partition.is_withdrawing
    partition.is_withdrawing = partition.is_counted_on and not keeps_all_before(log, offset)
    if not partition.is_withdrawing:
        return
    why = f"damage would end the log before offset {offset}, to which it must be truncated"
    if not is_known:
        raise log.suspect_at(offset - 1, why)
    raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"{why}: first this replica must leave the in-sync set")


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Offset to which a log must be truncated if, in the leader's log, `epoch` ends at `end_offset` and no
    later epoch up to this log's last one ever began.

    Records before that offset may still differ, in epochs that only one of the logs has; the next fetch
    detects that.
    """
    own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
    if own_epoch == epoch:
        return min(own_end_offset, end_offset)
    if own_epoch == NO_EPOCH:
        return min(log.log_end_offset, end_offset)
    # This log lacks the leader's epoch, so records after its last earlier epoch are not in the leader's log.
    return min(log.log_end_offset, own_end_offset)


def _start_at(partition: Partition, offset: int, date_ms: int) -> None:
    """Empty the log and copy the leader's from its start: the two have no offset in common."""
    log = partition.log
    _log.warning(
        "Deleting all records of %s-%d, offsets %d to %d, which its leader's log does not have or not in the "
        "same leader epochs; copying from %d on",
        partition.topic,
        partition.index,
        log.log_start_offset,
        log.log_end_offset,
        offset,
    )
    partition.start_at(offset, date_ms)


def _copy_anew(partition: Partition, end_offset: int, start_offset: int, date_ms: int) -> None:
    """Empty the log, and copy the leader's from its start: this log would end at `end_offset`, and compaction
    has looked beyond that."""
    log = partition.log
    _log.warning(
        "Deleting all records of %s-%d, offsets %d to %d, and copying them from broker %d again, from offset "
        "%d on: the leader's log differs from offset %d on, and compaction here has removed earlier records "
        "because of later ones that are now gone",
        partition.topic,
        partition.index,
        log.log_start_offset,
        log.log_end_offset,
        partition.leader,
        start_offset,
        end_offset,
    )
    partition.start_at(start_offset, date_ms)


_USUAL = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors from a leader that does not know its role yet."""


def _severity(error: BrokerError) -> int:
    return logging.DEBUG if error.code in _USUAL else logging.WARNING
