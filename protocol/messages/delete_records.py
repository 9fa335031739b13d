"""DeleteRecords: raise the log start offset of partitions (KIP-107)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class DeleteRecordsPartitionResult:
    """`low_watermark` is the smallest log start offset of all replicas."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: str
    partitions: list[DeleteRecordsPartitionResult]


@struct
class DeleteRecordsResponse(Response):
    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]


@struct
class DeleteRecordsPartition:
    """Records before `offset` are deleted; -1 stands for the high watermark."""

    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: str
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32
