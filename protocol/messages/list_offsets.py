"""ListOffsets: offsets by timestamp, or the first and the last (KIP-79, KIP-734)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire


@struct
class ListOffsetsPartitionResponse:
    """Offset and timestamp are -1 if nothing was found."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = wire("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str
    partitions: list[ListOffsetsPartitionResponse]


@struct
class ListOffsetsResponse(Response):
    throttle_time_ms: Int32 = wire("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse]


@struct
class ListOffsetsPartition:
    """`timestamp` is in ms, or -1 for the end, -2 for the beginning, -3 for the record with the largest
    timestamp.
    """

    partition_index: Int32
    current_leader_epoch: Int32 = wire("4+", default=-1, ignorable=True)
    timestamp: Int64


@struct
class ListOffsetsTopic:
    name: str
    partitions: list[ListOffsetsPartition]


@request(key=2, versions="1-7", flexible="6+")
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """A consumer has `replica_id` -1; `isolation_level` 1 is read_committed."""

    replica_id: Int32
    isolation_level: Int8 = wire("2+")
    topics: list[ListOffsetsTopic]
