"""LeaveGroup: members leave their group (KIP-345: several from v3)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class MemberResponse:
    member_id: str
    group_instance_id: str | None
    error_code: Int16


@struct
class LeaveGroupResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = wire("3+")


@struct
class MemberIdentity:
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = wire("5+", default=None, ignorable=True)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    group_id: str
    member_id: str = wire("0-2", ignorable=True)
    members: list[MemberIdentity] = wire("3+", ignorable=True)
