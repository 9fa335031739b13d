"""SyncGroup: the leader sends all assignments, and every member receives its own."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class SyncGroupResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    error_code: Int16
    protocol_type: str | None = wire("5+", default=None, ignorable=True)
    protocol_name: str | None = wire("5+", default=None, ignorable=True)
    assignment: bytes


@struct
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request[SyncGroupResponse]):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire("3+", default=None)
    protocol_type: str | None = wire("5+", default=None, ignorable=True)
    protocol_name: str | None = wire("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]
