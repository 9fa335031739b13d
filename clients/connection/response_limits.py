"""How large the answer to a request may be.

A client cannot know what a broker will send, but it knows what it has asked for. An answer that is larger is
refused when its length arrives, before its bytes do.
"""

from __future__ import annotations

from typing import Any

from holdfast_log.protocol.api import Request
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest
from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from holdfast_log.protocol.messages.produce import ProduceRequest

_ONE_ROW_FOR_EACH_ASKED = (
    ProduceRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetCommitRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    LeaveGroupRequest,
)
"""Requests whose answers have a short row for each row of the request, and nothing else."""
_SMALL_BYTES = 1024 * 1024
_ANSWERED_PER_ASKED = 8
"""Largest number of bytes that such an answer has for each byte of its request: a row may have an error with
a message."""


def largest_answer(request: Request[Any], request_bytes: int, max_response_bytes: int) -> int:
    """The largest number of bytes that the answer to a request of `request_bytes` bytes can need.

    `max_response_bytes` is `response.max.bytes`: the largest answer without the records that a fetch asks
    for, and the largest batch, of which a broker may send one more than was asked for.
    """
    if isinstance(request, FetchRequest):
        asked = sum(row.partition_max_bytes for topic in request.topics for row in topic.partitions)
        return min(request.max_bytes, asked) + max_response_bytes
    if isinstance(request, _ONE_ROW_FOR_EACH_ASKED):
        return min(max_response_bytes, _SMALL_BYTES + _ANSWERED_PER_ASKED * request_bytes)
    return max_response_bytes
