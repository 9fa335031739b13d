"""Appends to a follower's log what it has fetched from its leader."""

from __future__ import annotations

from holdfast_log.broker.log.append import AppendResult, check_fetched
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import truncate_fully_and_start_at
from holdfast_log.protocol.batches import NO_TIMESTAMP, whole_batches


def append_as_follower(log: Log, records: memoryview, *, now_ms: int) -> AppendResult:
    """Append the leader's batches unchanged, without a last batch that is cut off.

    Raises BrokerError as `check_fetched` does. Without a complete batch nothing is appended, and the
    result's last offset is lower than its first.
    """
    if log.failure is not None or log.settling:
        log.check_may_grow()
    start = log.log_start_offset
    if start == log.log_end_offset:
        _begin_with(log, records, now_ms)
    headers = check_fetched(records, log.log_end_offset, is_dense=log.settings.is_dense)
    if not headers:
        end = log.log_end_offset
        return AppendResult(end, end - 1, NO_TIMESTAMP, log.log_start_offset)
    base_offsets = [header.base_offset for header in headers]
    for header in headers:
        log.epochs.assign(header.leader_epoch, header.base_offset)
    log.write(records[: headers[-1].end], headers, base_offsets, now_ms)
    log.log_start_offset = max(start, log.log_start_offset)
    return AppendResult(base_offsets[0], headers[-1].last_offset, NO_TIMESTAMP, log.log_start_offset)


def _begin_with(log: Log, records: memoryview, now_ms: int) -> None:
    """Move the start of an empty log down to the first of these batches, if the log's end lies inside
    that batch: the leader has deleted records up to an offset within it."""
    first = next(iter(whole_batches(records)), None)
    if first is not None and first.base_offset < log.log_end_offset <= first.last_offset:
        truncate_fully_and_start_at(log, first.base_offset, now_ms=now_ms)
