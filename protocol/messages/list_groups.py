"""ListGroups: the groups that a broker coordinates (KIP-518, KIP-848)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str = wire("4+", ignorable=True)
    group_type: str = wire("5+", ignorable=True)


@struct
class ListGroupsResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request[ListGroupsResponse]):
    states_filter: list[str] = wire("4+")
    types_filter: list[str] = wire("5+")
