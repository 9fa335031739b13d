"""OffsetDelete: delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: str
    partitions: list[OffsetDeleteResponsePartition]


@struct
class OffsetDeleteResponse(Response):
    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: str
    partitions: list[OffsetDeleteRequestPartition]


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
