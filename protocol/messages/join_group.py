"""JoinGroup: enter a group, or stay in it through a rebalance (KIP-345, KIP-394, KIP-800)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = wire("5+", default=None, ignorable=True)
    metadata: bytes


@struct
class JoinGroupResponse(Response):
    """Only the leader gets the members. `skip_assignment`: a static leader assigns nothing (KIP-814)."""

    throttle_time_ms: Int32 = wire("2+", ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: str | None = wire("7+", default=None, ignorable=True)
    protocol_name: str | None = wire(nullable="7+")
    leader: str
    skip_assignment: bool = wire("9+")
    member_id: str
    members: list[JoinGroupResponseMember]


@struct
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request[JoinGroupResponse]):
    """`session_timeout_ms` is the maximum time between two heartbeats, `rebalance_timeout_ms` the maximum
    time to join again.
    """

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire("1+", default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = wire("5+", default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = wire("8+", default=None, ignorable=True)
