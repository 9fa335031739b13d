"""EndTxn: commit or abort a transaction (KIP-98, KIP-890)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class EndTxnResponse(Response):
    """From version 5 on the id and the epoch to write the next transaction with; -1 on error."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = wire("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = wire("5+", default=-1, ignorable=True)


@struct
class PartitionOwnedInTransaction:
    """A partition that the transaction has written to for its owner, and the incarnation of the owner's
    grant."""

    topic: str
    partition: Int32
    owner_token: Int64


@request(key=26, versions="0-5", flexible="3+", transactions_2="5+")
class EndTxnRequest(Request[EndTxnResponse]):
    """From version 5 on the end of a transaction is also the end of its producer epoch (KIP-890).

    `owned`, for brokers with the feature `holdfast.owned.transactions`: a commit is refused with
    OWNERSHIP_FENCED if one of these grants has ended.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool
    owned: list[PartitionOwnedInTransaction] = wire("3+", tag=10000)
