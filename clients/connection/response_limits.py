"""How large the answer to a request may be.

A client cannot know what a broker will send, but it knows what it has asked for. An answer that is larger is
refused when its length arrives, before its bytes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast_log.protocol.api import Request

if TYPE_CHECKING:  # A client imports the messages that it sends, and no others.
    from holdfast_log.protocol.messages.fetch import FetchRequest
    from holdfast_log.protocol.messages.metadata import MetadataRequest

ELEMENTS_MAX = 500_000
"""Maximum number of elements in all lists of an answer (eight plain numbers count as one): as many as the
metadata of 200,000 partitions have. Few bytes can stand for many elements. While they are decoded, the client
does nothing else, and no deadline is kept: two to three seconds for so many."""
_FETCH = "Fetch"
_METADATA = "Metadata"
_ONE_ROW_FOR_EACH_ASKED = frozenset(
    {
        "Produce",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "OffsetCommit",
        "FindCoordinator",
        "Heartbeat",
        "InitProducerId",
        "LeaveGroup",
    }
)
"""The APIs whose answers have a short row for each row of the request, and nothing else."""
_SMALL_BYTES = 1024 * 1024
_TOPIC_BYTES = 16 * 1024 * 1024
"""Largest number of bytes that the metadata of one topic can need: about 200,000 partitions."""
_ANSWERED_PER_ASKED = 8
"""Largest number of bytes that such an answer has for each byte of its request: a row may have an error with
a message."""


def largest_answer(request: Request[Any], request_bytes: int, max_response_bytes: int) -> int:
    """The largest number of bytes that the answer to a request of `request_bytes` bytes can need.

    `max_response_bytes` is `response.max.bytes`: the largest answer without the records that a fetch asks
    for, and the largest batch, of which a broker may send one more than was asked for.
    """
    name = request.api.name
    if name == _FETCH:
        return _asked_bytes(cast("FetchRequest", request)) + max_response_bytes
    if name == _METADATA and cast("MetadataRequest", request).topics is not None:
        topics = len(cast("MetadataRequest", request).topics or ())
        return min(max_response_bytes, _SMALL_BYTES + topics * _TOPIC_BYTES)
    if name in _ONE_ROW_FOR_EACH_ASKED:
        return min(max_response_bytes, _SMALL_BYTES + _ANSWERED_PER_ASKED * request_bytes)
    return max_response_bytes


def _asked_bytes(request: FetchRequest) -> int:
    asked = sum(row.partition_max_bytes for topic in request.topics for row in topic.partitions)
    return min(request.max_bytes, asked)
