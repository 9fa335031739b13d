"""Which batches of a fetch the application must not get: control batches, and aborted ones (KIP-98)."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence

from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.fetch import AbortedTransaction
from holdfast_log.protocol.records import decode_columns

_MARKER = struct.Struct(">hh")  # version, type
_ABORT = 0


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
    try:
        keys = decode_columns(records, header).keys
    except BrokerError:
        return False
    return any(
        key is not None and len(key) >= _MARKER.size and _MARKER.unpack_from(key)[1] == _ABORT for key in keys
    )
