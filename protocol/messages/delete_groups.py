"""DeleteGroups: delete empty groups and their offsets (KIP-229)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class DeletableGroupResult:
    group_id: str
    error_code: Int16


@struct
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    groups_names: list[str]
