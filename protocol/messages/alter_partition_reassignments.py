"""AlterPartitionReassignments: move replicas, or stop moving them (KIP-455)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None


@struct
class ReassignableTopicResponse:
    name: str
    partitions: list[ReassignablePartitionResponse]


@struct
class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    responses: list[ReassignableTopicResponse]


@struct
class ReassignablePartition:
    """The new replicas, in order of preference. Null cancels a reassignment."""

    partition_index: Int32
    replicas: list[Int32] | None = None


@struct
class ReassignableTopic:
    name: str
    partitions: list[ReassignablePartition]


@request(key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    timeout_ms: Int32 = 60000
    topics: list[ReassignableTopic]
