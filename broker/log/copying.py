"""Appends to a follower's log what it has fetched from its leader."""

from __future__ import annotations

from holdfast_log.broker.log.append import AppendResult, sound_batches
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import make_start_durable, truncate_fully_and_start_at
from holdfast_log.protocol.batches import HEADER_SIZE, NO_LEADER_EPOCH, NO_TIMESTAMP, read_header


def append_as_follower(
    log: Log, records: memoryview, *, now_ms: int, leader_epoch: int = NO_LEADER_EPOCH
) -> AppendResult:
    """Append the leader's batches unchanged, without a last batch that is cut off. `leader_epoch` is the one
    in which the leader leads; -1 if it is unknown.

    Raises BrokerError for the first batch that is not sound, see `sound_batches`, once those before it have
    been appended. Without a complete batch nothing is appended, and the result's last offset is lower than
    its first.
    """
    if log.failure is not None or log.settling:
        log.check_may_grow()
    start = log.log_start_offset
    if start == log.log_end_offset:
        _begin_with(log, records, now_ms)
    headers, refusal = sound_batches(
        records,
        log.log_end_offset,
        is_dense=log.settings.is_dense,
        latest_epoch=log.epochs.latest,
        leader_epoch=leader_epoch,
    )
    if refusal is not None and not headers:
        raise refusal
    if not headers:
        end = log.log_end_offset
        return AppendResult(end, end - 1, NO_TIMESTAMP, log.log_start_offset)
    base_offsets = [header.base_offset for header in headers]
    for header in headers:
        log.epochs.assign(header.leader_epoch, header.base_offset)
    log.write(records[: headers[-1].end], headers, base_offsets, now_ms)
    if log.log_start_offset < start:
        log.log_start_offset = start
        make_start_durable(log)
    if refusal is not None:
        raise refusal
    return AppendResult(base_offsets[0], headers[-1].last_offset, NO_TIMESTAMP, log.log_start_offset)


def _begin_with(log: Log, records: memoryview, now_ms: int) -> None:
    """Move the start of an empty log down to the first of these batches, if the log's end lies inside
    that batch: the leader has deleted records up to an offset within it."""
    first = read_header(records) if len(records) >= HEADER_SIZE else None
    if first is not None and first.base_offset < log.log_end_offset <= first.last_offset:
        truncate_fully_and_start_at(log, first.base_offset, now_ms=now_ms)
