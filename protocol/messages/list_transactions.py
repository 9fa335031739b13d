"""ListTransactions: the transactional ids of a coordinator (KIP-664, KIP-994)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class ListedTransaction:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@struct
class ListTransactionsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[str]
    transaction_states: list[ListedTransaction]


@request(key=66, versions="0-1", flexible="0+")
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """Empty filters let all pass. `duration_filter`: only those open for longer than this, in ms; below 0:
    all."""

    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = wire("1+", default=-1)
