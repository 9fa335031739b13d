"""ElectLeaders: preferred or unclean leader election on request (KIP-183, KIP-460)."""

from __future__ import annotations

import enum

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


class ElectionType(enum.IntEnum):
    """The replica to elect.

    PREFERRED: the first replica, if it is in sync. UNCLEAN: any live replica of a partition without a leader;
    acknowledged records may be lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: str | None = None


@struct
class ReplicaElectionResult:
    topic: str
    partition_result: list[PartitionResult]


@struct
class ElectLeadersResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = wire("1+")
    replica_election_results: list[ReplicaElectionResult]


@struct
class TopicPartitions:
    topic: str
    partitions: list[Int32]


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """`election_type` is 0 for preferred, 1 for unclean. If `topic_partitions` is null, all are elected."""

    election_type: Int8 = wire("1+")
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000
