"""DescribeTransactions: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class TransactionTopicData:
    topic: str
    partitions: list[Int32]


@struct
class DescribedTransaction:
    """`topics` are the partitions of an open transaction. While it is ended, they are those without a
    marker."""

    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TransactionTopicData]


@struct
class DescribeTransactionsResponse(Response):
    throttle_time_ms: Int32
    transaction_states: list[DescribedTransaction]


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    transactional_ids: list[str]
