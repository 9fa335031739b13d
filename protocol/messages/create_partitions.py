"""CreatePartitions: more partitions for topics (KIP-195)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16
    error_message: str | None = None


@struct
class CreatePartitionsResponse(Response):
    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    """`count` is the new total. Null assignments leave the placement to the controller."""

    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool
