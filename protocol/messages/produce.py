"""Produce: append record batches to partitions (KIP-98, KIP-467, KIP-951)."""

from __future__ import annotations

from protocol.api import Request, Response, request
from protocol.schema import Int16, Int32, Int64, Records, struct, wire


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: str | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = wire("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = wire("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire("8+", ignorable=True)
    error_message: str | None = wire("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire("10+", tag=0, ignorable=True)


@struct
class TopicProduceResponse:
    name: str
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@struct
class ProduceResponse(Response):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire("10+", tag=0, ignorable=True)


@struct
class PartitionProduceData:
    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    name: str
    partition_data: list[PartitionProduceData]


@request(key=0, versions="0-11", flexible="9+")
class ProduceRequest(Request[ProduceResponse]):
    transactional_id: str | None = wire("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]
