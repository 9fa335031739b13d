"""Which batches of a fetch the application must not get: control batches, and aborted ones (KIP-98)."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.control_records import readable_end_marker
from holdfast_log.protocol.messages.fetch import AbortedTransaction


class Isolation(enum.IntEnum):
    """`isolation.level`, as requests encode it."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def skipped(
    records: memoryview, headers: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction]
) -> list[bool]:
    """For every batch, in order, whether the application must not get it.

    `aborted` lists the aborted transactions of the same range by producer and first offset, as the broker
    reports them. A transaction ends at its producer's next abort marker.
    """
    coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    open_: set[int] = set()
    answers = []
    for header in headers:
        while coming and coming[-1].first_offset <= header.last_offset:
            open_.add(coming.pop().producer_id)
        answers.append(header.is_control or (header.is_transactional and header.producer_id in open_))
        if header.is_control and header.producer_id in open_ and _is_abort(records, header):
            open_.discard(header.producer_id)
    return answers


def _is_abort(records: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch is an abort marker; False if it cannot be decoded."""
    marker = readable_end_marker(records, header)
    return marker is not None and not marker.is_commit
