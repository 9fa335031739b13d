"""DescribeGroups: state and members of groups."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class DescribedGroupMember:
    member_id: str
    group_instance_id: str | None = wire("4+", default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@struct
class DescribedGroup:
    error_code: Int16
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = wire("3+", default=-2147483648)


@struct
class DescribeGroupsResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    groups: list[DescribedGroup]


@request(key=15, versions="0-5", flexible="5+")
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    groups: list[str]
    include_authorized_operations: bool = wire("3+")
