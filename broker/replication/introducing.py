"""Who may begin to use a producer id in a partition, and who may raise its epoch.

Looked at only where a batch names a producer that the log does not know, or an epoch above the known one; all
other batches of idempotent producers cost one look-up.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

IdRefusal = Callable[[int], "BrokerError | None"]
"""Why a producer may not begin to use an id; None if it may."""


class Introducing:
    """Judges appends of idempotent producers that are new to a log, or that raise their epoch."""

    def __init__(self, refusal: IdRefusal) -> None:
        self._refusal = refusal

    def judge(self, append: Append, origin: Origin | None) -> None:
        """Fail an append that may not introduce its producer, or raise its epoch; note the source of one that
        introduces its producer."""
        prepared, partition = append.prepared, append.partition
        if prepared is None or partition is None or prepared.duplicate is not None:
            return
        if append.error is not None or append.origin is not AppendOrigin.CLIENT or origin is None:
            return
        header = prepared.headers[0]
        if header.producer_id < 0:
            return
        producers = partition.log.producers
        entry = producers.get(header.producer_id)
        if entry is None:
            refused = self._refusal(header.producer_id)
            if refused is not None:
                append.fail(refused)
            else:
                append.source = origin.source
        elif header.producer_epoch > entry.epoch:
            introducer = producers.introductions.source_of(header.producer_id)
            if introducer not in (UNKNOWN_SOURCE, origin.source):
                append.fail(_foreign_epoch(header.producer_id, header.producer_epoch))


def _foreign_epoch(producer_id: int, epoch: int) -> BrokerError:
    return error_for(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"another client has introduced producer {producer_id} here, and only that one may raise its epoch "
        f"(to {epoch}): start the producer again, so that it gets an id of its own",
    )
