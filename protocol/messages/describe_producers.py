"""DescribeProducers: the producers whose state a partition keeps (KIP-664)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class ProducerState:
    """`last_sequence` and `last_timestamp` (ms) are of the producer's last batch.
    `current_txn_start_offset` is -1 outside of a transaction.
    """

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    name: str
    partitions: list[PartitionResponse]


@struct
class DescribeProducersResponse(Response):
    throttle_time_ms: Int32
    topics: list[TopicResponse]


@struct
class TopicRequest:
    name: str
    partition_indexes: list[Int32]


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    topics: list[TopicRequest]
