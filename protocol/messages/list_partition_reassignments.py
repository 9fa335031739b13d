"""ListPartitionReassignments: reassignments in progress (KIP-455)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment:
    name: str
    partitions: list[OngoingPartitionReassignment]


@struct
class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    topics: list[OngoingTopicReassignment]


@struct
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: list[Int32]


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None
