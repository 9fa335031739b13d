"""AddOffsetsToTxn: a group whose offsets a transaction is about to commit (KIP-98)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Adds the partition of `__consumer_offsets` that stores the group to the transaction."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str
