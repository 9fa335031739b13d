"""Retention of real logs, carried out at once."""

from __future__ import annotations

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.retention import Removal, RetentionRule, removal
from holdfast_log.broker.log.segment_times import TimestampReading, segment_facts
from holdfast_log.broker.log.truncation import discard_before_start, move_log_start


def retain(log: Log, rule: RetentionRule, high_watermark: int, now_ms: int) -> Removal:
    """Remove the segments that a rule does not keep, as `broker.replication.retention` does. Returns the
    decision."""
    decided = _decide(log, rule, high_watermark, now_ms)
    while decided.unread is not None:
        reading = TimestampReading.of(log, decided.unread)
        reading.finish(reading.run())
        decided = _decide(log, rule, high_watermark, now_ms)
    if decided.segments:
        move_log_start(log, decided.log_start_offset, now_ms=now_ms)
        discard_before_start(log, log.log_start_offset, len(log.segments))
    return decided


def _decide(log: Log, rule: RetentionRule, high_watermark: int, now_ms: int) -> Removal:
    return removal(
        segment_facts(log, now_ms),
        rule,
        size_bytes=log.size_bytes,
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
