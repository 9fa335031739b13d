"""AddPartitionsToTxn: partitions that a transaction is about to write to (KIP-98, KIP-890)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@struct
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = wire("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire("0-3")


@struct
class AddPartitionsToTxnTopic:
    name: str
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """`verify_only`: ask whether the partitions are in the transaction, add none."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@request(key=24, versions="0-5", flexible="3+", advertised="0-3", sent="0-3")
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Clients send versions up to 3, for one transaction. From version 4 on a broker asks for transactions of
    several clients that write to partitions which it leads.
    """

    transactions: list[AddPartitionsToTxnTransaction] = wire("4+")
    v3_and_below_transactional_id: str = wire("0-3")
    v3_and_below_producer_id: Int64 = wire("0-3")
    v3_and_below_producer_epoch: Int16 = wire("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire("0-3")
