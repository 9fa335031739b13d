"""OffsetForLeaderEpoch: where the records of a leader epoch end (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class EpochEndOffset:
    """The largest epoch not above the requested one, and the offset after its last record; -1 if there is
    none."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: str
    partitions: list[EpochEndOffset]


@struct
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]


@struct
class OffsetForLeaderPartition:
    """`current_leader_epoch` is -1 if the caller does not know it."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: str
    partitions: list[OffsetForLeaderPartition]


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    replica_id: Int32 = wire("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]
