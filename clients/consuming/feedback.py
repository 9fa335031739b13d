"""Collects a consumer's counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.clients.feedback.snapshots import ConnectionFeedback, ConsumerFeedback
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.message import OffsetAndMetadata

if TYPE_CHECKING:
    from holdfast_log.clients.fetching.fetcher import Fetcher
    from holdfast_log.clients.fetching.record_buffer import RecordBuffer
    from holdfast_log.clients.groups.session import GroupSession


def consumer_feedback(
    connection: ConnectionFeedback, fetcher: Fetcher, buffer: RecordBuffer, group: GroupSession | None
) -> ConsumerFeedback:
    """The counts of a consumer, from its connection, fetcher, buffer and group session."""
    consumed = buffer.consumed()
    rebalances = None if group is None else group.rebalances
    offsets = None if group is None else group.offsets
    return ConsumerFeedback(
        connection=connection,
        records=buffer.records,
        records_skipped=buffer.deserialization.skipped,
        records_dead_lettered=buffer.deserialization.dead_lettered,
        batches_skipped=fetcher.stored.batches_skipped,
        bytes=fetcher.fetched_bytes,
        fetches=fetcher.fetches,
        fetch_errors=fetcher.fetch_errors,
        buffered_bytes=sum(position.stored_bytes for position in fetcher.positions.values()),
        lag={key: _lag(position, consumed.get(key)) for key, position in fetcher.positions.items()},
        rebalances=0 if rebalances is None else rebalances.count,
        rebalance_ms=0 if rebalances is None else rebalances.total_ms,
        commits=0 if offsets is None else offsets.commits,
        commits_failed=0 if offsets is None else offsets.commits_failed,
    )


def _lag(position: Position, consumed: OffsetAndMetadata | None) -> int | None:
    if consumed is None or position.high_watermark is None:
        return None
    return max(0, position.high_watermark - consumed.offset)
