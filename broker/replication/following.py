"""How one replica follows its leader: where it asks to go on, and what it makes of the answer.

The follower writes the bytes that it gets, and never decodes a record. Where its log and the leader's part
is found by leader epochs, and never by high watermarks (KIP-101, KIP-279): each fetch names the epoch of the
last batch, and a leader in whose log that epoch ended earlier says so (KIP-595). The follower then cuts its
log back to where both agree, if need be in several rounds.
"""

from __future__ import annotations

import enum
import logging
from typing import cast

from broker.log.log import Log
from broker.replication.partition import NO_EPOCH, Partition
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.fetch import FetchPartition, PartitionData

_log = logging.getLogger(__name__)


class FetchOutcome(enum.Enum):
    """How a follower goes on after an answer."""

    GO_ON = "fetch again at once"
    BACK_OFF = "fetch again after a pause"
    WAIT = "fetch no more until the controller has spoken"


def wanted(partition: Partition, max_bytes: int) -> FetchPartition:
    """What the replica asks its leader for: what comes after all that it has."""
    log = partition.log
    return FetchPartition(
        partition=partition.index,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=log.epochs.latest,
        log_start_offset=log.log_start_offset,
        partition_max_bytes=max_bytes,
    )


def take(partition: Partition, data: PartitionData, now_ms: int) -> FetchOutcome:
    """Append, or cut, or start anew, as the leader's answer asks for.

    The answer must be to what `wanted` asked for in the replica's present leader epoch, and its log must not
    have changed since.
    """
    try:
        match data.error_code:
            case ErrorCode.NONE:
                _take_good(partition, data, now_ms)
            case ErrorCode.OFFSET_OUT_OF_RANGE if data.log_start_offset >= 0:
                _start_at(partition, data.log_start_offset, now_ms)
            case ErrorCode.FENCED_LEADER_EPOCH:
                # There is a newer epoch, of which this broker is about to hear.
                return FetchOutcome.WAIT
            case code:
                raise error_for(code, "the leader's answer")
    except BrokerError as error:
        if partition.is_offline:
            return FetchOutcome.WAIT
        _log.log(_severity(error), "%s-%d is not copied for now: %s", partition.topic, partition.index, error)
        return FetchOutcome.BACK_OFF
    return FetchOutcome.GO_ON


def _take_good(partition: Partition, data: PartitionData, now_ms: int) -> None:
    log = partition.log
    if data.diverging_epoch.end_offset >= 0:
        _cut(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset, now_ms)
        return
    if data.records:
        # As received: a view of the frame.
        log.append_as_follower(cast(memoryview, data.records), now_ms=now_ms)
    partition.take_high_watermark(data.high_watermark)
    if data.log_start_offset > log.log_start_offset:
        log.advance_log_start(min(data.log_start_offset, log.log_end_offset), now_ms=now_ms)


def _cut(partition: Partition, epoch: int, end_offset: int, now_ms: int) -> None:
    """The leader's log has nothing of epochs after `epoch` up to the one asked for, and `epoch` itself ends
    there at `end_offset`."""
    log = partition.log
    before = (log.log_end_offset, log.epochs.latest)
    offset = truncation_offset(log, epoch, end_offset)
    lost = partition.high_watermark - offset
    partition.truncate_to(offset, now_ms)
    if (log.log_end_offset, log.epochs.latest) == before:
        raise error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"cutting at {offset} does not bring the log together with the leader's, where epoch {epoch} "
            f"ends at {end_offset}",
        )
    _log.log(
        logging.WARNING if lost > 0 else logging.INFO,
        "%s-%d is cut from %d to %d, where it agrees with its leader's log%s",
        partition.topic,
        partition.index,
        before[0],
        log.log_end_offset,
        ": committed records are gone, after an unclean election" if lost > 0 else "",
    )


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Where a log has to be cut, if in the leader's log `epoch` ends at `end_offset`, and no later one up to
    the one that this log ends with ever began.

    All before that offset may still differ, in epochs that only one of them knows; the next fetch tells.
    """
    own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
    if own_epoch == epoch:
        return min(own_end_offset, end_offset)
    if own_epoch == NO_EPOCH:
        return min(log.log_end_offset, end_offset)
    # The leader's epoch is unknown here: what follows the last one before it cannot be the leader's.
    return min(log.log_end_offset, own_end_offset)


def _start_at(partition: Partition, offset: int, now_ms: int) -> None:
    """The leader has nothing that joins on to this log any more: copy anew, from the leader's start."""
    log = partition.log
    _log.warning(
        "%s-%d has offsets %d to %d, which its leader's log does not join on to: copying anew from %d",
        partition.topic,
        partition.index,
        log.log_start_offset,
        log.log_end_offset,
        offset,
    )
    partition.start_at(offset, now_ms)


_USUAL = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a leader that has not yet heard that it is one."""


def _severity(error: BrokerError) -> int:
    return logging.DEBUG if error.code in _USUAL else logging.WARNING
