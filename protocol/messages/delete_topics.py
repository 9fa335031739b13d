"""DeleteTopics: delete topics and their records, by name or by id (KIP-4, KIP-516)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class DeletableTopicResult:
    name: str | None = wire(nullable="6+")
    topic_id: UUID = wire("6+", ignorable=True)
    error_code: Int16
    error_message: str | None = wire("5+", default=None, ignorable=True)


@struct
class DeleteTopicsResponse(Response):
    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]


@struct
class DeleteTopicState:
    """By name, or by id with a null name."""

    name: str | None = None
    topic_id: UUID


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """`topic_names` before version 6, `topics` since."""

    topics: list[DeleteTopicState] = wire("6+")
    topic_names: list[str] = wire("1-5", ignorable=True)
    timeout_ms: Int32
