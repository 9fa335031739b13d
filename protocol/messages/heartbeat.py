"""Heartbeat: a member reports that it is alive."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class HeartbeatResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    error_code: Int16


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire("3+", default=None)
